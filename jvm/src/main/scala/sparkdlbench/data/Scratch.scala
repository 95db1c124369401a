package sparkdlbench.data

import org.apache.spark.SparkEnv

import java.nio.file.{Path, Paths}

/** Room on this process's local disk. */
private[data] object Scratch {

  /** Where Spark keeps its own spilled blocks: what YARN or a worker's environment names, then `spark.local.dir`. */
  def folder: Path = {
    val named = Seq("LOCAL_DIRS", "SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS").flatMap(sys.env.get) ++
      Option(SparkEnv.get).flatMap(_.conf.getOption("spark.local.dir"))
    Paths.get(named.headOption.map(_.split("[,:]").head.trim).filter(_.nonEmpty).getOrElse(sys.props("java.io.tmpdir")))
  }
}
