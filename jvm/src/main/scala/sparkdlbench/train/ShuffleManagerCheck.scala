package sparkdlbench.train

import org.apache.spark.sparkdlbench.{ShuffleManagers, SparkFacts}

import java.io.{File, IOException}
import java.net.URI
import java.util.zip.ZipFile
import scala.util.Try
import sparkdlbench.common.ConfigurationException

/**
 * Whether a session can work with the shuffle manager that its configuration names: class on the driver and on the
 * executors' class path, Spark version, settings; and whether it is the Spark distribution that its configuration is for.
 * Asked before the Spark context starts where that is possible, because a missing class ends the start with no more than a
 * ClassNotFoundException, and on executors with their silent restarts.
 *
 * @param conf
 *   the session's Spark properties
 * @param sparkVersion
 *   such as 3.5.8
 * @param loader
 *   the class loader that will look for the driver's
 * @param executorsRun
 *   true where executors have registered: then they have the class, however it came there
 */
final class ShuffleManagerCheck(
    conf: Map[String, String],
    sparkVersion: String,
    loader: ClassLoader,
    executorsRun: Boolean = false
) {
  private val name = {
    val named = conf.getOrElse(ShuffleManagers.ManagerKey, ShuffleManagers.Sort)
    // Our own wrap the one that the user has chosen.
    if (named == ShuffleManagers.Sorting || named == ShuffleManagers.Delegating)
      conf.getOrElse(ShuffleManagers.DelegateKey, ShuffleManagers.Sort)
    else named
  }
  private val known = KnownShuffleManagers.find(name)
  private val entry = name.replace('.', '/') + ".class"
  private val title = known.fold(name)(manager => s"${manager.title} ($name)")
  private val jars = known.fold("the jar that holds it")(_.jarsFor(sparkVersion))

  /** Throws a ConfigurationException that says what is missing and what to add. */
  def check(): Unit = problem.foreach(text => throw new ConfigurationException(text))

  def problem: Option[String] =
    distribution.orElse {
      if (ShuffleManagers.isSort(name)) None
      else version.orElse(driver).orElse(executors).orElse(settings)
    }

  /** A switch of a Spark that this one is not: nothing here would read it. */
  private def distribution: Option[String] = KnownShuffleManagers.distributions.collectFirst {
    case other if other.on(conf).nonEmpty && !other.supports.exists(sparkVersion.startsWith) =>
      s"${other.on(conf).map(_ + "=true").mkString(" and ")} asks for ${other.title}, which is no shuffle manager but a Spark " +
        s"distribution of its own, made from Spark ${other.supports.map(_ + "x").mkString(", ")}; this is Spark $sparkVersion, which " +
        "does not read the key and would send everything over TCP. What is missing is that distribution on every host, and this package " +
        s"needs a newer Spark than it has. Leave ${other.switches.mkString(" and ")} out (the profile ${other.profile} sets them), or set " +
        "them to false; for RDMA use transport ucx with ucx.libraries."
  }

  private def version: Option[String] = known.filterNot(_.supportsSpark(sparkVersion)).map { manager =>
    s"spark.shuffle.manager names $title, which supports Spark ${manager.supports.map(_ + "x").mkString(", ")}, and this is Spark " +
      s"$sparkVersion. Use one of those versions, another shuffle manager (conf/spark/ has a profile for each known one), or sort."
  }

  private def driver: Option[String] =
    if (loader.getResource(entry) != null) None
    else
      Some(
        s"spark.shuffle.manager names $title, and the driver's class path holds no such class. Add $jars: to spark.jars (--jars) or " +
          s"spark.driver.extraClassPath for the driver, and ${whereExecutorsLook("for the executors")}. $profile"
      )

  private def executors: Option[String] = {
    val master = conf.getOrElse("spark.master", "")
    // Images and archives hold what this host cannot see.
    val unseen = Seq("spark.yarn.archive", "spark.yarn.jars", "spark.kubernetes.container.image").exists(conf.contains)
    if (executorsRun || master.matches("local(\\[.*\\])?") || unseen || inDistribution || paths.exists(mayHold)) None
    else
      Some(
        s"spark.shuffle.manager names $title. The driver has the class and the executors would not: they look for it " +
          s"${whereExecutorsLook("")}, where it is not. Add $jars there. $profile"
      )
  }

  private def settings: Option[String] = known.flatMap { manager =>
    manager.required
      .collectFirst {
        case (key, what) if conf.get(key).forall(_.trim.isEmpty) =>
          s"spark.shuffle.manager names $title, which needs $key: $what. Set it with --set $key=… or in the run's [spark] table. $profile"
      }
      .orElse(manager.fixed.collectFirst {
        case (key, value, why) if !has(key, value) =>
          s"spark.shuffle.manager names $title, which needs $key=$value, because $why; it is ${conf.getOrElse(key, "not set")}. $profile"
      })
  }

  private def has(key: String, value: String): Boolean = conf.get(key) match {
    case Some(set) => set.split(',').map(_.trim).contains(value)
    case None => value == "false"
  }

  private def whereExecutorsLook(whose: String): String =
    if (lateManager) s"in spark.jars, spark.jars.packages or spark.executor.extraClassPath $whose".trim
    else
      s"on spark.executor.extraClassPath $whose".trim +
        " (executors of Spark 3.5 make their shuffle manager before they fetch spark.jars; the path must exist on every host)"

  /** From Spark 4.0 executors fetch jars before they make the shuffle manager. */
  private def lateManager: Boolean = !sparkVersion.matches("[23]\\..*")

  private def profile: String =
    known.fold("")(manager =>
      s"The profile ${manager.profile} (conf/spark/${manager.profile}.conf) lists all that it needs."
    )

  private def paths: Seq[String] = {
    def split(key: String, separator: String) =
      conf.get(key).toSeq.flatMap(_.split(separator)).map(_.trim).filter(_.nonEmpty)
    split("spark.executor.extraClassPath", File.pathSeparator) ++
      (if (lateManager) split("spark.jars", ",") ++ split("spark.jars.packages", ",").map(jarOfPackage) else Nil)
  }

  /** `group:name:version` as the file that Ivy makes of it, which this host may not have yet. */
  private def jarOfPackage(coordinates: String): String = {
    val parts = coordinates.split(':')
    if (parts.length == 3) s"${parts(1)}-${parts(2)}.jar" else coordinates
  }

  /** True where a path holds the class, or may hold it but cannot be read from here. */
  private def mayHold(path: String): Boolean = {
    val file = new File(Try(new URI(path)).toOption.filter(_.getScheme == "file").fold(path)(_.getPath))
    if (file.getName == "*") {
      val inside = Option(file.getParentFile.listFiles).map(_.toSeq)
      inside.forall(_.exists(jar => jar.getName.endsWith(".jar") && holds(jar)))
    } else if (file.isDirectory) new File(file, entry).isFile
    else if (file.isFile) holds(file)
    else known.forall(_.jarName.pattern.matcher(file.getName).matches)
  }

  private def holds(jar: File): Boolean =
    try {
      val archive = new ZipFile(jar)
      try archive.getEntry(entry) != null
      finally archive.close()
    } catch { case _: IOException => false }

  /** True where the class lies among Spark's own jars, which executors have too. */
  private def inDistribution: Boolean =
    Option(loader.getResource(entry)).exists { found =>
      val jar = found.toString.stripPrefix("jar:").split('!').head
      Try(new File(new URI(jar)).getParentFile == SparkFacts.distribution).getOrElse(false)
    }
}

object ShuffleManagerCheck {

  /** With this JVM's Spark and class path. */
  def check(conf: Map[String, String], executorsRun: Boolean = false): Unit = {
    val loader = Option(Thread.currentThread.getContextClassLoader).getOrElse(getClass.getClassLoader)
    new ShuffleManagerCheck(conf, org.apache.spark.SPARK_VERSION, loader, executorsRun).check()
  }
}
