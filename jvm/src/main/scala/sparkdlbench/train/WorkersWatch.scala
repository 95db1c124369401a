package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.config.{CheckpointKeys, WorkerRange}

/**
 * Watches, at the driver, whether a run with a range of workers should have another number of them: whether for `elastic.settle` seconds there were
 * slots for more, or no longer for all. An executor that is being decommissioned has none, though its tasks still run.
 *
 * @param fitting
 *   the number that is best now; None where the slots are too few for any
 */
private[train] final class WorkersWatch(
    setup: RunSetup,
    fitting: () => Option[Int],
    nanoTime: () => Long = () => System.nanoTime()
) {
  private val settleNanos = setup.settings(CheckpointKeys.settleSeconds) * 1000000000L
  private var other: Option[Int] = None
  private var since = nanoTime()
  private var lookedAt = since - WorkersWatch.LookNanos

  /** Whether the run should go on with another number. Called as often as one likes; it looks a few times a second at most. */
  def wantsChange(): Boolean = {
    val now = nanoTime()
    if (now - lookedAt >= WorkersWatch.LookNanos) {
      lookedAt = now
      val best = fitting().filter(_ != setup.workers)
      if (best != other) since = now
      other = best
    }
    other.nonEmpty && now - since >= settleNanos
  }
}

private[train] object WorkersWatch {
  private val LookNanos = 250000000L

  /** None for a run with one number of workers. */
  def of(sc: SparkContext, setup: RunSetup): Option[WorkersWatch] =
    setup.range.map(range => new WorkersWatch(setup, () => fitting(sc, setup, range)))

  private def fitting(sc: SparkContext, setup: RunSetup, range: WorkerRange): Option[Int] =
    WorkerNumbers.fitting(setup.settings, range, SparkFacts.slots(sc))
}

/** Which executors got tasks at one moment, to say later which of them came and which left. */
private[train] final class ExecutorsThen(sc: SparkContext) {
  private val before = SparkFacts.taking(sc)
  @volatile private var decommissioned = Set.empty[String]

  /** Called now and then: one that is being decommissioned may be gone when it is asked what has changed. */
  def look(): Unit = decommissioned ++= SparkFacts.living(sc) -- SparkFacts.taking(sc)

  /** What has changed since, in words; empty where nothing has. */
  def changes: String = {
    look()
    val now = SparkFacts.taking(sc)
    val hosts = SparkFacts.known(sc).map(each => each.id -> each.address.take(each.address.lastIndexOf(':'))).toMap
    def named(id: String) = s"executor $id" + hosts.get(id).fold("")(host => s" on $host")
    val came = (now -- before).toSeq.sorted.map(id => s"${named(id)} came")
    val left = (before -- now).toSeq.sorted.map { id =>
      if (decommissioned(id)) s"${named(id)} is decommissioned" else s"${named(id)} is gone"
    }
    (left ++ came).mkString(", ")
  }
}
