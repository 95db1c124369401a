package sparkdlbench.transport

import java.security.SecureRandom

/**
 * What only the ranks of one run know; made by the driver and handed out inside Spark's own task descriptions, so it is as
 * secret as those (`spark.network.crypto.enabled` or RPC TLS encrypt them).
 *
 * @param key
 *   32 random bytes
 * @param certificate
 *   a PKCS #12 key store with the run's own key and certificate, where a transport asked for one
 */
final class RunSecret(val key: Array[Byte], val certificate: Option[Array[Byte]] = None) extends Serializable {
  override def toString: String = "RunSecret(…)"
}

object RunSecret {
  def random(): RunSecret = new RunSecret(randomBytes(32))

  private[transport] def randomBytes(count: Int): Array[Byte] = {
    val bytes = new Array[Byte](count)
    generator.nextBytes(bytes)
    bytes
  }

  private lazy val generator = new SecureRandom
}
