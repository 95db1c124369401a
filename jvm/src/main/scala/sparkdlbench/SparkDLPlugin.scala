package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sparkdlbench.ShuffleManagers
import sparkdlbench.train.{RankReport, RankReports}

import java.util.{Collections, Map => JMap}

/**
 * `spark.plugins=sparkdlbench.SparkDLPlugin`: prepares a session for the `block-stream` transport and carries the ranks'
 * progress to the driver. On Spark 4.x this alone is enough: the plugin runs before the shuffle manager is made and wraps
 * whichever one the session names. On Spark 3.5 the shuffle manager must be named beside it:
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
      Collections.emptyMap()
    }

    override def receive(message: Any): AnyRef = {
      message match {
        case report: RankReport => RankReports.deliver(report)
        case other =>
          throw new IllegalArgumentException(
            s"The driver was sent a ${other.getClass.getName}, which it does not know."
          )
      }
      null
    }
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(plugin: PluginContext, extra: JMap[String, String]): Unit = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      SparkDLPlugin.executor = plugin
    }

    override def shutdown(): Unit = SparkDLPlugin.executor = null
  }
}

object SparkDLPlugin {
  @volatile private var executor: PluginContext = _

  /**
   * Sends a report from a task to the driver, one way. Reports only feed the progress display (what they hold comes back
   * with the task's result too), so in a session without the plugin they are not sent.
   */
  def report(report: RankReport): Unit = {
    val context = executor
    if (context != null) context.send(report)
  }
}
