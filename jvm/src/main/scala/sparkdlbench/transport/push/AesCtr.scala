package sparkdlbench.transport.push

import java.io.IOException
import java.math.BigInteger
import java.nio.ByteBuffer

/**
 * A key stream of AES in counter mode (NIST SP 800-38A, 6.5), made by OpenSSL between places of direct memory: the bytes are those of
 * `AES/CTR/NoPadding` of every other implementation, at the processor's speed and without a copy over the heap. Encrypts and
 * decrypts alike. Used by one thread at a time.
 *
 * @param key
 *   16, 24 or 32 bytes
 * @param iv
 *   the first counter, 16 bytes
 * @param position
 *   bytes of the stream that are used up already
 */
final class AesCtr(key: Array[Byte], iv: Array[Byte], position: Long) extends AutoCloseable {
  private var context = LibCrypto.EVP_CIPHER_CTX_new()
  private val length = ByteBuffer.allocateDirect(Integer.BYTES)
  private val lengthAt = OpenSsl.addressOf(length)
  if (context == 0) throw new IOException("OpenSSL has no memory for a cipher")
  try {
    val counter = AesCtr.counter(iv, position / AesCtr.BlockBytes)
    check(LibCrypto.EVP_EncryptInit_ex(context, AesCtr.cipher(key.length), 0, key, counter))
    val rest = (position % AesCtr.BlockBytes).toInt
    if (rest > 0) { // of a block that is partly used up
      val unused = ByteBuffer.allocateDirect(rest)
      apply(OpenSsl.addressOf(unused), OpenSsl.addressOf(unused), rest)
    }
  } catch { case error: Throwable => close(); throw error }

  /** The next `bytes` bytes, from one address to another or to the same. Throws an IOException after `close`. */
  def apply(source: Long, target: Long, bytes: Int): Unit = if (bytes > 0) {
    if (context == 0) throw new IOException("the connection's cipher has been closed")
    check(LibCrypto.EVP_EncryptUpdate(context, target, lengthAt, source, bytes))
  }

  /** The next block of the key stream itself. */
  def next(): Array[Byte] = {
    val zeros = ByteBuffer.allocateDirect(AesCtr.BlockBytes)
    apply(OpenSsl.addressOf(zeros), OpenSsl.addressOf(zeros), AesCtr.BlockBytes)
    val block = new Array[Byte](AesCtr.BlockBytes)
    zeros.get(block)
    block
  }

  private def check(result: Int): Unit =
    if (result != 1) throw new IOException("OpenSSL refused to encrypt: the cipher's state is unknown")

  override def close(): Unit = if (context != 0) {
    LibCrypto.EVP_CIPHER_CTX_free(context)
    context = 0
  }
}

object AesCtr {
  val BlockBytes = 16

  private def cipher(keyBytes: Int): Long = keyBytes match {
    case 16 => LibCrypto.EVP_aes_128_ctr()
    case 24 => LibCrypto.EVP_aes_192_ctr()
    case 32 => LibCrypto.EVP_aes_256_ctr()
    case other => throw new IOException(s"a key of AES has 16, 24 or 32 bytes, not $other")
  }

  /** `iv`, a number of 128 bits in network order, and `blocks` more. */
  private def counter(iv: Array[Byte], blocks: Long): Array[Byte] = {
    require(iv.length == BlockBytes, s"${iv.length} bytes of counter")
    val sum = new BigInteger(1, iv).add(BigInteger.valueOf(blocks)).toByteArray
    val last = sum.takeRight(BlockBytes) // without the sign's byte, and what overflows
    Array.fill(BlockBytes - last.length)(0.toByte) ++ last
  }
}
