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
 * @param ranks
 *   of the run, all of which may be on this host
 */
final class HostLocalVectors(directory: Path, ranks: Int) extends VectorMemory {
  import HostLocalVectors._
  def vector(length: Int): FlatBuffer = shared(length).getOrElse(new FlatBuffer(length))

  private def shared(length: Int): Option[FlatBuffer] = {
    val bytes = 4L * length
    if (length == 0 || !hasRoom(bytes)) None
    else
      MappedFile.createNameless(directory, Prefix, bytes.toInt).map { made =>
        val file = new VectorFile(made.path.toString, bytes, made.identity, made)
        FlatBuffer.over(made.memory, length, Some(file))
      }
  }

  private def hasRoom(bytes: Long): Boolean = {
    val needed = bytes * math.max(LeastVectors, VectorsPerRank * ranks)
    def enough: Boolean = Try(Files.getFileStore(directory).getUsableSpace).getOrElse(0L) >= needed
    enough || {
      // Vectors of earlier runs hold their memory until they are collected, which nothing else brings about.
      System.gc()
      Thread.sleep(CollectMillis)
      enough
    }
  }
}

private[push] object HostLocalVectors {
  val Prefix = "sparkdl-vector-"

  /** What each rank may take there: two vectors, and lanes of up to four times a vector, which must not go elsewhere for them. */
  private val VectorsPerRank = 6
  private val LeastVectors = 8
  private val CollectMillis = 50L
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

  // Ours, and those of Python workers, which cannot shrink any more.
  private def isShared(name: String): Boolean =
    name.startsWith("/memfd:sparkdl") || name.contains(s"/${HostLocalVectors.Prefix}")

  /** Maps what another rank offers. None where it is not there, or is not what the other rank means. */
  def attach(offer: VectorOffer): Option[ByteBuffer] = try {
    val file = Paths.get(offer.path)
    val known =
      Descriptor.pattern.matcher(offer.path).matches && isShared(Files.readSymbolicLink(file).toString)
    if (!known || offer.bytes < 0 || offer.bytes > Int.MaxValue) None
    else
      MappedFile.withFile(file) { channel =>
        // What is mapped beyond the end would kill this JVM where it is touched.
        if (channel.size < offer.bytes || !MappedFile.identity(file).contains(offer.identity)) None
        else Some(channel.map(FileChannel.MapMode.READ_WRITE, 0, offer.bytes).order(ByteOrder.nativeOrder()))
      }
  } catch { case _: IOException | _: InvalidPathException | _: SecurityException => None }
}
