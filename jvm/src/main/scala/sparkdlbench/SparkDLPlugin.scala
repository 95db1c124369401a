package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.{ExecutorAddress, ExecutorFolder, ShuffleManagers, TrainingTab}
import sparkdlbench.metrics.{ResourceGauges, ResourceLog, ResourceReport}
import sparkdlbench.train.{DriverBoards, MeetingLeft, MeetingMessage, RankMeetings, RankReport, RankReports}
import sparkdlbench.worker.{DriverLink, Launches, WorkerEndpoint, WorkerFlush, WorkerMessage}

import java.util.{Collections, Map => JMap}
import scala.util.control.NonFatal

/**
 * `spark.plugins=sparkdlbench.SparkDLPlugin`: prepares a session for the `block-stream` transport, lets ranks meet at the
 * driver, and carries their progress there. On Spark 4.x this alone is enough: the plugin runs before the shuffle manager
 * is made and wraps whichever one the session names. On Spark 3.5 the shuffle manager must be named beside it:
 * {{{
 * spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLShuffleManager
 * spark.driver.extraClassPath=<this jar>
 * spark.executor.extraClassPath=<this jar>
 * }}}
 * A manager of the user's own other than sort: `spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager`
 * and `spark.sparkdl.shuffle.delegate=<its class>`. Without all this `block-stream` says what is missing when it connects.
 */
final class SparkDLPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    override def init(context: SparkContext, plugin: PluginContext): JMap[String, String] = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      TrainingTab.attach(context)
      Collections.emptyMap()
    }

    override def receive(message: Any): AnyRef = message match {
      case meeting: MeetingMessage => RankMeetings.answer(meeting)
      case report: RankReport =>
        RankReports.deliver(report)
        null
      case report: ResourceReport =>
        ResourceLog.deliver(report)
        null
      case message: WorkerMessage =>
        Launches.deliver(message)
        null
      case _: WorkerFlush => null // those of one executor come in their order, so what it told before has come
      case other =>
        throw new IllegalArgumentException(
          s"The driver was sent a ${other.getClass.getName}, which it does not know."
        )
    }

    override def registerMetrics(appId: String, plugin: PluginContext): Unit =
      ResourceGauges.register(plugin.metricRegistry)
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(plugin: PluginContext, extra: JMap[String, String]): Unit = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      SparkDLPlugin.executor = plugin
      ResourceGauges.register(plugin.metricRegistry)
    }

    /** Not in `init`, where the executor has no folders yet. */
    override def onTaskStart(): Unit = WorkerDoor.open()

    override def shutdown(): Unit = {
      WorkerDoor.close()
      SparkDLPlugin.executor = null
    }
  }
}

/** This executor's endpoint for Python workers, from its first task to its end. */
private object WorkerDoor extends Logging {
  @volatile private var wasOpened = false
  private var endpoint: Option[WorkerEndpoint] = None

  /** Who needs it finds out that it is not there; a task that does not must not fail. */
  def open(): Unit = if (!wasOpened) synchronized {
    if (!wasOpened)
      try endpoint = Some(WorkerEndpoint.open(ExecutorFolder.blocks, ExecutorAddress.here.host, SparkDLPlugin.link))
      catch {
        case NonFatal(cause) =>
          logWarning(
            "Python workers of this executor cannot use sparkdl_bench.launch: their way to it was not opened.",
            cause
          )
      } finally wasOpened = true
  }

  def close(): Unit = synchronized {
    endpoint.foreach(_.close())
    endpoint = None
    wasOpened = false
  }
}

object SparkDLPlugin {
  @volatile private var executor: PluginContext = _

  /**
   * Sends a report from a task to the driver, one way. Reports only feed the progress display (what they hold comes back
   * with the task's result too) and `start_timeout`, so in a session without the plugin they are not sent. With a local master the
   * driver is here.
   */
  def report(report: RankReport): Unit = if (executor != null) send(report) else RankReports.deliver(report): Unit

  /**
   * Sends what this executor used, likewise; without the plugin only the driver's own use is recorded.
   *
   * @param awaited
   *   returns once the driver has it, and throws where it does not answer within `spark.rpc.askTimeout`. The last report of a run
   *   is: a message one way may reach the driver after the end of the task that sent it, when the run's file is written already
   */
  def reportResources(report: ResourceReport, awaited: Boolean): Unit = if (awaited) ask(report) else send(report)

  /** The driver's boards, where the ranks of all executors meet; None in a session without the plugin, which has no way there. */
  private[sparkdlbench] def boards: Option[DriverBoards] = Option(executor).map { plugin =>
    new DriverBoards {
      override def ask(message: MeetingMessage): Array[String] = plugin.ask(message).asInstanceOf[Array[String]]
      override def tell(message: MeetingLeft): Unit = plugin.send(message)
    }
  }

  /** The way of Python workers to the driver; of an executor that has the plugin. */
  private[sparkdlbench] def link: DriverLink = new DriverLink {
    override def boards: DriverBoards = SparkDLPlugin.boards.getOrElse(
      throw new RunFailedException("This executor is ending: its way to the driver is closed.")
    )
    override def tell(message: WorkerMessage): Unit = send(message)
    override def flush(request: WorkerFlush): Unit = ask(request)
  }

  private def send(message: AnyRef): Unit = {
    val context = executor
    if (context != null) context.send(message)
  }

  private def ask(message: AnyRef): Unit = {
    val context = executor
    if (context != null) context.ask(message): Unit
  }
}
