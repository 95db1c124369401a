package sparkdlbench.train

import sparkdlbench.rank.{CheckpointAuthor, DataPosition, RankSnapshot, StateRange}

import java.io.{
  BufferedInputStream,
  BufferedOutputStream,
  DataInputStream,
  DataOutputStream,
  EOFException,
  FilterOutputStream,
  IOException,
  InputStream,
  OutputStream
}
import java.nio.ByteBuffer
import java.security.{DigestInputStream, DigestOutputStream, MessageDigest}

/** A range in a part's file, without its values. */
private[train] final case class PartRange(name: String, from: Int, length: Int)

/** One file of a checkpoint as the manifest lists it. `sha256` in hexadecimal digits. */
private[train] final case class PartRecord(rank: Int, file: String, bytes: Long, sha256: String, ranges: Seq[PartRange])

/** The layout of one rank's file: what it is, then its ranges, each with its values as big-endian fp32. */
private[train] object CheckpointPart {

  /** "SPDLCKP" and the version of the layout. */
  private val Magic = 0x5350444c434b5004L
  private val Family = Magic >>> 8
  private val Chunk = 1 << 18
  private val StreamBytes = 1 << 16

  /** Bytes of the file and its SHA-256. */
  def write(to: OutputStream, part: RankSnapshot): (Long, String) = {
    val digest = MessageDigest.getInstance("SHA-256")
    val counted = new Counting(new DigestOutputStream(to, digest))
    val out = new DataOutputStream(new BufferedOutputStream(counted, StreamBytes))
    out.writeLong(Magic)
    out.writeUTF(part.author.runId)
    out.writeInt(part.author.attempt)
    out.writeLong(part.step)
    out.writeInt(part.rank)
    out.writeInt(part.size)
    out.writeInt(part.group)
    out.writeInt(part.data.batch)
    out.writeLong(part.data.seed)
    out.writeInt(part.data.rows)
    out.writeUTF(part.data.set)
    out.writeDouble(part.epochLoss)
    out.writeInt(part.ranges.size)
    part.ranges.foreach(writeRange(out, _))
    out.flush()
    (counted.bytes, hex(digest))
  }

  /**
   * Reads a file and holds it to what the manifest says of it. No more memory is taken than the manifest's ranges need, and those fit the
   * file's length.
   *
   * @throws IOException
   *   it is not that file; the message says in what
   */
  def read(from: InputStream, record: PartRecord, manifest: CheckpointManifest): RankSnapshot =
    try readWhole(from, record, manifest)
    catch { case _: EOFException => throw new IOException("it ends too early") }

  private def readWhole(from: InputStream, record: PartRecord, manifest: CheckpointManifest): RankSnapshot = {
    val digest = MessageDigest.getInstance("SHA-256")
    val in = new DataInputStream(new DigestInputStream(new BufferedInputStream(from, StreamBytes), digest))
    val found = in.readLong()
    if (found != Magic) throw new IOException(s"it has ${layout(found)}, and this version reads layout ${Magic & 0xff}")
    val author = CheckpointAuthor(in.readUTF(), in.readInt())
    val (step, rank, size, group) = (in.readLong(), in.readInt(), in.readInt(), in.readInt())
    val data = DataPosition(in.readInt(), in.readLong(), in.readInt(), in.readUTF())
    differs("run and attempt", author, manifest.author)
    differs("step", step, manifest.step)
    differs("rank", rank, record.rank)
    differs("number of ranks", size, manifest.size)
    differs("position in the data", data, manifest.data)
    if (group < 0 || group >= size) throw new IOException(s"its group is that of rank $group, of $size ranks")
    val epochLoss = in.readDouble()
    differs("number of ranges", in.readInt(), record.ranges.size)
    val ranges = record.ranges.map(readRange(in, _))
    if (in.read() != -1) throw new IOException("there are bytes after its end")
    differs("SHA-256", hex(digest), record.sha256)
    RankSnapshot(step, rank, size, group, data, epochLoss, ranges, author)
  }

  /** Whether a file begins as one of another version of this layout does. */
  def isOfOtherVersion(from: InputStream): Boolean = {
    val first = from.readNBytes(8)
    first.length == 8 && {
      val magic = ByteBuffer.wrap(first).getLong
      magic != Magic && magic >>> 8 == Family
    }
  }

  private def layout(magic: Long): String =
    if (magic >>> 8 == Family) s"layout ${magic & 0xff} of checkpoints" else "not the beginning of a checkpoint's file"

  private def differs(what: String, found: Any, expected: Any): Unit =
    if (found != expected) throw new IOException(s"its $what is $found, and the manifest says $expected")

  private def writeRange(out: DataOutputStream, range: StateRange): Unit = {
    out.writeUTF(range.name)
    out.writeInt(range.from)
    out.writeInt(range.values.length)
    range.values.grouped(Chunk).foreach { part =>
      val bytes = ByteBuffer.allocate(part.length * 4)
      bytes.asFloatBuffer().put(part)
      out.write(bytes.array)
    }
  }

  private def readRange(in: DataInputStream, expected: PartRange): StateRange = {
    differs("range", PartRange(in.readUTF(), in.readInt(), in.readInt()), expected)
    val values = new Array[Float](expected.length)
    (0 until expected.length by Chunk).foreach { first =>
      val bytes = new Array[Byte](math.min(Chunk, expected.length - first) * 4)
      in.readFully(bytes)
      ByteBuffer.wrap(bytes).asFloatBuffer().get(values, first, bytes.length / 4)
    }
    StateRange(expected.name, expected.from, values)
  }

  private final class Counting(to: OutputStream) extends FilterOutputStream(to) {
    var bytes = 0L
    override def write(byte: Int): Unit = { out.write(byte); bytes += 1 }
    override def write(from: Array[Byte], offset: Int, count: Int): Unit = {
      out.write(from, offset, count); bytes += count
    }
  }

  private def hex(digest: MessageDigest): String = digest.digest().map(byte => f"${byte & 0xff}%02x").mkString
}
