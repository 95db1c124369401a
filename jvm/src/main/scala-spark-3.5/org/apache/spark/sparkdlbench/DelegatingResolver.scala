package org.apache.spark.sparkdlbench

import org.apache.spark.network.buffer.ManagedBuffer
import org.apache.spark.network.client.StreamCallbackWithID
import org.apache.spark.network.shuffle.MergedBlockMeta
import org.apache.spark.serializer.SerializerManager
import org.apache.spark.shuffle.{MigratableResolver, ShuffleBlockInfo, ShuffleBlockResolver}
import org.apache.spark.storage.{BlockId, ShuffleMergedBlockId}

/** Another manager's resolver that also takes our streams in. Migration is forwarded where that resolver knows it. */
private[sparkdlbench] final class DelegatingResolver(delegate: ShuffleBlockResolver)
    extends ShuffleBlockResolver
    with MigratableResolver
    with ReceivesStreams {
  private val migratable = Some(delegate).collect { case resolver: MigratableResolver => resolver }

  override def putShuffleBlockAsStream(id: BlockId, serializerManager: SerializerManager): StreamCallbackWithID =
    InboxStream
      .find(id)
      .orElse(migratable.map(_.putShuffleBlockAsStream(id, serializerManager)))
      .getOrElse(
        throw new UnsupportedOperationException(s"${delegate.getClass.getName} takes no migrated shuffle blocks ($id).")
      )

  override def getStoredShuffles(): collection.Seq[ShuffleBlockInfo] =
    migratable.fold[collection.Seq[ShuffleBlockInfo]](Nil)(_.getStoredShuffles())

  override def getMigrationBlocks(shuffle: ShuffleBlockInfo): List[(BlockId, ManagedBuffer)] =
    migratable.fold[List[(BlockId, ManagedBuffer)]](Nil)(_.getMigrationBlocks(shuffle))

  override def getBlockData(id: BlockId, directories: Option[Array[String]]): ManagedBuffer =
    delegate.getBlockData(id, directories)

  override def getBlocksForShuffle(shuffleId: Int, mapId: Long): collection.Seq[BlockId] =
    delegate.getBlocksForShuffle(shuffleId, mapId)

  override def getMergedBlockData(
      id: ShuffleMergedBlockId,
      directories: Option[Array[String]]
  ): collection.Seq[ManagedBuffer] =
    delegate.getMergedBlockData(id, directories)

  override def getMergedBlockMeta(id: ShuffleMergedBlockId, directories: Option[Array[String]]): MergedBlockMeta =
    delegate.getMergedBlockMeta(id, directories)

  override def stop(): Unit = delegate.stop()
}
