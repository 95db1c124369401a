package sparkdlbench.transport
package push

import sparkdlbench.common.MappedFile
import sparkdlbench.config.Key

import java.io.IOException
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder, MappedByteBuffer}
import java.security.SecureRandom

/** When ranks of different executors on one host exchange through a mapped file instead of sockets. */
object HostLocal {
  val mode: Key[String] = Key.choice(
    "host_local",
    "auto",
    Seq("auto", "on", "off"),
    "Executors on one host exchange through mapped memory: auto (where both prove that they share it, and never beside encrypted connections), on (also beside encryption; fails where they do not share it), off"
  )
}

/**
 * A file that one rank has made and filled with zeros for the messages of another rank.
 *
 * @param nonce
 *   32 hexadecimal digits; what the file must begin with
 */
final case class HostLocalOffer(path: String, bytes: Long, nonce: String)

/**
 * Mapped memory shared by two processes. Its file carries no name any more once both have mapped it, so nothing is left
 * behind however they end; where its maker is killed before that, the next maker of such a file removes it. Bytes 0–15: the
 * maker's nonce; 16–31: the nonce again, inverted, as the other's answer; lanes follow.
 */
final class HostLocalSegment private (val offer: HostLocalOffer, memory: MappedByteBuffer) {
  private val order = memory.order(ByteOrder.nativeOrder())

  /** Memory of the lanes, in the order of their ids. */
  def slots(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): Seq[LaneSlots] = {
    var offset = HostLocalSegment.HeaderBytes
    lanes.sortBy(_.id).map { lane =>
      val bytes = LaneSlots.bytes(lane).toInt
      val slots = new LaneSlots(lane, order.slice(offset, bytes), destination(lane))
      offset += bytes
      slots
    }
  }

  private def words(at: Int): (Long, Long) = (SharedWords.getAcquire(order, at), SharedWords.getAcquire(order, at + 8))

  /** The other end, which has read the nonce, says so in the memory itself. */
  def answer(): Unit = {
    val (high, low) = words(0)
    SharedWords.setVolatile(order, 16, ~high)
    SharedWords.setVolatile(order, 24, ~low)
  }

  def isAnswered: Boolean = { val (high, low) = words(0); words(16) == ((~high, ~low)) }

  private def nonce: String = { val (high, low) = words(0); f"$high%016x$low%016x" }

  def unlink(): Unit = Files.deleteIfExists(Paths.get(offer.path)): Unit
}

object HostLocalSegment {
  val HeaderBytes: Int = LaneSlots.Alignment
  private val Prefix = "sparkdl-host-local-"

  def bytes(lanes: Seq[Lane]): Long = HeaderBytes + lanes.map(LaneSlots.bytes).sum

  /** A new segment of `bytes` in the first of `directories` that can hold it. None where none can. */
  def create(directories: Seq[Path], bytes: Long): Option[HostLocalSegment] =
    if (bytes > Int.MaxValue) None
    else
      MappedFile.create(directories, Prefix, bytes.toInt).map { case (file, memory) =>
        val random = new SecureRandom
        memory.order(ByteOrder.nativeOrder()).putLong(0, random.nextLong()).putLong(8, random.nextLong())
        val nonce = f"${memory.getLong(0)}%016x${memory.getLong(8)}%016x"
        new HostLocalSegment(HostLocalOffer(file.toString, bytes, nonce), memory)
      }

  /** Maps what another rank offers. None where the file is not there, or is not the one that the other rank has made. */
  def attach(offer: HostLocalOffer): Option[HostLocalSegment] = try {
    val file = Paths.get(offer.path)
    val plain = file.getFileName.toString.startsWith(Prefix) && Files.isRegularFile(file) && !Files.isSymbolicLink(file)
    if (!plain || Files.size(file) != offer.bytes) None
    else {
      val memory = MappedFile.withFile(file)(_.map(FileChannel.MapMode.READ_WRITE, 0, offer.bytes))
      Some(new HostLocalSegment(offer, memory)).filter(_.nonce == offer.nonce)
    }
  } catch { case _: IOException | _: SecurityException => None }
}
