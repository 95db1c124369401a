package sparkdlbench.transport.tcp

import sparkdlbench.transport.push.StreamId

import java.nio.ByteBuffer
import java.security.{MessageDigest, SecureRandom}
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

/**
 * What the connecting rank says first: who it is, whom it wants, which of how many connections this is, and its nonce.
 *
 * @param stream
 *   its `inbox` is 0 for a probe, which only asks whether the right rank answers here
 */
final case class Hello(stream: StreamId, number: Int, of: Int, nonce: Array[Byte]) {
  def isProbe: Boolean = stream.inbox == 0
}

/**
 * Both ends prove that they know the run's secret before a byte of data, and neither shows it: a challenge and response both
 * ways with HMAC-SHA-256 (RFC 2104; the three passes of ISO/IEC 9798-4, 5.2.2 with its replies bound to both nonces).
 * {{{
 *   client → server   hello (64 bytes, with 32 bytes of nonce c)
 *   server → client   nonce s (32 bytes), HMAC(secret, "server" ‖ hello ‖ s)
 *   client → server   HMAC(secret, "client" ‖ hello ‖ s)
 *   server → client   one byte: accepted
 * }}}
 * Fresh nonces make a recorded exchange worthless; the names of the sides keep an answer from being sent back as a question's.
 */
final class Handshake(secret: Array[Byte]) {
  import Handshake._

  def hello(stream: StreamId, number: Int, of: Int): Array[Byte] = {
    val bytes = ByteBuffer.allocate(HelloBytes)
    bytes.putInt(Magic).putInt(Version).putLong(stream.inbox).putInt(stream.from).putInt(stream.to)
    bytes.putInt(number).putInt(of).put(freshNonce())
    bytes.array
  }

  /** The hello's fields; None for bytes that no rank of this version sends. */
  def read(hello: Array[Byte]): Option[Hello] = {
    val bytes = ByteBuffer.wrap(hello)
    val (magic, version, inbox) = (bytes.getInt, bytes.getInt, bytes.getLong)
    val (from, to, number, of) = (bytes.getInt, bytes.getInt, bytes.getInt, bytes.getInt)
    val nonce = new Array[Byte](NonceBytes)
    bytes.get(nonce)
    val sound = magic == Magic && version == Version && inbox >= 0 && from >= 0 && from < StreamId.MaxFrom &&
      to >= 0 && to < StreamId.MaxTo && of >= 1 && of <= MaxConnections && number >= 0 && number < of
    if (sound) Some(Hello(StreamId(inbox, from, to), number, of, nonce)) else None
  }

  def freshNonce(): Array[Byte] = { val nonce = new Array[Byte](NonceBytes); random.nextBytes(nonce); nonce }

  def serverProof(hello: Array[Byte], nonce: Array[Byte]): Array[Byte] = proof("server", hello, nonce)

  def clientProof(hello: Array[Byte], nonce: Array[Byte]): Array[Byte] = proof("client", hello, nonce)

  /** The accepting side's last word, where it must be proved too. */
  def acceptedProof(hello: Array[Byte], nonce: Array[Byte]): Array[Byte] = proof("accepted", hello, nonce)

  /** A number for the stream that nobody but both sides can know before it is used. */
  def streamNumber(hello: Array[Byte], nonce: Array[Byte]): Long =
    ByteBuffer.wrap(proof("stream", hello, nonce)).getLong

  /** In a time that does not depend on where they differ. */
  def same(one: Array[Byte], other: Array[Byte]): Boolean = MessageDigest.isEqual(one, other)

  private def proof(side: String, hello: Array[Byte], nonce: Array[Byte]): Array[Byte] = {
    val mac = Mac.getInstance(Algorithm)
    mac.init(new SecretKeySpec(secret, Algorithm))
    mac.update(side.getBytes("US-ASCII"))
    mac.update(hello)
    mac.doFinal(nonce)
  }
}

object Handshake {
  val NonceBytes = 32
  val ProofBytes = 32
  val HelloBytes: Int = 4 + 4 + 8 + 4 * 4 + NonceBytes
  val MaxConnections = 64

  /** "SDLT" */
  private val Magic = 0x53444c54
  private val Version = 1
  private val Algorithm = "HmacSHA256"
  private lazy val random = new SecureRandom
}
