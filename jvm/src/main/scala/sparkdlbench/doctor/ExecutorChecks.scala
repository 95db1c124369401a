package sparkdlbench.doctor

import sparkdlbench.common.Facts

/**
 * What the executors' own accounts tell.
 *
 * @param facts
 *   one or more of each executor
 * @param spark
 *   the driver's version
 * @param build
 *   of the driver's jar
 */
final class ExecutorChecks(facts: Seq[ExecutorFacts], spark: String, build: Map[String, String] = Facts.build) {
  private val executors = facts.groupBy(_.executorId).values.map(_.head).toSeq.sortBy(_.executorId)

  def findings: Seq[Finding] = versions ++ reachability ++ addresses ++ spread ++ engine ++ transport ++ devices

  private def versions: Seq[Finding] = {
    def told(found: Seq[ExecutorFacts], value: ExecutorFacts => String) =
      found.map(each => s"${named(each)} ${value(each)}").mkString(", ")
    val otherSpark = executors.filter(_.spark != spark)
    val otherBuild = executors.filter(each => identity(each.build) != identity(build))
    val sparks =
      if (otherSpark.isEmpty) Nil
      else
        Seq(
          Finding(
            "spark-version",
            s"The driver runs Spark $spark, and others run another: ${told(otherSpark, _.spark)}. Give driver and executors one Spark: the cluster's " +
              "installation, or the pyspark of its version."
          )
        )
    val builds =
      if (otherBuild.isEmpty) Nil
      else
        Seq(
          Finding(
            "jar",
            s"The driver's jar of sparkdl-bench is ${identity(build)}, and others have another: ${told(otherBuild, each => identity(each.build))}. Remove " +
              "the older one from spark.executor.extraClassPath and from Spark's jars folder on those hosts."
          )
        )
    sparks ++ builds
  }

  private def reachability: Seq[Finding] = {
    val failures =
      facts.flatMap(each => each.unreachable.map { case (address, why) => (named(each), address, why) }).distinct
    failures.headOption.toSeq.map { case (who, address, why) =>
      val more = if (failures.size > 1) s" (and ${failures.size - 1} more pairs)" else ""
      Finding(
        "reachability",
        s"$who cannot connect to the block manager at $address: $why$more. Parameters travel there. Open the ports between the executors' hosts " +
          "(spark.blockManager.port fixes the first, spark.port.maxRetries how many follow), or correct the address that the executor goes by " +
          "(SPARK_LOCAL_IP on its host)."
      )
    }
  }

  /** Executors of several machines, some of which go by an address that every machine takes for its own. */
  private def addresses: Seq[Finding] = {
    val loopback = executors.filter(each => each.host == "localhost" || each.host.startsWith("127."))
    if (executors.map(_.machine).distinct.size < 2 || loopback.isEmpty) Nil
    else
      Seq(
        Finding(
          "interfaces",
          s"The executors run on ${executors.map(_.machine).distinct.size} machines, and ${loopback.map(named).mkString(", ")} go by a loopback address, which " +
            "others take for their own. Set SPARK_LOCAL_IP (or SPARK_LOCAL_HOSTNAME) on those hosts to an address that the others reach."
        )
      )
  }

  private def spread: Seq[Finding] = {
    val counts = executors.groupBy(_.machine).values.map(each => (each.head.host, each.size)).toSeq.sortBy(_._2)
    if (counts.size < 2 || counts.last._2 - counts.head._2 < 2) Nil
    else
      Seq(
        Finding(
          "executors-per-host",
          s"The host ${counts.last._1} runs ${counts.last._2} executors and ${counts.head._1} runs ${counts.head._2}. Each step waits for the busiest host. Set " +
            "spark.executor.cores and spark.executor.instances (or spark.cores.max, with spark.deploy.spreadOut=true) so that all hosts run as many."
        )
      )
  }

  private def engine: Seq[Finding] = {
    val failed = executors.filter(_.engine.nonEmpty)
    failed.headOption.toSeq.map { first =>
      Finding(
        "native-libraries",
        s"The engine cannot be loaded in ${failed.map(named).mkString(", ")}. ${first.engine.get} sparkdl-bench jars fetch brings the native libraries of " +
          "libtorch; engine.cache names the folder on the executors' hosts into which they are unpacked."
      )
    }
  }

  private def transport: Seq[Finding] = {
    val failed = executors.filter(_.transport.nonEmpty)
    failed.headOption.toSeq.map { first =>
      Finding(
        "transport",
        s"The run's transport could not connect in ${failed.map(named).mkString(", ")}. ${first.transport.get}"
      )
    }
  }

  private def devices: Seq[Finding] = {
    val missing = executors.filter(_.missingDevices.nonEmpty)
    missing.headOption.toSeq.map { first =>
      Finding(
        "ucx-devices",
        s"UCX_NET_DEVICES of ${missing.map(named).mkString(", ")} names ${first.missingDevices.mkString(", ")}, which is neither a network interface nor an " +
          "InfiniBand device there: UCX would fail, or fall back to another. Set spark.executorEnv.UCX_NET_DEVICES to one of /sys/class/net or " +
          "/sys/class/infiniband (with its port: mlx5_0:1), or take it out."
      )
    }
  }

  private def identity(of: Map[String, String]): String =
    Seq("version", "spark_line", "scala", "commit").flatMap(of.get).mkString(" ")

  private def named(each: ExecutorFacts): String = s"executor ${each.executorId} on ${each.host}"
}
