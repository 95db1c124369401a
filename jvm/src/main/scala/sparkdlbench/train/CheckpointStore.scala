package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.rank.{CheckpointAuthor, RankSnapshot, Snapshot}

import java.io.IOException
import java.util.Locale
import java.util.concurrent.ConcurrentHashMap
import scala.util.Try

/**
 * Checkpoints in a folder of any Hadoop file system. Each rank writes its values, `step-<steps made>/rank-<r>-of-<N>.<run>-<attempt>`, and then a record of
 * that file. Who finds the records of all N ranks commits the checkpoint: it writes `manifest.json`, last. So no rank waits for another to write one, and a
 * crash at any moment leaves a step with a manifest, which is whole, or one without, which does not count. A reader holds every file to the manifest:
 * run, attempt, step, rank, number of ranks, position in the data, length, SHA-256 and ranges, which cover each vector exactly once.
 */
final class CheckpointStore(private[train] val folder: String, hadoop: Configuration) extends Logging {
  private val files = new CheckpointFolder(new Path(folder), hadoop)

  /** Run and step of checkpoints that `prune` need not look at again. */
  private val foundComplete = ConcurrentHashMap.newKeySet[(String, Long)]()

  def write(snapshot: RankSnapshot): Unit = {
    val (at, author) = (stepFolder(snapshot.step), snapshot.author)
    val name = CheckpointManifest.fileName(snapshot.rank, snapshot.size, author)
    checkOwner(author)
    val (bytes, sha256) = files.write(new Path(at, name))(CheckpointPart.write(_, snapshot))
    val ranges = snapshot.ranges.map(range => PartRange(range.name, range.from, range.values.length))
    val part = PartRecord(snapshot.rank, name, bytes, sha256, ranges)
    val record = CheckpointManifest(author, snapshot.step, snapshot.size, snapshot.data, Seq(part))
    val recordName = CheckpointManifest.recordName(snapshot.rank, snapshot.size, author)
    files.publish(new Path(at, recordName), record.text, recordName)
    commit(record)
  }

  /** Writes the manifest where all ranks' records are there. */
  private def commit(mine: CheckpointManifest): Unit = {
    val at = stepFolder(mine.step)
    // Listed first: a manifest that another rank publishes from now on is whole, and must not be deleted.
    val there = files.names(at)
    val expected = (0 until mine.size).map(CheckpointManifest.recordName(_, mine.size, mine.author))
    val records =
      if (expected.forall(there)) expected.flatMap(name => files.text(new Path(at, name))) else Nil
    if (records.size == mine.size && !manifest(mine.step).exists(isOf(mine, _)))
      CheckpointManifest.merged(records.map(CheckpointManifest.read)) match {
        case Right(whole) =>
          checkOwner(mine.author)
          val beside = s"${CheckpointManifest.File}-${mine.parts.map(_.rank).mkString}-${mine.author.runId}"
          val target = new Path(at, CheckpointManifest.File)
          if (there(CheckpointManifest.File))
            files.delete(target, recursive = false) // damaged, or of a run before
          files.publish(target, whole.text, beside)
        case Left(why) => throw new IOException(s"the parts of the checkpoint after step ${mine.step} do not fit: $why")
      }
  }

  /** A run keeps what an earlier attempt of its own has committed. */
  private def isOf(mine: CheckpointManifest, there: CheckpointManifest): Boolean =
    there.author.runId == mine.author.runId && isThere(there)

  private def checkOwner(author: CheckpointAuthor): Unit =
    CheckpointOwner.read(files).filter(_.runId != author.runId).foreach { other =>
      throw new IOException(s"the folder belongs to run ${other.runId} now (${other.place}), which has taken it over")
    }

  /** Numbers of steps after which there is a checkpoint with a manifest and all files that it lists, newest first. */
  def complete: Seq[Long] = complete(None)

  /** @param runId of the run that wrote them; None: whichever */
  private[train] def complete(runId: Option[String]): Seq[Long] = begun.filter { step =>
    runId.fold(manifest(step).exists(isThere))(isOfRun(_, step))
  }

  private def isOfRun(runId: String, step: Long): Boolean =
    manifest(step).exists(found => found.author.runId == runId && isThere(found))

  private def isThere(found: CheckpointManifest): Boolean = {
    val there = files.entries(stepFolder(found.step))
    found.parts.forall(part => there.get(part.file).contains(part.bytes))
  }

  /** The manifest of a step that can be read and fits it. */
  private def manifest(step: Long): Option[CheckpointManifest] = readManifest(step).toOption

  private def readManifest(step: Long): Either[String, CheckpointManifest] =
    try
      files.text(new Path(stepFolder(step), CheckpointManifest.File)) match {
        case None => Left(withoutManifest(step))
        case Some(text) =>
          val read = CheckpointManifest.read(text)
          read.fault(step).map(why => s"its ${CheckpointManifest.File} is damaged: $why").toLeft(read)
      }
    catch { case cause: IOException => Left(s"its ${CheckpointManifest.File} cannot be used: ${cause.getMessage}") }

  private def withoutManifest(step: Long): String = {
    val at = stepFolder(step)
    val old = files.names(at).filter(CheckpointStore.OldFile.pattern.matcher(_).matches)
    val isOld = old.headOption.exists { name =>
      val stream = files.open(new Path(at, name))
      try CheckpointPart.isOfOtherVersion(stream)
      finally stream.close()
    }
    if (isOld)
      s"it is of an earlier version of sparkdl-bench, whose files do not say which run they belong to: go on from it with that version, or start anew"
    else s"it has no ${CheckpointManifest.File}, so not all ranks have written their files"
  }

