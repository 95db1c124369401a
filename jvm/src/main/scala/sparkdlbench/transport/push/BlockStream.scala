package sparkdlbench.transport.push

import org.apache.spark.sparkdlbench.SparkBlockStreamNetwork
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.VectorMemory
import sparkdlbench.transport.{GroupContext, OneStageTransport, RankGroups, RankPlacement, Transport, TransportVariant}

/**
 * Messages pushed from executor to executor through Spark's own block-transfer servers, without the driver.
 *
 * Each rank keeps one upload stream to every rank it has lanes to. A stream is a sequence of ordinary Spark block uploads
 * (`UploadStream`, for a reserved shuffle id) on a connection made by Spark's client factory, so it passes Spark's
 * authentication and encryption and needs no port of its own. Messages are frames of 16 bytes and the payload within the
 * uploads: per message there is no request, no acknowledgement and no serialisation. The receiver's server reads a payload
 * from the socket straight to where the rank reads it (`ReceiveInPlace`; where the connection is encrypted by AES-CTR it is decrypted
 * there, see `Cipher`; otherwise through a buffer and one copy). The rank's thread is woken then, or has read the socket itself (`Progress`).
 *
 * Ranks of one executor process exchange through direct memory, executors of one host through a mapped file (`host_local`);
 * both are counted apart.
 *
 *   - Purpose: the fastest in-band way; one barrier stage for the whole training
 *   - Messages to the driver: one `allGather` an attempt, none a step
 *   - Bytes: those of the topology; framing (16 bytes a message, about 300 an upload of up to 16 MiB) apart
 *   - Not for: sessions whose shuffle manager cannot be wrapped (see SparkDLPlugin)
 */
final class BlockStream extends TransportVariant with OneStageTransport {
  def name = "block-stream"
  def doc =
    "Pushed between executors through Spark's own block-transfer servers; executors on one host may use mapped memory"
  def inBand = true
  override def keys: Seq[Key[_]] =
    Seq(HostLocal.mode, Progress.key, Congestion.key, Cipher.key, RankGroups.inMemoryFirst)

  override def inboxBytes(capacity: Long, destination: Boolean): Long =
    LaneSlots.bytes(if (destination) 0 else capacity) + LaneSlots.Alignment

  override def mappedInboxBytes(settings: Settings, capacity: Long): Option[Long] =
    if (settings(HostLocal.mode) == "off") None else Some(LaneSlots.bytes(capacity))

  override def vectors(settings: Settings, ranks: Int): VectorMemory =
    if (ranks > 1) SparkBlockStreamNetwork.vectors(settings(HostLocal.mode), ranks) else VectorMemory.Own

  override def checkHere(settings: Settings, around: RankPlacement): Unit =
    if (around.severalProcesses)
      SparkBlockStreamNetwork.obstacle.foreach(text => throw new ConfigurationException(text))

  override def connect(group: GroupContext): Transport = PushTransport.connect(group, SparkBlockStreamNetwork)
}
