package sparkdlbench.train

import sparkdlbench.RunFailedException
import sparkdlbench.config.Key

import java.util.concurrent.{ExecutionException, Executors, Future, TimeUnit, TimeoutException}

/** The keys of checkpoints and of what happens after a loss. */
object Checkpointing {
  val folder: Key[String] =
    Key.text("checkpoint.dir", "", "Folder of any Hadoop file system to keep checkpoints in; empty: none are written")
  val every: Key[Long] = Key.long("checkpoint.every", "1000", 1, "Steps between checkpoints")
  val everySeconds: Key[Double] =
    Key.number("checkpoint.every_seconds", "0", 0, "Seconds between checkpoints, by rank 0's clock; 0: by steps alone")
  val keep: Key[Int] = Key.int("checkpoint.keep", "2", 1, "Number of checkpoints kept")
  val resume: Key[String] = Key.text("resume", "", "Folder of checkpoints to go on from; empty: start anew")
  val resubmissions: Key[Int] = Key.int(
    "recovery.resubmissions",
    "5",
    0,
    "How often the driver starts the training again, from its newest checkpoint, after Spark's own retries of the stage have run out"
  )
  val replacementSeconds: Key[Int] = Key.int(
    "recovery.replacement_wait",
    "60",
    1,
    "Longest wait for an executor in place of a lost one, seconds; then training goes on with the workers that are left"
  )
  val keys: Seq[Key[_]] = Seq(folder, every, everySeconds, keep, resume, resubmissions, replacementSeconds)

  def store(setup: RunSetup, folder: Key[String]): Option[CheckpointStore] =
    Some(setup.settings(folder)).filter(_.nonEmpty).map(new CheckpointStore(_, setup.hadoop.value))
}

/**
 * Writes one rank's checkpoints: a copy in memory on the rank's thread, the file on another. A rank never has two under
 * way, so a write that takes longer than the interval slows the training rather than piling up; a write that fails fails
 * the run at the next checkpoint or at the end.
 *
 * @param group
 *   lowest rank of this rank's group
 * @param everySteps
 *   the same on all ranks
 * @param clock
 *   for checkpoints by time as well
 */
final class CheckpointWriter(
    setup: RunSetup,
    store: CheckpointStore,
    rank: Int,
    group: Int,
    everySteps: Long,
    clock: Option[CheckpointClock]
) extends AutoCloseable {
  private val writer = Executors.newSingleThreadExecutor { (task: Runnable) =>
    val thread = new Thread(task, s"sparkdl-checkpoint-${setup.runId}-$rank")
    thread.setDaemon(true)
    thread
  }
  private var pending: Option[Future[_]] = None

  /** The same at every rank, which makes this call once after every step. */
  def due(stepsMade: Long): Boolean = {
    val byTime = clock.exists(_.due(stepsMade))
    byTime || stepsMade % everySteps == 0
  }

  def write(stepsMade: Long, epochLoss: Double, state: => Seq[StateRange]): Unit = {
    await()
    clock.foreach(_.restart())
    val snapshot = RankSnapshot(stepsMade, rank, setup.ranks, group, epochLoss, state)
    val work: Runnable = () => {
      store.write(snapshot)
      // Another rank may still be writing the one before: that one must stay whole until this one is.
      store.prune(rank, setup.ranks, stepsMade, setup.settings(Checkpointing.keep) + 1)
    }
    pending = Some(writer.submit(work))
  }

  /** Waits for the checkpoint under way. */
  def await(): Unit = {
    pending.foreach { write =>
      def failed(how: String, cause: Throwable) = throw new RunFailedException(
        s"Rank $rank could not write its checkpoint to ${setup.settings(Checkpointing.folder)}: $how. Check that executors can write there, " +
          "or set checkpoint.dir to another folder.",
        cause
      )
      try write.get(CheckpointWriter.MinutesAtMost, TimeUnit.MINUTES)
      catch {
        case e: ExecutionException => failed(String.valueOf(e.getCause), e.getCause)
        case e: TimeoutException => failed(s"not done after ${CheckpointWriter.MinutesAtMost} minutes", e)
      }
    }
    pending = None
  }

  override def close(): Unit = writer.shutdownNow()
}

private object CheckpointWriter { val MinutesAtMost = 10L }
