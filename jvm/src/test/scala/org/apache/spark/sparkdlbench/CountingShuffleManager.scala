package org.apache.spark.sparkdlbench

import org.apache.spark.shuffle._
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.network.buffer.ManagedBuffer
import org.apache.spark.network.shuffle.MergedBlockMeta
import org.apache.spark.storage.{BlockId, ShuffleMergedBlockId}
import org.apache.spark.{ShuffleDependency, SparkConf, TaskContext}

import java.util.concurrent.atomic.AtomicLong

/** A shuffle manager of somebody else's: not the sort manager, with a resolver that knows no migration; counts its use. */
private[spark] class CountingShuffleManager(conf: SparkConf) extends ShuffleManager {
  private val inner = new SortShuffleManager(conf)

  override def registerShuffle[K, V, C](id: Int, dependency: ShuffleDependency[K, V, C]): ShuffleHandle =
    inner.registerShuffle(id, dependency)

  override def getWriter[K, V](
      h: ShuffleHandle,
      map: Long,
      c: TaskContext,
      m: ShuffleWriteMetricsReporter
  ): ShuffleWriter[K, V] = {
    CountingShuffleManager.writers.incrementAndGet()
    inner.getWriter(h, map, c, m)
  }

  override def getReader[K, C](
      handle: ShuffleHandle,
      startMapIndex: Int,
      endMapIndex: Int,
      startPartition: Int,
      endPartition: Int,
      context: TaskContext,
      metrics: ShuffleReadMetricsReporter
  ): ShuffleReader[K, C] = {
    CountingShuffleManager.readers.incrementAndGet()
    inner.getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics)
  }

  override def unregisterShuffle(id: Int): Boolean = inner.unregisterShuffle(id)
  override def stop(): Unit = inner.stop()

  override val shuffleBlockResolver: ShuffleBlockResolver = new ShuffleBlockResolver {
    private val resolver = inner.shuffleBlockResolver
    type Directories = Option[Array[String]]
    override def getBlockData(id: BlockId, directories: Directories): ManagedBuffer =
      resolver.getBlockData(id, directories)
    override def getMergedBlockData(id: ShuffleMergedBlockId, directories: Directories) =
      resolver.getMergedBlockData(id, directories)
    override def getMergedBlockMeta(id: ShuffleMergedBlockId, directories: Directories): MergedBlockMeta =
      resolver.getMergedBlockMeta(id, directories)
    override def stop(): Unit = ()
  }
}

object CountingShuffleManager {
  val writers = new AtomicLong
  val readers = new AtomicLong
}
