package sparkdlbench.train

import org.apache.spark.SparkEnv
import org.apache.spark.sparkdlbench.BlockStore
import sparkdlbench.common.RunFailedException
import sparkdlbench.data.{DataSets, WeightedRows}
import sparkdlbench.metrics.{ResourceReport, ResourceSampler}
import sparkdlbench.rank.RunSubmission

import java.util.concurrent.{ConcurrentHashMap, ExecutorService, Executors}
import scala.jdk.CollectionConverters._

/** What one executor holds of one run: the data, shared by its ranks, and the ranks. */
final class ExecutorRun(setup: RunSetup) extends AutoCloseable {
  lazy val data: DataSets =
    WeightedRows.counted(setup.dataSource.open(setup.settings, setup.hadoop.value), setup.settings)
  lazy val blocks: BlockStore = new BlockStore(SparkEnv.get)
  private val ranks = new ConcurrentHashMap[Int, RankState]()
  private val sampler = Option(SparkEnv.get)
    // The driver of a local master samples itself already.
    .filter(_.executorId != ExecutorRuns.DriverId && setup.settings(ResourceSampler.hertz) > 0)
    .map { env =>
      val host = env.blockManager.blockManagerId.host
      new ResourceSampler(
        setup.settings(ResourceSampler.hertz),
        ResourceSampler.BatchMillis,
        batch => {
          val report = ResourceReport(setup.runId, env.executorId, host, batch.samples, batch.cost)
          DriverChannel.reportResources(report, awaited = batch.last)
        }
      )
    }

  /** Fetches blocks for the ranks, so that a rank's fetches overlap. */
  val fetchers: ExecutorService = Executors.newFixedThreadPool(
    math.min(4, math.max(1, setup.workers - 1)),
    (task: Runnable) => {
      val thread = new Thread(task, s"sparkdl-fetch-${setup.runId}")
      thread.setDaemon(true)
      thread
    }
  )

  def rank(number: Int): Option[RankState] = Option(ranks.get(number))

  /** Makes and keeps the state of a rank whose tasks come and go; one that an earlier attempt left is closed. */
  def keep(number: Int): RankState = {
    val state = new RankState(setup, number, this)
    Option(ranks.put(number, state)).foreach(_.close())
    state
  }

  override def close(): Unit = {
    sampler.foreach(_.close())
    fetchers.shutdownNow()
    ranks.values.asScala.foreach(_.close())
    ranks.clear()
  }
}

/**
 * The runs of this executor. The only process-wide state of a run: Spark offers tasks of different jobs no other place to
 * keep a rank's weights, data and optimiser state between the two jobs of a step.
 */
object ExecutorRuns {
  private final class Entry(val run: ExecutorRun) { var users: Int = 0 }
  private val runs = new ConcurrentHashMap[RunSubmission, Entry]()

  /** Spark's name of the executor inside a local master's driver. */
  val DriverId = "driver"

  /** The run's part in this executor, made where there is none; it stays until as many `release`s, or `close`. */
  def acquire(setup: RunSetup): ExecutorRun = runs
    .compute(
      setup.submitted,
      (_, found) => {
        val entry = if (found == null) new Entry(new ExecutorRun(setup)) else found
        entry.users += 1
        entry
      }
    )
    .run

  def release(submitted: RunSubmission): Unit = {
    runs.computeIfPresent(
      submitted,
      (_, entry) => {
        entry.users -= 1
        if (entry.users > 0) entry else { entry.run.close(); null }
      }
    )
    ()
  }

  def close(submitted: RunSubmission): Unit = Option(runs.remove(submitted)).foreach(_.run.close())

  /** Drops what earlier submissions of the same run have left here: nobody could ask this executor for it after they had failed. */
  def closeEarlier(submitted: RunSubmission): Unit = runs.keySet.asScala.toSeq
    .filter(each => each.runId == submitted.runId && each.number < submitted.number)
    .foreach(close)

  /** The kept state of a rank. */
  def rank(submitted: RunSubmission, number: Int): RankState = Option(runs.get(submitted))
    .flatMap(_.run.rank(number))
    .getOrElse(
      throw new RunFailedException(
        s"Rank $number of run ${submitted.runId} was given to executor ${SparkEnv.get.executorId} on ${SparkEnv.get.blockManager.blockManagerId.host}, " +
          "which does not hold its weights and optimiser state: the executor that did was lost, or was busy with other work for " +
          "longer than spark.locality.wait. Give the run executors of its own, raise spark.locality.wait, and set checkpoint.dir: with it a run " +
          "goes on from its newest checkpoint."
      )
    )
}
