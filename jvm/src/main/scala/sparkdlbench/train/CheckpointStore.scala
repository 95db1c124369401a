package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import sparkdlbench.ConfigurationException
import sparkdlbench.transport.RankGroups

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.nio.ByteBuffer
import java.util.zip.{CRC32C, CheckedInputStream, CheckedOutputStream}

/** Values `from` until `from + values.length` of the vector called `name` (`weights`, `momentum`, `residual`, …). */
final case class StateRange(name: String, from: Int, values: Array[Float])

/**
 * What the rows of a step depend on besides its number: a run that goes on from a checkpoint trains on the rows that come next.
 *
 * @param batch
 *   rows of all workers together
 * @param rows
 *   of the training set
 * @param set
 *   which rows they are, where the source alone does not say (`DataFacts.rowsIdentity`)
 */
final case class DataPosition(batch: Int, seed: Long, rows: Int, set: String = "")

/**
 * One rank's part of a checkpoint: what it answers for, taken after `step` steps were made.
 *
 * @param group
 *   lowest rank of the ranks that summed in memory with it (`RankGroups`)
 * @param epochLoss
 *   sum of the losses of the rank's rows so far in the epoch that `step` is in
 */
final case class RankSnapshot(
    step: Long,
    rank: Int,
    size: Int,
    group: Int,
    data: DataPosition,
    epochLoss: Double,
    ranges: Seq[StateRange]
)

/** A whole checkpoint, the parts of all ranks of the run that wrote it. */
final case class Snapshot(step: Long, parts: Seq[RankSnapshot]) {

  /** The groups of ranks that the order of its sums depended on. */
  def groups: RankGroups = RankGroups.by(parts.map(_.group).toIndexedSeq)

  /** The vector `name`, put together from all ranks' ranges; None when no rank wrote any. */
  def vector(name: String, length: Int): Option[Array[Float]] = {
    val ranges = parts.flatMap(_.ranges).filter(_.name == name)
    if (ranges.isEmpty) None
    else {
      val whole = new Array[Float](length)
      ranges.foreach(range => System.arraycopy(range.values, 0, whole, range.from, range.values.length))
      Some(whole)
    }
  }
}

/**
 * Checkpoints in a folder of any Hadoop file system, one file a rank and step: `step-<steps made>/rank-<r>-of-<N>`. A file
 * appears whole (written beside, then renamed) and ends in a CRC-32C of what it holds; a checkpoint is complete when all N
 * files are there, so no rank waits for another to write one.
 */
final class CheckpointStore(folder: String, hadoop: Configuration) {
  private val root = new Path(folder)
  private lazy val files: FileSystem = root.getFileSystem(hadoop)

  def write(snapshot: RankSnapshot): Unit = {
    val target = path(snapshot.step, snapshot.rank, snapshot.size)
    val partial = new Path(target.getParent, s".${target.getName}.partial")
    val checksum = new CRC32C
    val out = new DataOutputStream(
      new CheckedOutputStream(new java.io.BufferedOutputStream(files.create(partial, true), 1 << 16), checksum)
    )
    try {
      out.writeLong(CheckpointStore.Magic)
      out.writeLong(snapshot.step)
      out.writeInt(snapshot.rank)
      out.writeInt(snapshot.size)
      out.writeInt(snapshot.group)
      out.writeInt(snapshot.data.batch)
      out.writeLong(snapshot.data.seed)
      out.writeInt(snapshot.data.rows)
      out.writeUTF(snapshot.data.set)
      out.writeDouble(snapshot.epochLoss)
      out.writeInt(snapshot.ranges.size)
      snapshot.ranges.foreach(writeRange(out, _))
      out.writeLong(checksum.getValue)
    } finally out.close()
    files.delete(target, false)
    if (!files.rename(partial, target)) throw new IOException(s"cannot rename $partial to $target")
  }

  /** Numbers of steps after which there is a checkpoint with a file of each of its ranks, newest first. */
  def complete: Seq[Long] = begun.filter(step => writers(step).isDefined)

  /** Numbers of steps after which a rank has begun to write, newest first. */
  private[train] def begun: Seq[Long] =
    names(root).collect { case CheckpointStore.StepFolder(number) => number.toLong }.sorted.reverse

  /** What is in a folder; nothing when it is not there, for another rank may remove it at any moment. */
  private def names(folder: Path): Seq[String] =
    try files.listStatus(folder).toSeq.map(_.getPath.getName)
    catch {
      case _: IOException if !files.exists(folder) => Nil
    } // a local file system then says that it may not read it

  /** Reads a complete checkpoint; None when one of its files is damaged or gone. */
  def read(step: Long): Option[Snapshot] =
    try writers(step).map(size => Snapshot(step, (0 until size).map(rank => readRank(path(step, rank, size)))))
    catch { case _: IOException => None }

  /** With how many ranks the checkpoint was written, where all their files are there. */
  private def writers(step: Long): Option[Int] = names(stepFolder(step))
    .collect { case CheckpointStore.RankFile(rank, count) => (rank.toInt, count.toInt) }
    .groupBy(_._2)
    .collectFirst { case (count, found) if found.map(_._1).toSet == (0 until count).toSet => count }

