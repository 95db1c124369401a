package org.apache.spark.sparkdlbench

import org.apache.spark.SparkEnv
import org.apache.spark.storage.{BlockId, BlockManager, StorageLevel, TestBlockId}
import org.apache.spark.util.io.ChunkedByteBuffer

import java.lang.reflect.InvocationTargetException
import java.nio.ByteBuffer
import scala.reflect.ClassTag

/**
 * Named blocks of bytes in this executor's BlockManager, found by the others through the driver. Blocks are kept in memory
 * and go to disk, not away, when Spark needs the memory.
 *
 * `TestBlockId` is the one kind of Spark's block ids that carries a free name and parses on the remote side; BigDL's
 * parameter blocks use the same.
 */
final class BlockStore(env: SparkEnv) {
  private val manager = env.blockManager
  private val putMethod = classOf[BlockManager].getMethods.filter(_.getName == "putBytes").maxBy(_.getParameterCount)
  private val putDefaults = (5 until putMethod.getParameterCount).map { number =>
    classOf[BlockManager].getMethod("putBytes$default$" + number).invoke(manager)
  }

  /**
   * Publishes `bytes`, without a copy: the caller leaves them as they are until it has removed the block, or knows that nobody
   * fetches it any more. Replaces a block of the same name, as a repeated task does.
   */
  def put(name: String, bytes: ByteBuffer): Unit = {
    val id = TestBlockId(name)
    manager.removeBlock(id, tellMaster = false)
    if (!putBytes(id, new LentBytes(bytes)))
      throw new IllegalStateException(s"the BlockManager of executor ${env.executorId} did not store $name")
  }

  /** `BlockManager.putBytes` with tellMaster; by name, because Spark 4.3 put more parameters, with defaults, before the last. */
  private def putBytes(id: BlockId, bytes: ChunkedByteBuffer): Boolean = {
    val level = StorageLevel.MEMORY_AND_DISK_SER
    val leading = Seq[AnyRef](id, bytes, level, java.lang.Boolean.TRUE)
    try putMethod.invoke(manager, (leading ++ putDefaults :+ ClassTag.Any): _*).asInstanceOf[Boolean]
    catch { case error: InvocationTargetException => throw error.getCause }
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
