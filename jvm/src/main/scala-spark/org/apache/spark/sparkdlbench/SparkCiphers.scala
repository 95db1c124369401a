package org.apache.spark.sparkdlbench

import io.netty.channel.{Channel, ChannelHandler}
import org.apache.commons.crypto.cipher.CryptoCipher
import org.apache.commons.crypto.stream.{CryptoInputStream, CryptoOutputStream}
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.{AesCtr, CtrDecryption, CtrEncryption, GcmDecryption, GcmEncryption, OpenSsl}

import java.nio.ByteBuffer
import java.security.Key
import java.util.Map.Entry
import javax.crypto.spec.IvParameterSpec
import scala.jdk.CollectionConverters._

/**
 * Takes the place of the handlers by which Spark encrypts a connection with AES-CTR or AES-GCM (`spark.network.crypto.enabled`), when its
 * handshake is over. Keys, counters and the bytes on the wire stay Spark's, so the other end need not do the same.
 *
 * Spark's handlers encrypt pieces of 32 KiB that they copy to the heap and back, twice each way; for AES-CTR commons-crypto below them finds
 * no OpenSSL of release 3.
 */
private[sparkdlbench] object SparkCiphers {

  /** Handlers of Spark's that do this: of 3.5.2 and later, and before. */
  private val Ctr = Seq("CtrTransportCipher", "TransportCipher").map("org.apache.spark.network.crypto." + _)
  private val Gcm = Seq("org.apache.spark.network.crypto.GcmTransportCipher")
  private val WaitMillis = 10000L

  /**
   * From now on what is written is encrypted by OpenSSL; before anything has been.
   *
   * @return
   *   who encrypts now; None where Spark does not, by AES-CTR or AES-GCM
   */
  def encrypt(channel: Channel): Option[String] = {
    def by(of: Seq[String], name: String)(ours: ChannelHandler => ChannelHandler): Option[String] =
      find(channel, of, "EncryptionHandler").map { found =>
        OpenSsl.library match {
          case Left(why) => s"Spark's, as $why"
          case Right(library) =>
            val handler = ours(found.getValue)
            inLoop(channel)(channel.pipeline().replace(found.getKey, found.getKey, handler): Unit)
            s"$name by $library"
        }
      }
    by(Ctr, "AES-CTR") { theirs =>
      new CtrEncryption(continuing(of[CryptoOutputStream](theirs, "cos"), classOf[CryptoOutputStream], 0))
    }.orElse(by(Gcm, "AES-GCM")(theirs => new GcmEncryption(gcmKey(theirs))))
  }

  /**
   * From the next read on what arrives is decrypted by OpenSSL, if it is to be found. By the channel's event loop.
   *
   * @param position
   *   bytes that Spark has decrypted so far
   * @param place
   *   where texts whose lengths are known may be put (`GcmDecryption`)
   * @return
   *   false where it has to be asked again after a later read: who has begun a message of AES-GCM decrypts it to its end
   */
  def decrypt(channel: Channel, position: Long, place: Int => ByteBuffer): Boolean = OpenSsl.library.isLeft || {
    find(channel, Ctr, "DecryptionHandler").foreach { found =>
      val stream = of[CryptoInputStream](found.getValue, "cis")
      val ours = continuing(stream, classOf[CryptoInputStream], position)
      channel.pipeline().replace(found.getKey, found.getKey, new CtrDecryption(ours))
    }
    find(channel, Gcm, "DecryptionHandler").forall { found =>
      val theirs = found.getValue
      val isBetween =
        of[Long](theirs, "expectedLength") < 0 && of[ByteBuffer](theirs, "expectedLengthBuffer").position() == 0
      if (isBetween) channel.pipeline().replace(found.getKey, found.getKey, new GcmDecryption(gcmKey(theirs), place))
      isBetween
    }
  }

  private def find(channel: Channel, owners: Seq[String], role: String): Option[Entry[String, ChannelHandler]] =
    channel.pipeline().asScala.find(each => owners.exists(name => each.getValue.getClass.getName == s"$name$$$role"))

  /** Tink's name for what keys are derived from. */
  private def gcmKey(handler: ChannelHandler): Array[Byte] = {
    val streaming = of[AnyRef](handler, "aesGcmHkdfStreaming")
    field[Array[Byte]](streaming.getClass, streaming, "ikm").clone()
  }

  /** A cipher that goes on where this one of Spark's is, which cannot be used any more. */
  private def continuing(stream: AnyRef, owner: Class[_], position: Long): AesCtr = {
    val key = field[Key](owner, stream, "key").getEncoded
    val iv = field[IvParameterSpec](owner, stream, "params").getIV
    val expected = new Array[Byte](AesCtr.BlockBytes)
    field[CryptoCipher](owner, stream, "cipher").update(
      new Array[Byte](AesCtr.BlockBytes),
      0,
      AesCtr.BlockBytes,
      expected,
      0
    )
    val check = new AesCtr(key, iv, position)
    try
      if (!check.next().sameElements(expected))
        throw new RunFailedException(
          s"Spark's cipher of a connection is not where it is expected, $position bytes from its beginning: this Spark's handshake is " +
            "another than that of the releases that are known. Set spark.sparkdl.cipher=spark, so that Spark goes on encrypting itself."
        )
    finally check.close()
    new AesCtr(key, iv, position)
  }

  private def of[T](handler: ChannelHandler, name: String): T = field[T](handler.getClass, handler, name)

  private def field[T](owner: Class[_], of: AnyRef, name: String): T = {
    val found = owner.getDeclaredField(name)
    found.setAccessible(true) // Spark's and commons-crypto's own
    found.get(of).asInstanceOf[T]
  }

  private def inLoop(channel: Channel)(change: => Unit): Unit = {
    val task: Runnable = () => change
    val done = channel.eventLoop().submit(task)
    if (!done.await(WaitMillis)) throw new RunFailedException(s"$channel does not answer")
    if (!done.isSuccess) throw new RunFailedException(s"$channel cannot be encrypted: ${done.cause}", done.cause)
  }
}
