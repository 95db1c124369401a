package org.apache.spark.sparkdlbench

import org.apache.spark.SparkEnv

import java.nio.file.Path

/** The folders that Spark made for this executor alone, and removes with it. */
object ExecutorFolder {

  /** The first one for blocks. Python workers of the executor find it as the first entry of their environment's SPARK_LOCAL_DIRS. */
  def blocks: Path = SparkEnv.get.blockManager.diskBlockManager.localDirs.head.toPath
}
