package sparkdlbench.train

import sparkdlbench.common.{RunFailedException, WriteFailure}
import sparkdlbench.config.{CheckpointKeys, Key}
import sparkdlbench.rank.{CheckpointAuthor, RankSnapshot, StateRange}

import java.util.concurrent.{ExecutionException, Executors, Future, TimeUnit, TimeoutException}

/** The folder that a run keeps its checkpoints in. */
object Checkpointing {

  /** Makes the folder that a run writes to its own, until `release`; driver. */
  def own(setup: RunSetup, application: String): Unit = {
    val (folder, resume) = (setup.settings(CheckpointKeys.folder), setup.settings(CheckpointKeys.resume))
    if (folder.nonEmpty)
      CheckpointOwner.take(
        folder,
        setup.hadoop.value,
        CheckpointOwner.ofThisProcess(setup.runId, application),
        resumes = folder == resume
      )
  }

  def release(setup: RunSetup): Unit = {
    val folder = setup.settings(CheckpointKeys.folder)
    if (folder.nonEmpty) CheckpointOwner.release(folder, setup.hadoop.value, setup.runId)
  }

  /** More than Spark ever makes (`spark.stage.maxConsecutiveAttempts` is 4). */
  private val AttemptsPerSubmission = 10000

  /** The attempts of a run, counted over its submissions; each is after those that began before it. */
  private[train] def attempt(setup: RunSetup, stageAttempt: Int): Int =
    setup.submission * AttemptsPerSubmission + stageAttempt

  def store(setup: RunSetup, folder: Key[String]): Option[CheckpointStore] =
    Some(setup.settings(folder)).filter(_.nonEmpty).map(new CheckpointStore(_, setup.hadoop.value))
}

/**
 * When a rank of a one-stage run takes part in a checkpoint.
 *
 * @param everySteps
 *   the same on all ranks
 * @param clock
 *   for checkpoints by time as well
 */
private[train] final class CheckpointTimes(everySteps: Long, clock: Option[CheckpointClock]) {

  /** The same at every rank, which makes this call once after every step. */
  def due(stepsMade: Long): Boolean = {
    val byTime = clock.exists(_.due(stepsMade))
    byTime || stepsMade % everySteps == 0
  }

  /** Whether the attempt ends at the checkpoint that is due; the same at every rank, after `due`. */
  def ends: Boolean = clock.exists(_.ends)

  /** A checkpoint was made. */
  def restart(): Unit = clock.foreach(_.restart())
}

/**
 * Writes one rank's checkpoints: a copy in memory on the rank's thread, the file on another. A rank never has two under
 * way, so a write that takes longer than the interval slows the training rather than piling up; a write that fails fails
 * the run at the next checkpoint or at the end.
 *
 * @param group
 *   lowest rank of this rank's group
 * @param attempt
 *   counted over the run's submissions
 * @param isKilled
 *   whether the rank's task was asked to end
 * @param parts
 *   number of parts that make a checkpoint; one for each rank where none is given
 */
final class CheckpointWriter(
    setup: RunSetup,
    store: CheckpointStore,
    rank: Int,
    group: Int,
    attempt: Int,
    isKilled: () => Boolean,
    parts: Option[Int] = None
) extends AutoCloseable {
  private val writer = Executors.newSingleThreadExecutor { (task: Runnable) =>
    val thread = new Thread(task, s"sparkdl-checkpoint-${setup.runId}-$rank")
    thread.setDaemon(true)
    thread
  }
  private val size = parts.getOrElse(setup.ranks)
  private var pending: Option[Future[_]] = None
  private var written = 0 // the writer's thread alone

  def write(stepsMade: Long, epochLoss: Double, state: => Seq[StateRange]): Unit = {
    await()
    val author = CheckpointAuthor(setup.runId, attempt)
    val snapshot = RankSnapshot(stepsMade, rank, size, group, setup.dataPosition, epochLoss, state, author)
    val work: Runnable = () => {
      store.write(snapshot)
      written += 1
      if (written == CheckpointWriter.AloneAtMost) checkShared()
      store.prune(setup.settings(CheckpointKeys.keep), setup.runId)
    }
    pending = Some(writer.submit(work))
  }

  /** By now every rank has written one, if all of them see the same folder. */
  private def checkShared(): Unit =
    (0 until size).find(!store.hasAny(_, size)).foreach { missing =>
      throw new java.io.IOException(
        s"after $written checkpoints there is no file of rank $missing in it, so the executors do not share this folder and no checkpoint " +
          "will ever be complete"
      )
    }

  /** Waits for the checkpoint under way. */
  def await(): Unit = {
    pending.foreach { write =>
      def failed(how: String) =
        s"Rank $rank could not write its checkpoint to ${setup.settings(CheckpointKeys.folder)}: $how"
      val end = System.nanoTime() + TimeUnit.MINUTES.toNanos(CheckpointWriter.MinutesAtMost)
      while (!write.isDone && System.nanoTime() < end) {
        if (isKilled()) throw new CancelledException
        try { val _ = write.get(CheckpointWriter.LookMillis, TimeUnit.MILLISECONDS) }
        catch { case _: TimeoutException | _: ExecutionException => () }
      }
      if (!write.isDone)
        throw new RunFailedException(
          failed(s"not done after ${CheckpointWriter.MinutesAtMost} minutes. Set checkpoint.dir to a faster folder.")
        )
      try { val _ = write.get() }
      catch {
        case e: ExecutionException =>
          val remedy = "or set checkpoint.dir to another folder that all executors can write to"
          throw new RunFailedException(failed(WriteFailure.text("it", e.getCause, remedy)), e.getCause)
      }
    }
    pending = None
  }

  override def close(): Unit = writer.shutdownNow()
}

private object CheckpointWriter {
  val MinutesAtMost = 10L
  val LookMillis = 500L

  /** Checkpoints after which a rank without a single file cannot just be slow. */
  val AloneAtMost = 5
}
