package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sparkdlbench.{ShuffleManagers, TrainingTab}
import sparkdlbench.metrics.{ResourceGauges, ResourceLog, ResourceReport}
import sparkdlbench.train.{DriverBoards, MeetingLeft, MeetingMessage, RankMeetings, RankReport, RankReports}

import java.util.{Collections, Map => JMap}

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

    override def shutdown(): Unit = SparkDLPlugin.executor = null
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

  private def send(message: AnyRef): Unit = {
    val context = executor
    if (context != null) context.send(message)
  }

  private def ask(message: AnyRef): Unit = {
    val context = executor
    if (context != null) context.ask(message): Unit
  }
}
