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
   * Publishes `bytes`, without a copy: the caller leaves them as they are until it has removed the block, or knows that nobody
   * fetches it any more. Replaces a block of the same name, as a repeated task does.
   */
  def put(name: String, bytes: ByteBuffer): Unit = {
    val id = TestBlockId(name)
    manager.removeBlock(id, tellMaster = false)
    val stored = manager.putBytes(id, new LentBytes(bytes), StorageLevel.MEMORY_AND_DISK_SER, tellMaster = true)
    if (!stored) throw new IllegalStateException(s"the BlockManager of executor ${env.executorId} did not store $name")
  }

  /**
   * The block's bytes as consecutive chunks, from this executor (then they may be the memory that was put) or another; None
   * where nobody has it.
   */
  def fetch(name: String): Option[Array[ByteBuffer]] = {
    val id = TestBlockId(name)
    manager.getLocalBytes(id) match {
      case Some(data) =>
        try Some(Array(data.toByteBuffer()))
        finally manager.releaseLock(id)
      case None => manager.getRemoteBytes(id).map(_.getChunks())
    }
  }

  def remove(name: String): Unit = manager.removeBlock(TestBlockId(name), tellMaster = true)
}

/** Memory that stays the caller's: the BlockManager frees direct buffers that it holds, and must not free these. */
private final class LentBytes(bytes: ByteBuffer) extends ChunkedByteBuffer(bytes.duplicate()) {
  override def dispose(): Unit = ()
}
