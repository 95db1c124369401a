package sparkdlbench.transport.push

import sparkdlbench.common.MappedFile
import sparkdlbench.vector.{FlatBuffer, VectorFile, VectorMemory}

import java.io.IOException
import java.nio.channels.FileChannel
import java.nio.file.{Files, InvalidPathException, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable
import scala.util.Try

/**
 * Vectors in memory that ranks of other processes of the host may map, so that they are summed where they lie. The memory has no
 * name: nothing is left of it however the processes end.
 *
 * @param directory
 *   in memory. Where it has little room, vectors are this process' own
 */
final class HostLocalVectors(directory: Path) extends VectorMemory {
  def vector(length: Int): FlatBuffer = shared(length).getOrElse(new FlatBuffer(length))

  private def shared(length: Int): Option[FlatBuffer] = {
    val bytes = 4L * length
    val room = Try(Files.getFileStore(directory).getUsableSpace).getOrElse(0L)
    if (length == 0 || room / HostLocalVectors.RoomShare < bytes) None
    else
      for {
        made <- MappedFile.createNameless(directory, HostLocalVectors.Prefix, bytes.toInt)
        identity <- MappedFile.identity(made.path)
      } yield {
        val file = new VectorFile(made.path.toString, bytes, identity, made)
        FlatBuffer.over(made.memory, length, Some(file))
      }
  }
}

private[push] object HostLocalVectors {
  val Prefix = "sparkdl-vector-"

  /** Of the room in a folder, for one vector: other vectors, other ranks and lanes need some, too. */
  private val RoomShare = 8
}

/** A rank's vector that another rank may map. As `VectorFile` has it. */
private[push] final case class VectorOffer(path: String, bytes: Long, identity: String)

/** Other ranks' vectors that this rank has mapped; what is offered again may not be there any more. One thread. */
private[push] final class MappedVectors {
  private val known = mutable.Map.empty[String, Option[ByteBuffer]]

  /** None: it cannot be mapped. */
  def map(offer: VectorOffer): Option[ByteBuffer] = known.getOrElseUpdate(offer.identity, MappedVectors.attach(offer))
}

private[push] object MappedVectors {
  private val Descriptor = """/proc/\d+/fd/\d+""".r

  // Ours, and those of Python workers. What is there under such a name was made to be shared by processes of this user.
  private val Names = Seq(s"/${HostLocalVectors.Prefix}", "/memfd:sparkdl", "/dev/shm/torch_")

  /** Maps what another rank offers. None where it is not there, or is not what the other rank means. */
  def attach(offer: VectorOffer): Option[ByteBuffer] = try {
    val file = Paths.get(offer.path)
    val known = Descriptor.pattern.matcher(offer.path).matches && {
      val name = Files.readSymbolicLink(file).toString
      Names.exists(name.contains(_))
    }
    if (!known || offer.bytes < 0 || offer.bytes > Int.MaxValue) None
    else
      MappedFile.withFile(file) { channel =>
        // What is mapped beyond the end would kill this JVM where it is touched.
        if (channel.size < offer.bytes || !MappedFile.identity(file).contains(offer.identity)) None
        else Some(channel.map(FileChannel.MapMode.READ_WRITE, 0, offer.bytes).order(ByteOrder.nativeOrder()))
      }
  } catch { case _: IOException | _: InvalidPathException | _: SecurityException => None }
}
