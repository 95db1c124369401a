package org.apache.spark.sparkdlbench

import io.netty.buffer.ByteBuf
import org.apache.spark.network.util.AbstractFileRegion

import java.nio.channels.WritableByteChannel

/**
 * Bytes in the shape of a file region. Spark's SASL encryption takes a buffer's remaining bytes for its length while it
 * uses it up, and so drops the end of any buffer beyond its first 64 KiB block, or beyond what the socket takes at once;
 * a region's length stays what it was.
 */
private[sparkdlbench] final class BytesRegion(bytes: ByteBuf) extends AbstractFileRegion {
  private val length = bytes.readableBytes
  private var written = 0L

  override def count(): Long = length.toLong
  override def position(): Long = 0
  override def transferred(): Long = written

  override def transferTo(target: WritableByteChannel, position: Long): Long = {
    require(position == written, s"position $position after $written bytes")
    val count = target.write(bytes.nioBuffer())
    bytes.skipBytes(count)
    written += count
    count.toLong
  }

  override protected def deallocate(): Unit = { bytes.release(); () }
}
