package sparkdlbench.train

import scala.util.matching.Regex

/**
 * What there is to know of a shuffle manager beside its class. `conf/spark/<profile>.conf` holds its settings.
 *
 * @param managerClass
 *   the values of spark.shuffle.manager that mean it
 * @param supports
 *   the start of the Spark versions that it supports: "3." is all of 3.x
 * @param jars
 *   by start of the Spark version, the most specific first: what to add, as Maven coordinates or in words
 * @param jarName
 *   file names of jars that hold it, for class paths that cannot be read from the driver's host
 * @param required
 *   keys that must be set, and what to
 * @param fixed
 *   keys that must have a value, and why
 */
final case class KnownShuffleManager(
    profile: String,
    title: String,
    managerClass: Regex,
    supports: Seq[String],
    jars: Seq[(String, String)],
    jarName: Regex,
    required: Seq[(String, String)] = Nil,
    fixed: Seq[(String, String, String)] = Nil
) {
  def supportsSpark(version: String): Boolean = supports.exists(version.startsWith)

  /** What to add for a Spark version, or for the nearest thing to it that there is. */
  def jarsFor(version: String): String =
    jars.find(entry => version.startsWith(entry._1)).orElse(jars.headOption).fold("its jar")(_._2)
}

/**
 * A whole Spark, changed inside, instead of a shuffle manager. Stock Spark reads nothing of its switches and would go on over TCP
 * without a word.
 *
 * @param switches
 *   keys that turn it on, where they are true
 * @param supports
 *   the start of the Spark versions that it was made from
 */
final case class KnownDistribution(profile: String, title: String, switches: Seq[String], supports: Seq[String]) {

  /** The switches that a session's properties turn on. */
  def on(conf: Map[String, String]): Seq[String] =
    switches.filter(key => conf.get(key).exists(_.trim.equalsIgnoreCase("true")))
}

/** The only place that knows the shuffle managers of others. Versions and keys are those of their own documentation. */
object KnownShuffleManagers {
  val all: Seq[KnownShuffleManager] = Seq(
    KnownShuffleManager(
      profile = "celeborn",
      title = "Apache Celeborn",
      managerClass = """org\.apache\.spark\.shuffle\.celeborn\.(Spark|Rss)ShuffleManager""".r,
      supports = Seq("2.4.", "3.", "4."),
      jars = Seq(
        "4." -> "org.apache.celeborn:celeborn-client-spark-4-shaded_2.13 of Celeborn 0.6 or later",
        "3." -> "org.apache.celeborn:celeborn-client-spark-3-shaded_2.12:0.5.4"
      ),
      jarName = """celeborn-client-spark-.*\.jar""".r,
      required = Seq("spark.celeborn.master.endpoints" -> "the masters, HOST:9097 joined by commas"),
      fixed =
        Seq(("spark.shuffle.service.enabled", "false", "Spark's own shuffle service knows nothing of Celeborn's data"))
    ),
    KnownShuffleManager(
      profile = "uniffle",
      title = "Apache Uniffle",
      managerClass = """org\.apache\.spark\.shuffle\.(Rss|DelegationRss)ShuffleManager""".r,
      supports = Seq("2.", "3."),
      jars = Seq("3." -> "org.apache.uniffle:rss-client-spark3-shaded:0.9.2"),
      jarName = """rss-client-spark.*\.jar""".r,
      required = Seq("spark.rss.coordinator.quorum" -> "the coordinators, HOST:19999 joined by commas"),
      fixed = Seq(
        (
          "spark.serializer",
          "org.apache.spark.serializer.KryoSerializer",
          "Uniffle needs serialised records that can be moved"
        )
      )
    ),
    KnownShuffleManager(
      profile = "sparkrdma",
      title = "Mellanox SparkRDMA",
      managerClass = """org\.apache\.spark\.shuffle\.rdma\.RdmaShuffleManager""".r,
      supports = Seq("2.0.", "2.1.", "2.2.", "2.3.", "2.4."),
      jars = Seq(
        "2." -> "spark-rdma-3.1-for-spark-<version>-jar-with-dependencies.jar and DiSNI's libdisni.so on java.library.path"
      ),
      jarName = """spark-rdma-.*\.jar""".r
    ),
    KnownShuffleManager(
      profile = "sparkucx", // NVIDIA's fork has the same class; its profile is sparkucx-nvidia
      title = "SparkUCX",
      managerClass = """org\.apache\.spark\.shuffle\.UcxShuffleManager""".r,
      supports = Seq("2.3.", "2.4.", "3.0.", "3.1."),
      jars = Seq(
        "" -> ("openucx's spark-ucx-1.0-for-spark-<version>-jar-with-dependencies.jar or NVIDIA's " +
          "ucx-spark-1.1-for-spark-<version>-jar-with-dependencies.jar")
      ),
      jarName = """(spark-ucx|ucx-spark)-.*\.jar""".r
    ),
    KnownShuffleManager(
      profile = "rapids",
      title = "RAPIDS accelerator for Apache Spark",
      managerClass = """com\.nvidia\.spark\.rapids\.spark\w+\.RapidsShuffleManager""".r,
      supports = Seq("3.2.", "3.3.", "3.4.", "3.5.", "4.0."),
      jars = Seq(
        "4." -> "com.nvidia:rapids-4-spark_2.13 of a release that lists this Spark",
        "3." -> "com.nvidia:rapids-4-spark_2.12"
      ),
      jarName = """rapids-4-spark_.*\.jar""".r,
      fixed = Seq(("spark.plugins", "com.nvidia.spark.SQLPlugin", "its shuffle manager works only beside its plugin"))
    )
  )

  val distributions: Seq[KnownDistribution] = Seq(
    KnownDistribution(
      profile = "osu-rdma-spark",
      title = "OSU's RDMA-Spark",
      switches = Seq("spark.ib.enabled", "spark.roce.enabled"),
      supports = Seq("2.1.")
    )
  )

  /** The one that a value of spark.shuffle.manager means. */
  def find(managerClass: String): Option[KnownShuffleManager] =
    all.find(_.managerClass.pattern.matcher(managerClass).matches)
}
