package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sparkdlbench.{ShuffleManagers, TrainingTab}
import sparkdlbench.metrics.{ResourceGauges, ResourceLog, ResourceReport}
import sparkdlbench.train.{DriverChannel, MeetingMessage, RankMeetings, RankReport, RankReports}

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
      DriverChannel.begin(plugin)
      ResourceGauges.register(plugin.metricRegistry)
    }

    override def shutdown(): Unit = DriverChannel.end()
  }
}
