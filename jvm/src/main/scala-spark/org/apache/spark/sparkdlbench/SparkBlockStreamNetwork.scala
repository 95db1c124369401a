package org.apache.spark.sparkdlbench

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.network.client.TransportClientFactory
import org.apache.spark.network.netty.NettyBlockTransferService
import org.apache.spark.network.shuffle.BlockStoreClient
import org.apache.spark.storage.{ShuffleBlockId, StorageLevel}
import org.apache.spark.util.Utils
import sparkdlbench.common.{ProcessMark, RunFailedException}
import sparkdlbench.config.Settings
import sparkdlbench.transport.push._
import sparkdlbench.vector.VectorMemory

import java.nio.file.{Files, Path, Paths}
import scala.reflect.{classTag, ClassTag}
import scala.util.Try
import scala.util.control.NonFatal

/** `block-stream` over this executor's own block-transfer service. */
object SparkBlockStreamNetwork extends PushNetwork {

  private val InMemory = Paths.get("/dev/shm")

  /** Spark numbers real shuffles from 0 upwards; this one is never registered. */
  val ReservedShuffle = 2000000000

  private def env: SparkEnv = Option(SparkEnv.get).getOrElse(
    throw new RunFailedException("block-stream was used outside a running Spark application; connect it in a task.")
  )

  override def channel: String = "block-stream"

  override def hostLocal(settings: Settings): String = settings(HostLocal.mode)

  override def progress(settings: Settings): String = settings(Progress.key)
  override def congestion(settings: Settings): String = settings(Congestion.key)
  override def cipher(settings: Settings): String = settings(Cipher.key)
  override def rankLoop(): Option[RankLoop] = ReceiveInPlace.mode.flatMap(SparkLine.rankLoop)

  override def describe(rank: Int): PushPeer = {
    ReceiveInPlace.install(env.blockManager.blockTransferService)
    val id = env.blockManager.blockManagerId
    PushPeer(rank, id.host, id.port, id.executorId, PushPeer.thisProcess, ProcessMark.kernel, encrypted)
  }

  private def encrypted: Boolean = SparkFacts.encrypts(env.conf)

  /** Where executors of one host reach each other's vectors: only where that is, and stays, memory. */
  def vectors(mode: String, ranks: Int): VectorMemory = {
    val shares = Option(SparkEnv.get).exists { env =>
      val allowed = mode == "on" || (mode != "off" && !SparkFacts.encrypts(env.conf))
      // Ranks of a local master are threads of the driver's process.
      allowed && env.executorId != SparkContext.DRIVER_IDENTIFIER && sharedDirectories.contains(InMemory)
    }
    if (shares) new HostLocalVectors(InMemory, ranks) else VectorMemory.Own
  }

  override def obstacle: Option[String] = {
    val manager = env.shuffleManager
    ShuffleManagers.resolver(manager) match {
      case Some(_: ReceivesStreams) if env.blockManager.blockTransferService.isInstanceOf[NettyBlockTransferService] =>
        None
      case _ => Some(ShuffleManagers.setup(manager.getClass.getName))
    }
  }

  override def connect(
      peer: PushPeer,
      id: StreamId,
      onFailure: Throwable => Unit,
      onDrained: () => Unit
  ): PushChannel = {
    val client = clientFactory.createUnmanagedClient(peer.host, peer.port)
    try {
      val idleMillis = env.conf.getTimeAsMs(
        "spark.shuffle.io.connectionTimeout",
        env.conf.get("spark.network.timeout", "120s")
      )
      val blockId = ShuffleBlockId(ReservedShuffle, id.inbox, id.ranks)
      val channel =
        new StreamUpload(client, blockId.name, metadata, onFailure, onDrained, math.max(100L, idleMillis / 4))
      channel.start()
      channel
    } catch { case error: Throwable => client.close(); throw error }
  }

  /**
   * Spark's own factory: it carries the authentication and encryption that the session has. A connection of ours alone,
   * not the pooled one, because an upload of ours stays open while Spark's own requests must go on.
   */
  private def clientFactory: TransportClientFactory = {
    val field = classOf[BlockStoreClient].getDeclaredField("clientFactory")
    field.setAccessible(true) // protected in Java, and we may live in another class loader
    field.get(env.blockManager.blockTransferService).asInstanceOf[TransportClientFactory]
  }

  /** What Spark's server wants to know of every uploaded block; it reads it with the serializer that writes it here. */
  private[sparkdlbench] def metadata: Array[Byte] = {
    val serializer = env.serializerManager.getSerializer(implicitly[ClassTag[Any]], autoPick = false).newInstance()
    val bytes = serializer.serialize[AnyRef](described)
    val array = new Array[Byte](bytes.remaining)
    bytes.get(array)
    array
  }

  /** A pair; from Spark 4.3 a class, with a checksum and whether to verify it behind, which we go without. */
  private lazy val described: AnyRef = {
    val (level, values) = (StorageLevel.MEMORY_ONLY, classTag[Array[Byte]])
    Try(Utils.classForName[AnyRef]("org.apache.spark.network.netty.BlockReplicationMetadata")).toOption match {
      case None => (level, values: ClassTag[_])
      case Some(metadata) =>
        metadata
          .getConstructor(classOf[StorageLevel], classOf[ClassTag[_]], classOf[Option[_]], java.lang.Boolean.TYPE)
          .newInstance(level, values, None, java.lang.Boolean.FALSE)
    }
  }

  override def sharedDirectories: Seq[Path] = {
    val local =
      try env.blockManager.diskBlockManager.localDirs.toSeq.map(_.toPath)
      catch { case NonFatal(_) => Nil }
    (InMemory +: local).filter(directory => Files.isDirectory(directory) && Files.isWritable(directory))
  }
}