  /** The newest checkpoint, after no more than `atMost` steps, whose files are all there and whole. */
  def newest(atMost: Long): Option[Snapshot] =
    complete.iterator.filter(_ <= atMost).map(read).collectFirst { case Some(snapshot) => snapshot }

  def newest: Option[Snapshot] = newest(Long.MaxValue)

  /**
   * Removes what is older than the newest `keep` complete checkpoints, whoever wrote it: all ranks are done with it. A rank calls it after
   * each file of its own, so the rank whose file completes a checkpoint leaves `keep` of them.
   */
  def prune(keep: Int): Unit =
    complete.drop(keep - 1).headOption.foreach { oldest =>
      begun.filter(_ < oldest).foreach { old =>
        try files.delete(stepFolder(old), true)
        catch { case _: IOException => () } // another rank is about it; what should be left goes the next time
      }
    }

  /** Whether there is a file of rank `rank` of `size`, of whichever checkpoint. */
  private[train] def hasAny(rank: Int, size: Int): Boolean =
    begun.exists(step => names(stepFolder(step)).contains(path(step, rank, size).getName))

  private def stepFolder(step: Long) = new Path(root, f"step-$step%012d")
  private def path(step: Long, rank: Int, size: Int) = new Path(stepFolder(step), s"rank-$rank-of-$size")

  private def writeRange(out: DataOutputStream, range: StateRange): Unit = {
    out.writeUTF(range.name)
    out.writeInt(range.from)
    out.writeInt(range.values.length)
    range.values.grouped(CheckpointStore.Chunk).foreach { part =>
      val bytes = ByteBuffer.allocate(part.length * 4)
      bytes.asFloatBuffer().put(part)
      out.write(bytes.array)
    }
  }

  private def readRank(path: Path): RankSnapshot = {
    val bytes = files.getFileStatus(path).getLen
    val checksum = new CRC32C
    val in = new DataInputStream(
      new CheckedInputStream(new java.io.BufferedInputStream(files.open(path), 1 << 16), checksum)
    )
    try {
      if (in.readLong() != CheckpointStore.Magic) throw new IOException(s"$path is no checkpoint of this version")
      val (step, rank, size, group) = (in.readLong(), in.readInt(), in.readInt(), in.readInt())
      val data = DataPosition(in.readInt(), in.readLong(), in.readInt(), in.readUTF())
      val epochLoss = in.readDouble()
      val count = in.readInt()
      val ranges = (0 until count).map(_ => readRange(in, bytes))
      val expected = checksum.getValue
      if (in.readLong() != expected) throw new IOException(s"$path is damaged: its checksum does not fit")
      RankSnapshot(step, rank, size, group, data, epochLoss, ranges)
    } finally in.close()
  }

  /** @param bytes of the whole file: what a damaged length could ask for must not be taken from memory before the checksum is known */
  private def readRange(in: DataInputStream, bytes: Long): StateRange = {
    val (name, from, length) = (in.readUTF(), in.readInt(), in.readInt())
    if (length < 0 || 4L * length > bytes) throw new IOException(s"a range of $length values in $bytes bytes")
    val values = new Array[Float](length)
    (0 until length by CheckpointStore.Chunk).foreach { first =>
      val bytes = new Array[Byte](math.min(CheckpointStore.Chunk, length - first) * 4)
      in.readFully(bytes)
      ByteBuffer.wrap(bytes).asFloatBuffer().get(values, first, bytes.length / 4)
    }
    StateRange(name, from, values)
  }
}

object CheckpointStore {

  /** "SPDLCKP" and the version of the layout. */
  private val Magic = 0x5350444c434b5003L
  private val Chunk = 1 << 18
  private val StepFolder = """step-(\d+)""".r
  private val RankFile = """rank-(\d+)-of-(\d+)""".r

  /** The complete name of a folder that a user gave: executors have working folders of their own. */
  def named(folder: String, hadoop: Configuration): String =
    try qualified(folder, hadoop).toString
    catch {
      case cause @ (_: IOException | _: IllegalArgumentException) =>
        throw new ConfigurationException(
          s"'$folder' is no folder of any file system that this session knows: ${cause.getMessage}. Set checkpoint.dir and resume to folders " +
            "that all executors can reach, such as hdfs://…/checkpoints.",
          cause
        )
    }

  private def qualified(folder: String, hadoop: Configuration): Path = {
    val path = new Path(folder)
    path.getFileSystem(hadoop).makeQualified(path)
  }

  /** The newest whole checkpoint of a folder that the user named, or what to do about it. */
  def require(folder: String, hadoop: Configuration): Snapshot = new CheckpointStore(folder, hadoop).newest.getOrElse(
    throw new ConfigurationException(
      s"There is no complete checkpoint in '$folder' to resume from. Name the folder that checkpoint.dir was set to, or start without --resume."
    )
  )
}
