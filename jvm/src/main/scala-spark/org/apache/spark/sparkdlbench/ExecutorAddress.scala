package org.apache.spark.sparkdlbench

import org.apache.spark.SparkEnv
import sparkdlbench.common.RunFailedException

/**
 * This executor as Spark knows it.
 *
 * @param host
 *   the address that its block-transfer server has
 */
final case class ExecutorAddress(id: String, host: String)

object ExecutorAddress {
  def here: ExecutorAddress = {
    val env = Option(SparkEnv.get).getOrElse(
      throw new RunFailedException("A transport was used outside a running Spark application; connect it in a task.")
    )
    ExecutorAddress(env.executorId, env.blockManager.blockManagerId.host)
  }
}
