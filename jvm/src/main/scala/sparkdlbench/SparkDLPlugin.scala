package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sparkdlbench.ShuffleManagers

import java.util.{Collections, Map => JMap}

/**
 * `spark.plugins=sparkdlbench.SparkDLPlugin`: prepares a session for the `block-stream` transport. On Spark 4.x this alone
 * is enough: the plugin runs before the shuffle manager is made and wraps whichever one the session names. On Spark 3.5 the
 * shuffle manager must be named beside it:
 * {{{
 * spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLShuffleManager
 * spark.driver.extraClassPath=<this jar>
 * spark.executor.extraClassPath=<this jar>
 * }}}
 * A manager of the user's own other than sort: `spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager`
 * and `spark.sparkdl.shuffle.delegate=<its class>`. Without it `block-stream` says what is missing when it connects.
 */
final class SparkDLPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    override def init(context: SparkContext, plugin: PluginContext): JMap[String, String] = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      Collections.emptyMap()
    }
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(plugin: PluginContext, extra: JMap[String, String]): Unit =
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
  }
}