  /** Numbers of steps after which a rank has begun to write, newest first. */
  private[train] def begun: Seq[Long] =
    files.names(files.root).toSeq.collect { case CheckpointStore.StepFolder(number) => number.toLong }.sorted.reverse

  /** Reads a complete checkpoint; None when one of its files is damaged or gone. */
  def read(step: Long): Option[Snapshot] = load(step).toOption

  /** Reads a complete checkpoint, or says why it is none. */
  private[train] def load(step: Long): Either[String, Snapshot] = readManifest(step).flatMap { manifest =>
    val there = files.entries(stepFolder(step))
    manifest.parts
      .foldLeft[Either[String, Vector[RankSnapshot]]](Right(Vector.empty)) { (sofar, part) =>
        sofar.flatMap(parts => readPart(manifest, part, there.get(part.file)).map(parts :+ _))
      }
      .map(Snapshot(step, _))
  }

  private def readPart(
      manifest: CheckpointManifest,
      part: PartRecord,
      bytes: Option[Long]
  ): Either[String, RankSnapshot] =
    if (!bytes.contains(part.bytes))
      Left(
        s"file ${part.file} ${bytes.fold("is not there")(found => s"has $found bytes and should have ${part.bytes}")}"
      )
    else
      try {
        val stream = files.open(new Path(stepFolder(manifest.step), part.file))
        try Right(CheckpointPart.read(stream, part, manifest))
        finally stream.close()
      } catch { case cause: IOException => Left(s"file ${part.file} is damaged: ${cause.getMessage}") }

  /**
   * The newest checkpoint, after no more than `atMost` steps, whose files are all there and whole. What it passes over is logged.
   *
   * @param runId
   *   of the run that wrote it; None: whichever
   */
  def newest(atMost: Long, runId: Option[String] = None): Option[Snapshot] =
    complete(runId).iterator
      .filter(_ <= atMost)
      .map { step =>
        val loaded = load(step)
        loaded.left.foreach(why => logWarning(s"The checkpoint after step $step in '$folder' is passed over: $why."))
        loaded
      }
      .collectFirst { case Right(snapshot) => snapshot }

  def newest: Option[Snapshot] = newest(Long.MaxValue)

  /**
   * Removes what is older than the newest `keep` complete checkpoints of a run, of every attempt and rank: all ranks are done with it. A rank calls it after
   * each file of its own, so the rank whose file completes a checkpoint leaves `keep` of them.
   *
   * A checkpoint that was found complete once is not looked at again, so that it costs one listing however many are kept.
   */
  def prune(keep: Int, runId: String): Unit = {
    val steps = begun
    def isComplete(step: Long) = foundComplete.contains(runId -> step) || {
      val is = isOfRun(runId, step)
      if (is) foundComplete.add(runId -> step): Unit
      is
    }
    if (steps.size > keep)
      steps.iterator.filter(isComplete).slice(keep - 1, keep).foreach { oldest =>
        steps.filter(_ < oldest).foreach { old =>
          foundComplete.remove(runId -> old)
          try remove(old)
          catch { case _: IOException => () } // another rank is about it; what should be left goes the next time
        }
      }
  }

  /** The manifest first, so that a crash in between leaves none without its files. */
  private def remove(step: Long): Unit = {
    files.delete(new Path(stepFolder(step), CheckpointManifest.File), recursive = false)
    files.delete(stepFolder(step), recursive = true)
  }

  /**
   * Removes the run's own checkpoints after more than `step` steps, from which it does not go on since they cannot be read. They have manifests,
   * so `commit` would leave them and `prune` would count them. Other runs' stay. No rank may write at the time.
   *
   * @throws sparkdlbench.common.RunFailedException
   *   one is still there
   */
  private[train] def removeAfter(step: Long, runId: String): Unit = {
    def isOwn(later: Long) = manifest(later).exists(_.author.runId == runId)
    begun.filter(later => later > step && isOwn(later)).foreach { later =>
      logWarning(
        s"The checkpoint after step $later in '$folder' is removed: it could not be read by all ranks, and the run goes on from the one after step $step."
      )
      foundComplete.remove(runId -> later)
      val removed = Try(remove(later))
      if (isOwn(later))
        throw new RunFailedException(
          s"The checkpoint after step $later in '$folder' cannot be read by all ranks and cannot be removed either" +
            s"${removed.failed.toOption.fold("")(cause => s": ${cause.getMessage}")}. Allow the session's user to delete files there, or remove that step's " +
            s"folder by hand; the run then goes on from the one after step $step.",
          removed.failed.toOption.orNull
        )
    }
  }

  /** Whether there is a file of rank `rank` of `size`, of whichever checkpoint. */
  private[train] def hasAny(rank: Int, size: Int): Boolean =
    begun.exists(step => files.names(stepFolder(step)).exists(_.startsWith(s"rank-$rank-of-$size.")))

  /** Why each step that has begun is no checkpoint that can be read, newest first. */
  private[train] def refusals: Seq[String] =
    begun.flatMap(step => load(step).left.toOption.map(why => s"after step $step, $why"))

  private def stepFolder(step: Long) = new Path(files.root, "step-%012d".formatLocal(Locale.ROOT, step))
}

object CheckpointStore {
  private val StepFolder = """step-(\d{1,18})""".r
  private val OldFile = """rank-\d+-of-\d+""".r

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
  def require(folder: String, hadoop: Configuration): Snapshot = {
    val store = new CheckpointStore(folder, hadoop)
    store.newest.getOrElse {
      val refused = store.refusals
      throw new ConfigurationException(
        s"There is no complete checkpoint in '$folder' to resume from." +
          (if (refused.isEmpty) "" else s" What is there cannot be used: ${refused.mkString("; ")}.") +
          " Name the folder that checkpoint.dir was set to, or start without --resume."
      )
    }
  }
}
