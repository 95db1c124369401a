package sparkdlbench.transport.push;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * 64-bit words in a direct or mapped buffer that two threads, or two processes, use to tell each other how far they are.
 * In Java because a call of a VarHandle must keep its exact primitive types or every access boxes.
 */
final class SharedWords {
  private static final VarHandle WORDS =
      MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private SharedWords() {}

  static long getAcquire(ByteBuffer memory, int offset) {
    return (long) WORDS.getAcquire(memory, offset);
  }

  static long get(ByteBuffer memory, int offset) {
    return (long) WORDS.get(memory, offset);
  }

  static void set(ByteBuffer memory, int offset, long value) {
    WORDS.set(memory, offset, value);
  }

  static void setRelease(ByteBuffer memory, int offset, long value) {
    WORDS.setRelease(memory, offset, value);
  }

  /** Also orders later loads: a writer that next looks whether somebody sleeps must use this one. */
  static void setVolatile(ByteBuffer memory, int offset, long value) {
    WORDS.setVolatile(memory, offset, value);
  }
}
