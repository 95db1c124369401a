package org.apache.spark.sparkdlbench

import org.apache.spark._
import org.apache.spark.network.client.StreamCallbackWithID
import org.apache.spark.serializer.SerializerManager
import org.apache.spark.shuffle._
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.storage.BlockId

/**
 * Spark's own sort shuffle, whose resolver also takes our streams in. It is a `SortShuffleManager`, and its resolver an
 * `IndexShuffleBlockResolver`, because Spark asks for just that in places (Spark SQL's row copies, push-based shuffle).
 */
private[spark] class SparkDLShuffleManager(conf: SparkConf) extends SortShuffleManager(conf) {
  locally {
    val delegate = conf.get(ShuffleManagers.DelegateKey, ShuffleManagers.Sort)
    if (!ShuffleManagers.isSort(delegate))
      throw new SparkException(
        s"${ShuffleManagers.DelegateKey} is '$delegate', but spark.shuffle.manager is ${classOf[SparkDLShuffleManager].getName}, " +
          s"which wraps the sort manager only. Set spark.shuffle.manager=${ShuffleManagers.Delegating} to wrap another one."
      )
  }
  private val sort = new SortShuffleManager(conf)

  /** Migrated blocks go to the sort manager's own resolver, which notes them, so that they are removed with their shuffle. */
  override val shuffleBlockResolver: IndexShuffleBlockResolver =
    new IndexShuffleBlockResolver(conf) with ReceivesStreams {
      override def putShuffleBlockAsStream(id: BlockId, serializerManager: SerializerManager): StreamCallbackWithID =
        InboxStream.find(id).getOrElse(sort.shuffleBlockResolver.putShuffleBlockAsStream(id, serializerManager))
    }

  override def registerShuffle[K, V, C](shuffleId: Int, dependency: ShuffleDependency[K, V, C]): ShuffleHandle =
    sort.registerShuffle(shuffleId, dependency)

  override def getWriter[K, V](
      handle: ShuffleHandle,
      mapId: Long,
      context: TaskContext,
      metrics: ShuffleWriteMetricsReporter
  ): ShuffleWriter[K, V] = sort.getWriter(handle, mapId, context, metrics)

  override def getReader[K, C](
      handle: ShuffleHandle,
      startMapIndex: Int,
      endMapIndex: Int,
      startPartition: Int,
      endPartition: Int,
      context: TaskContext,
      metrics: ShuffleReadMetricsReporter
  ): ShuffleReader[K, C] =
    sort.getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics)

  override def unregisterShuffle(shuffleId: Int): Boolean = sort.unregisterShuffle(shuffleId)

  override def stop(): Unit = { sort.stop(); shuffleBlockResolver.stop() }
}

/**
 * Any other shuffle manager, forwarded to whole; only its resolver is wrapped, so that it also takes our streams in. The
 * manager's class is named by `spark.sparkdl.shuffle.delegate`.
 */
private[spark] class SparkDLDelegatingShuffleManager(conf: SparkConf, isDriver: Boolean) extends ShuffleManager {
  val delegate: ShuffleManager = ShuffleManagers.create(
    conf
      .getOption(ShuffleManagers.DelegateKey)
      .getOrElse(
        throw new SparkException(
          s"spark.shuffle.manager is ${ShuffleManagers.Delegating}, which needs ${ShuffleManagers.DelegateKey}: the class of the " +
            s"shuffle manager to use. For the sort manager set spark.shuffle.manager=${ShuffleManagers.Sorting} instead."
        )
      ),
    conf,
    isDriver
  )
  private lazy val resolver = new DelegatingResolver(
    ShuffleManagers
      .resolver(delegate)
      .getOrElse(
        throw new SparkException(s"The shuffle manager ${delegate.getClass.getName} keeps no blocks in executors.")
      )
  )

  override def shuffleBlockResolver: ShuffleBlockResolver = resolver

  override def registerShuffle[K, V, C](shuffleId: Int, dependency: ShuffleDependency[K, V, C]): ShuffleHandle =
    delegate.registerShuffle(shuffleId, dependency)

  override def getWriter[K, V](
      handle: ShuffleHandle,
      mapId: Long,
      context: TaskContext,
      metrics: ShuffleWriteMetricsReporter
  ): ShuffleWriter[K, V] = delegate.getWriter(handle, mapId, context, metrics)

  override def getReader[K, C](
      handle: ShuffleHandle,
      startMapIndex: Int,
      endMapIndex: Int,
      startPartition: Int,
      endPartition: Int,
      context: TaskContext,
      metrics: ShuffleReadMetricsReporter
  ): ShuffleReader[K, C] =
    delegate.getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics)

  override def unregisterShuffle(shuffleId: Int): Boolean = delegate.unregisterShuffle(shuffleId)

  override def stop(): Unit = delegate.stop()
}
