package sparkdlbench.transport.push

import com.sun.jna.{Native, Pointer}
import io.netty.buffer.ByteBuf

import java.nio.ByteBuffer
import scala.util.Try

/** The host's OpenSSL, and addresses for it. */
object OpenSsl {

  /** OpenSSL and its version, or why it cannot be used in this process. */
  lazy val library: Either[String, String] =
    if (Native.POINTER_SIZE != java.lang.Long.BYTES) Left("addresses of this process have not 64 bits")
    else
      Try(LibCrypto.OpenSSL_version(0)).toEither.left
        .map(cause => s"OpenSSL's libcrypto 3 or 1.1 cannot be loaded (${firstLine(cause)})")

  private def firstLine(cause: Throwable): String =
    Option(Option(cause.getCause).getOrElse(cause).getMessage).getOrElse(cause.toString).linesIterator.next()

  private[push] def addressOf(direct: ByteBuffer): Long = Pointer.nativeValue(Native.getDirectBufferPointer(direct))

  /** Where the readable bytes of a buffer begin; 0 where they lie on the heap, or not in one piece. */
  private[push] def addressOf(bytes: ByteBuf): Long =
    if (bytes.hasMemoryAddress) bytes.memoryAddress + bytes.readerIndex
    else if (bytes.isDirect && bytes.nioBufferCount == 1) addressOf(bytes.nioBuffer)
    else 0
}
