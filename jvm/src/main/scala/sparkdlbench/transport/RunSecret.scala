package sparkdlbench.transport

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.SparkFacts

import java.security.SecureRandom
import scala.util.Try

/**
 * What only the ranks of one run know; made by the driver and handed out inside Spark, as a broadcast: blocks that executors fetch from the
 * driver's block manager and from each other's. So it is as secret as those are: with `spark.authenticate` only who has the session's secret
 * gets them, without it anyone who reaches a block manager's port; `spark.network.crypto.enabled` or RPC TLS encrypt them on their way.
 *
 * @param key
 *   32 random bytes
 * @param certificate
 *   a PKCS #12 key store with the run's own key and certificate, where a transport asked for one
 */
final class RunSecret(val key: Array[Byte], val certificate: Option[Array[Byte]] = None) extends Serializable {
  override def toString: String = "RunSecret(…)"
}

object RunSecret extends Logging {
  def random(): RunSecret = new RunSecret(randomBytes(32))

  /** For a transport that proves its peers by it; on the driver. Warns where the session hands it to anybody. */
  private[transport] def proving(transport: String): RunSecret = {
    Option(SparkEnv.get).flatMap(env => exposed(transport, env.conf.getOption)).foreach(why => logWarning(why))
    random()
  }

  /** Why others can learn the secret. @param property a Spark property's value by its name */
  private[transport] def exposed(transport: String, property: String => Option[String]): Option[String] = {
    val oneProcess = property("spark.master").exists(SparkFacts.isLocalMaster)
    if (oneProcess || property("spark.authenticate").exists(text => Try(text.trim.toBoolean).getOrElse(false))) None
    else
      Some(
        s"Transport $transport proves its peers by a secret of the run that Spark hands out, and without spark.authenticate anyone who reaches the port of a " +
          "block manager can ask for it. Set spark.authenticate=true (and spark.authenticate.secret on a standalone cluster) unless you trust the network."
      )
  }

  private[transport] def randomBytes(count: Int): Array[Byte] = {
    val bytes = new Array[Byte](count)
    generator.nextBytes(bytes)
    bytes
  }

  private lazy val generator = new SecureRandom
}
