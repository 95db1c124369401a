package sparkdlbench.metrics

import java.lang.reflect.Method

/**
 * Direct memory that Netty takes past the JVM's own books. Where it may, as in Spark's processes, it has it from `sun.misc.Unsafe`, as buffers without
 * a cleaner, which the JVM's pool of direct buffers knows nothing of and Netty counts itself. Spark's channels and ours share this one Netty: Spark's
 * distributions hold a shaded one for Spark Connect's client alone, which runs in no driver and no executor.
 */
private[metrics] object NettyMemory {

  /**
   * What Netty counts; None where that is in the JVM's pool already, or nothing. Without the constructor for buffers without a cleaner it asks
   * `ByteBuffer.allocateDirect` (from Java 24 on perhaps malloc, which is then left out here): Netty 4.1 and 4.2.7 count nothing of that, newer ones
   * of 4.2 count what the pool has too. By name, as this is Netty's own affair and another Spark brings another Netty.
   */
  private val counted: Option[Method] =
    try {
      val platform = Class.forName("io.netty.util.internal.PlatformDependent")
      val withoutCleaner = platform.getMethod("hasDirectBufferNoCleanerConstructor").invoke(null)
      if (withoutCleaner == java.lang.Boolean.TRUE) Some(platform.getMethod("usedDirectMemory")) else None
    } catch { case _: ReflectiveOperationException | _: LinkageError => None }

  /** Bytes besides those of the JVM's pool; 0 where Netty does not count (-1), as with `io.netty.maxDirectMemory=0`. */
  def outsidePool: Long = counted.fold(0L)(method => math.max(0L, method.invoke(null).asInstanceOf[Long]))
}
