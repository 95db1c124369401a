package sparkdlbench.doctor

import org.apache.spark.SparkEnv
import sparkdlbench.common.{Facts, SparkDLException}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.EngineVariant
import sparkdlbench.model.{LayerSpec, ModelSpec}
import sparkdlbench.transport.{OneStageTransport, RankPlacement, TransportVariant}

import java.io.IOException
import java.net.{InetSocketAddress, Socket}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.util.Try
import scala.util.control.NonFatal

/**
 * What an executor sees.
 *
 * @param machine
 *   tells machines apart, also where they go by one address
 * @param build
 *   of our jar, as `Facts.build`
 * @param unreachable
 *   addresses that no connection came about to, with the reason
 * @param engine
 *   why the engine could not be loaded; None where it could
 * @param missingDevices
 *   what UCX_NET_DEVICES names and the host does not have
 * @param transport
 *   what would keep the run's transport from connecting here; None where nothing would
 */
final case class ExecutorFacts(
    executorId: String,
    host: String,
    machine: String,
    spark: String,
    build: Map[String, String],
    unreachable: Seq[(String, String)],
    engine: Option[String],
    missingDevices: Seq[String],
    transport: Option[String]
)

/** Looks at an executor from inside one of its tasks. */
object ExecutorProbe {
  private val ConnectMillis = 3000

  /** @param addresses `host:port` of block managers to connect to */
  def look(addresses: Seq[String], settings: Settings, around: RankPlacement): ExecutorFacts = {
    val env = SparkEnv.get
    ExecutorFacts(
      env.executorId,
      env.blockManager.blockManagerId.host,
      machine,
      org.apache.spark.SPARK_VERSION,
      Facts.build,
      addresses.flatMap(address => refusal(address).map(address -> _)),
      engine(settings),
      missingDevices(sys.env.get("UCX_NET_DEVICES")),
      transport(settings, around)
    )
  }

  /** Why no connection comes about; None where one does. */
  def refusal(address: String): Option[String] = {
    val (host, port) = address.splitAt(address.lastIndexOf(':'))
    val socket = new Socket()
    try {
      socket.connect(new InetSocketAddress(host, port.drop(1).toInt), ConnectMillis)
      None
    } catch { case error: IOException => Some(error.toString) }
    finally socket.close()
  }

  /** Devices of UCX_NET_DEVICES (`mlx5_0:1,eth0`, `all`) that are neither a network interface nor an InfiniBand device. */
  def missingDevices(named: Option[String]): Seq[String] = named.toSeq
    .flatMap(_.split(','))
    .map(_.trim.stripPrefix("^").takeWhile(_ != ':'))
    .filter(name => name.nonEmpty && name != "all")
    .filterNot(name => Seq("net", "infiniband").exists(kind => Files.exists(Paths.get("/sys/class", kind, name))))

  /** The smallest net in the run's engine: whether its native libraries can be unpacked, linked and called. */
  private def engine(settings: Settings): Option[String] = complaint {
    val linear = LayerSpec("fc1", "linear", Map("in" -> 1.0, "out" -> 2.0), "xavier-uniform")
    val spec = ModelSpec("probe", Seq(1), 2, Seq(linear))
    Variants.find[EngineVariant]("engine", settings(RunKeys.engine)).load(spec, 1, 1, settings).close()
  }

  /** What the run's transport would find when it connects, as far as one process can tell. */
  private def transport(settings: Settings, around: RankPlacement): Option[String] =
    Variants
      .all[TransportVariant]
      .collectFirst { case one: OneStageTransport if one.name == settings(RunKeys.transport) => one }
      .flatMap(one => complaint(one.checkHere(settings, around)))

  /** Why something fails; None where it does not. */
  private def complaint(body: => Unit): Option[String] =
    try {
      body
      None
    } catch {
      case error: SparkDLException => Some(error.getMessage)
      case error: LinkageError => Some(error.toString)
      case NonFatal(error) => Some(error.toString)
    }

  private def machine: String =
    Try(new String(Files.readAllBytes(Paths.get("/proc/sys/kernel/random/boot_id")), UTF_8).trim)
      .getOrElse(java.net.InetAddress.getLocalHost.getHostName)
}
