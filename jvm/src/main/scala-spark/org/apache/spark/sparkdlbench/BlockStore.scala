package org.apache.spark.sparkdlbench

import org.apache.spark.SparkEnv
import org.apache.spark.storage.{StorageLevel, TestBlockId}
import org.apache.spark.util.io.ChunkedByteBuffer

import java.nio.ByteBuffer

/**
 * Named blocks of bytes in this executor's BlockManager, found by the others through the driver. Blocks are kept in memory
 * and go to disk, not away, when Spark needs the memory.
 *
 * `TestBlockId` is the one kind of Spark's block ids that carries a free name and parses on the remote side; BigDL's
 * parameter blocks use the same.
 */
final class BlockStore(env: SparkEnv) {
  private val manager = env.blockManager

  /**
   * Publishes a copy of `bytes` (on the heap: the BlockManager frees direct buffers itself when it removes a block). Replaces a
   * block of the same name, as a repeated task does.
   */
  def put(name: String, bytes: ByteBuffer): Unit = {
    val id = TestBlockId(name)
    manager.removeBlock(id, tellMaster = false)
    val copy = ByteBuffer.allocate(bytes.remaining)
    copy.put(bytes.duplicate()).flip()
    val stored = manager.putBytes(id, new ChunkedByteBuffer(copy), StorageLevel.MEMORY_AND_DISK_SER, tellMaster = true)
    if (!stored) throw new IllegalStateException(s"the BlockManager of executor ${env.executorId} did not store $name")
  }

  /** The block's bytes as consecutive chunks, from this executor or another; None where nobody has it. */
  def fetch(name: String): Option[Array[ByteBuffer]] = {
    val id = TestBlockId(name)
    manager.getLocalBytes(id) match {
      case Some(data) =>
        try Some(data.toChunkedByteBuffer(ByteBuffer.allocate).getChunks())
        finally manager.releaseLockAndDispose(id, data)
      case None => manager.getRemoteBytes(id).map(_.getChunks())
    }
  }

  def remove(name: String): Unit = manager.removeBlock(TestBlockId(name), tellMaster = true)
}
