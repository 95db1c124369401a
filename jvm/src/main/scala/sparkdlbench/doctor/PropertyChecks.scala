package sparkdlbench.doctor

import org.apache.spark.SparkConf
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.train.{SessionCheck, ShuffleManagerCheck}

import java.io.IOException
import java.net.{InetAddress, InetSocketAddress, ServerSocket, URI}
import scala.util.Try

/**
 * What a session's Spark properties tell before it starts.
 *
 * @param conf
 *   the properties, `spark.master` among them
 */
final class PropertyChecks(conf: Map[String, String], settings: Settings) {
  private val master = conf.getOrElse("spark.master", "")
  private val isLocal = master.matches("local(-cluster)?(\\[.*\\])?")

  def findings: Seq[Finding] =
    Finding.of("shuffle-manager")(ShuffleManagerCheck.check(conf)) ++
      Finding.of("dynamic-allocation")(SessionCheck.dynamicAllocation(conf.get)) ++
      Finding.of("batch")(SessionCheck.batch(settings)) ++
      encryption ++ Finding.of("encryption")(SessionCheck.encryption(encrypts, settings)) ++
      ports ++ interfaces ++ cores ++ threads

  private def isOn(key: String): Boolean = conf.get(key).exists(_.trim.equalsIgnoreCase("true"))

  /** False for values that are neither true nor false: with those Spark does not start. */
  private def encrypts: Boolean = Try(SparkFacts.encrypts(new SparkConf(false).setAll(conf))).getOrElse(false)

  /** Spark encrypts nothing between parties that it does not authenticate, and says nothing about it. */
  private def encryption: Seq[Finding] =
    Seq("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
      .filter(key => isOn(key) && !isOn("spark.authenticate"))
      .map { key =>
        Finding(
          "encryption",
          s"$key is true and spark.authenticate is ${conf.getOrElse("spark.authenticate", "not set")}, so Spark would encrypt nothing, without a " +
            "word. Set spark.authenticate=true (and spark.authenticate.secret where the cluster manager does not make one), or take the key out. " +
            "The profile secure (conf/spark/secure.conf) has both."
        )
      }

  /** Fixed ports of the driver that something else holds. */
  private def ports: Seq[Finding] = {
    val retries = conf.get("spark.port.maxRetries").flatMap(text => Try(text.trim.toInt).toOption).getOrElse(16)
    val host = conf.getOrElse("spark.driver.bindAddress", conf.getOrElse("spark.driver.host", ""))
    Seq("spark.driver.port", "spark.driver.blockManager.port", "spark.ui.port")
      .filterNot(key => key == "spark.ui.port" && !conf.get("spark.ui.enabled").forall(_ == "true"))
      .flatMap(key => conf.get(key).flatMap(text => Try(text.trim.toInt).toOption).filter(_ > 0).map(key -> _))
      .filter { case (_, port) => (port to math.min(65535, port + retries)).forall(isTaken(host, _)) }
      .map { case (key, port) =>
        Finding(
          "ports",
          s"$key is $port, and on this host all ports from $port to ${math.min(65535, port + retries)} are in use (spark.port.maxRetries is $retries). " +
            s"End what listens there, give $key another port, or leave it at 0 for any."
        )
      }
  }

  private def isTaken(host: String, port: Int): Boolean = {
    val socket = new ServerSocket()
    try {
      socket.bind(if (host.isEmpty) new InetSocketAddress(port) else new InetSocketAddress(host, port))
      false
    } catch { case _: IOException => true }
    finally socket.close()
  }

  /** A driver that executors of other hosts could not find. */
  private def interfaces: Seq[Finding] = {
    val elsewhere = !isLocal && masterHost.forall(host => !isLoopback(host))
    val named = Seq("spark.driver.host", "spark.driver.bindAddress").flatMap(key => conf.get(key).map(key -> _)) ++
      sys.env.get("SPARK_LOCAL_IP").map("the environment variable SPARK_LOCAL_IP" -> _)
    val wrong = named.filter { case (_, host) => isLoopback(host) }
    if (!elsewhere || master.isEmpty || wrong.isEmpty) Nil
    else
      Seq(
        Finding(
          "interfaces",
          s"The master is $master, and ${wrong.map { case (key, host) => s"$key is $host" }.mkString(" and ")}: executors on other hosts would look " +
            "for the driver on themselves. Set spark.driver.host to an address of this host that they reach (ip -brief address lists them), and take " +
            "the other out."
        )
      )
  }

  private def masterHost: Option[String] =
    Try(new URI(master.stripPrefix("k8s://")).getHost).toOption.flatMap(Option(_))

  private def isLoopback(host: String): Boolean =
    host == "localhost" || host.startsWith("127.") || host == "::1" ||
      (host.matches("[0-9a-fA-F:.]+") && Try(InetAddress.getByName(host).isLoopbackAddress).getOrElse(false))

  /** Executors in which no task would fit. */
  private def cores: Seq[Finding] = {
    val wanted = number("spark.task.cpus", 1)
    val inExecutor = conf.get("spark.executor.cores").flatMap(text => Try(text.trim.toInt).toOption)
    inExecutor.filter(_ < wanted).toSeq.map { has =>
      Finding(
        "slots",
        s"spark.task.cpus is $wanted and spark.executor.cores is $has, so no executor has room for a worker. Set spark.executor.cores to $wanted or " +
          "a multiple of it, or lower spark.task.cpus."
      )
    }
  }

  /** More threads in a worker than cores that Spark gave it. */
  private def threads: Seq[Finding] = {
    val (chosen, cpus) = (settings(RunKeys.threads), number("spark.task.cpus", 1))
    if (chosen <= cpus) Nil
    else
      Seq(
        Finding(
          "blas-threads",
          s"engine.threads is $chosen and spark.task.cpus is $cpus: each worker would compute with more threads than Spark gives it cores, and workers " +
            s"of one host would take cores from each other. Set spark.task.cpus=$chosen, or engine.threads=0 for as many threads as Spark gives cores."
        )
      )
  }

  private def number(key: String, default: Int): Int =
    conf.get(key).flatMap(text => Try(text.trim.toInt).toOption).getOrElse(default)
}
