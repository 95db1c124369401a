package sparkdlbench.config

/** The keys of checkpoints and of what happens after a loss; every run has them. */
object CheckpointKeys {
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
  val settleSeconds: Key[Int] = Key.int(
    "elastic.settle",
    "5",
    1,
    "How long the number of slots must be another one before a run with a range of workers changes theirs, seconds"
  )
  val startSeconds: Key[Int] = Key.int(
    "start_timeout",
    "1800",
    1,
    "Longest time from the first rank's start until all have opened their data and are connected, seconds"
  )
  val all: Seq[Key[_]] =
    Seq(folder, every, everySeconds, keep, resume, resubmissions, replacementSeconds, settleSeconds, startSeconds)
}
