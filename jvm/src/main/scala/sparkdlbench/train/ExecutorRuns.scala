package sparkdlbench.train

import org.apache.spark.SparkEnv
import org.apache.spark.sparkdlbench.BlockStore
import sparkdlbench.RunFailedException
import sparkdlbench.data.DataSets

import java.util.concurrent.{ConcurrentHashMap, ExecutorService, Executors}
import scala.jdk.CollectionConverters._

/** What one executor holds of one run: the data, shared by its ranks, and the ranks. */
final class ExecutorRun(setup: RunSetup) extends AutoCloseable {
  lazy val data: DataSets = setup.dataSource.open(setup.settings, setup.hadoop.value)
  lazy val blocks: BlockStore = new BlockStore(SparkEnv.get)
  private val ranks = new ConcurrentHashMap[Int, RankState]()

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

  /** Makes the rank's state; one that an earlier attempt left is closed. */
  def start(number: Int): RankState = {
    val state = new RankState(setup, number, this)
    Option(ranks.put(number, state)).foreach(_.close())
    state
  }

  /** Ends one rank of a one-stage run; the last one here ends the run's part in this executor. */
  def stop(number: Int): Unit = {
    Option(ranks.remove(number)).foreach(_.close())
    if (ranks.isEmpty) ExecutorRuns.close(setup.runId)
  }

  override def close(): Unit = {
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
  private val runs = new ConcurrentHashMap[String, ExecutorRun]()

  def open(setup: RunSetup): ExecutorRun = runs.computeIfAbsent(setup.runId, _ => new ExecutorRun(setup))

  def rank(runId: String, number: Int): RankState = Option(runs.get(runId))
    .flatMap(_.rank(number))
    .getOrElse(
      throw new RunFailedException(
        s"Rank $number of run $runId was given to executor ${SparkEnv.get.executorId} on ${SparkEnv.get.blockManager.blockManagerId.host}, " +
          "which does not hold its weights and optimiser state: the executor that did was lost or was busy with other work for longer than spark.locality.wait. Give " +
          "the run executors of its own, raise spark.locality.wait, and start it again."
      )
    )

  def close(runId: String): Unit = Option(runs.remove(runId)).foreach(_.close())
}
