package sparkdlbench.transport.push

import java.io.IOException
import java.nio.ByteBuffer
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

/**
 * How Spark sends bytes that it encrypts by AES-GCM (`GcmTransportCipher`), in messages of
 *
 *   - 8 bytes: the message's length, these included
 *   - Tink's header of a streaming AEAD (AES-GCM-HKDF): its length (1 byte), a salt as long as the key, 7 bytes of nonces' prefix
 *   - segments of `PlainBytes` of text and a tag; the last may be shorter
 *
 * The message's key is made of the connection's, of the salt and of the 8 bytes (RFC 5869, SHA-256); a segment's nonce is prefix,
 * number (4 bytes) and whether it is the last (1 byte). So segments can be neither changed nor moved, and messages not cut.
 */
private[push] object GcmFormat {
  val LengthBytes = 8
  val TagBytes = 16
  val SegmentBytes: Int = 32 << 10
  val PlainBytes: Int = SegmentBytes - TagBytes
  val PrefixBytes = 7
  val NonceBytes = 12
  private val HalfBytes = 16 << 10
  private val MostBytes = 31L * PlainBytes + HalfBytes
  private val Hash = "HmacSHA256"

  def headerBytes(key: Array[Byte]): Int = 1 + key.length + PrefixBytes

  /** Of a message of so many bytes of text, at least one. */
  def messageBytes(plain: Long, key: Array[Byte]): Long =
    LengthBytes + headerBytes(key) + plain + (plain + PlainBytes - 1) / PlainBytes * TagBytes

  /**
   * Bytes of text of the next message, where so many are to be sent. Releases of Spark differ in the length that they state where a message's
   * last segment is almost full, so none is.
   */
  def nextMessage(left: Long, key: Array[Byte]): Long = {
    val bytes = math.min(left, MostBytes)
    val last = bytes % PlainBytes
    if (last == 0 || last >= PlainBytes - headerBytes(key)) bytes - HalfBytes else bytes
  }

  /** @param length the 8 bytes before the header */
  def key(connection: Array[Byte], salt: Array[Byte], length: Array[Byte]): Array[Byte] = {
    val extracted = hash(salt, connection)
    hash(extracted, length :+ 1.toByte).take(connection.length)
  }

  private def hash(key: Array[Byte], text: Array[Byte]): Array[Byte] = {
    val mac = Mac.getInstance(Hash)
    mac.init(new SecretKeySpec(key, Hash))
    mac.doFinal(text)
  }
}

/**
 * AES in Galois/counter mode (NIST SP 800-38D) by OpenSSL, between places of direct memory. Used by one thread at a time.
 *
 * @param encrypts
 *   false: decrypts
 */
private[push] final class AesGcm(encrypts: Boolean) extends AutoCloseable {
  private var context = LibCrypto.EVP_CIPHER_CTX_new()
  private val scratch = ByteBuffer.allocateDirect(Integer.BYTES)
  private val scratchAt = OpenSsl.addressOf(scratch)
  private val nonce = ByteBuffer.allocateDirect(GcmFormat.NonceBytes)
  private val nonceAt = OpenSsl.addressOf(nonce)
  if (context == 0) throw new IOException("OpenSSL has no memory for a cipher")

  /** A message begins, under this key, of 16 or 32 bytes, and with this prefix of its nonces. */
  def begin(key: Array[Byte], prefix: Array[Byte]): Unit = {
    checkOpen()
    val cipher = AesGcm.cipher(key.length)
    check(
      if (encrypts) LibCrypto.EVP_EncryptInit_ex(context, cipher, 0, key, null)
      else LibCrypto.EVP_DecryptInit_ex(context, cipher, 0, key, null)
    )
    nonce.clear()
    nonce.put(prefix): Unit
  }

  /** The message's segment of this number begins, a text of its own. */
  def segment(number: Int, last: Boolean): Unit = {
    checkOpen()
    nonce.putInt(GcmFormat.PrefixBytes, number).put(GcmFormat.NonceBytes - 1, (if (last) 1 else 0).toByte)
    check(
      if (encrypts) LibCrypto.EVP_EncryptInit_ex(context, 0L, 0L, 0L, nonceAt)
      else LibCrypto.EVP_DecryptInit_ex(context, 0L, 0L, 0L, nonceAt)
    )
  }

  /** More of the text, from one address to another or to the same. */
  def apply(source: Long, target: Long, bytes: Int): Unit = {
    checkOpen()
    check(
      if (encrypts) LibCrypto.EVP_EncryptUpdate(context, target, scratchAt, source, bytes)
      else LibCrypto.EVP_DecryptUpdate(context, target, scratchAt, source, bytes)
    )
  }

  /** The end of a text that was encrypted: writes its tag. */
  def seal(tag: Long): Unit = {
    check(LibCrypto.EVP_EncryptFinal_ex(context, scratchAt, scratchAt))
    check(LibCrypto.EVP_CIPHER_CTX_ctrl(context, AesGcm.GetTag, GcmFormat.TagBytes, tag))
  }

  /** The end of a text that was decrypted: whether it is what was sent. */
  def isGenuine(tag: Long): Boolean = {
    check(LibCrypto.EVP_CIPHER_CTX_ctrl(context, AesGcm.SetTag, GcmFormat.TagBytes, tag))
    LibCrypto.EVP_DecryptFinal_ex(context, scratchAt, scratchAt) == 1
  }

  private def checkOpen(): Unit =
    if (context == 0) throw new IOException("the connection's cipher has been closed")

  private def check(result: Int): Unit =
    if (result != 1) throw new IOException("OpenSSL refused to encrypt: the cipher's state is unknown")

  override def close(): Unit = if (context != 0) {
    LibCrypto.EVP_CIPHER_CTX_free(context)
    context = 0
  }
}

private object AesGcm {

  // Commands of EVP_CIPHER_CTX_ctrl.
  private val GetTag = 0x10
  private val SetTag = 0x11

  private def cipher(keyBytes: Int): Long = keyBytes match {
    case 16 => LibCrypto.EVP_aes_128_gcm()
    case 32 => LibCrypto.EVP_aes_256_gcm()
    case other => throw new IOException(s"a key of AES-GCM has 16 or 32 bytes here, not $other")
  }
}
