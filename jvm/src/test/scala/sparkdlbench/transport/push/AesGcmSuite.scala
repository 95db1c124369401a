package sparkdlbench.transport.push

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.embedded.EmbeddedChannel
import io.netty.channel._
import org.scalatest.funsuite.AnyFunSuite

import java.io.{ByteArrayOutputStream, IOException}
import java.nio.ByteBuffer
import java.nio.channels.WritableByteChannel
import javax.crypto.spec.{GCMParameterSpec, SecretKeySpec}
import scala.util.Random

/** Messages of AES-GCM held against the JDK's cipher, and the handlers that encrypt a connection by them. */
class AesGcmSuite extends AnyFunSuite {
  private val random = new Random(11)

  private def bytes(count: Int): Array[Byte] = { val made = new Array[Byte](count); random.nextBytes(made); made }
  private def direct(of: Array[Byte]): ByteBuf = Unpooled.directBuffer(math.max(1, of.length)).writeBytes(of)

  private def array(of: ByteBuf): Array[Byte] = {
    val copy = new Array[Byte](of.readableBytes)
    of.getBytes(of.readerIndex, copy)
    copy
  }

  private def needsOpenSsl(): Unit = if (OpenSsl.library.isLeft) cancel(OpenSsl.library.left.toOption.get)

  private def jdk(mode: Int, key: Array[Byte], nonce: Array[Byte]): javax.crypto.Cipher = {
    val cipher = javax.crypto.Cipher.getInstance("AES/GCM/NoPadding")
    cipher.init(mode, new SecretKeySpec(key, "AES"), new GCMParameterSpec(128, nonce))
    cipher
  }

  /** One message, written here by the words of the format alone. */
  private def message(key: Array[Byte], plain: Array[Byte]): Array[Byte] = {
    val segments = plain.grouped(32752).toSeq
    val total = 8L + 1 + key.length + 7 + plain.length + 16 * segments.size
    val length = ByteBuffer.allocate(8).putLong(total).array
    val (salt, prefix) = (bytes(key.length), bytes(7))
    val own = GcmFormat.key(key, salt, length)
    val out = new ByteArrayOutputStream
    out.write(length)
    out.write(1 + key.length + 7)
    out.write(salt)
    out.write(prefix)
    segments.zipWithIndex.foreach { case (segment, number) =>
      val nonce = ByteBuffer.allocate(12).put(prefix).putInt(number)
      nonce.put((if (number == segments.size - 1) 1 else 0).toByte)
      out.write(jdk(javax.crypto.Cipher.ENCRYPT_MODE, own, nonce.array).doFinal(segment))
    }
    out.toByteArray
  }

  /** Texts of the messages in `wire`, and how long they are. */
  private def read(key: Array[Byte], wire: Array[Byte]): (Array[Byte], Seq[Int]) = {
    val out = new ByteArrayOutputStream
    val in = ByteBuffer.wrap(wire)
    var lengths = Seq.empty[Int]
    def next(count: Int): Array[Byte] = { val some = new Array[Byte](count); in.get(some); some }
    while (in.hasRemaining) {
      val before = out.size
      val length = next(8)
      assert(next(1).head == 1 + key.length + 7)
      val own = GcmFormat.key(key, next(key.length), length)
      val prefix = next(7)
      var left = ByteBuffer.wrap(length).getLong().toInt - 8 - 1 - key.length - 7
      var number = 0
      while (left > 0) {
        val segment = next(math.min(left, 32768))
        left -= segment.length
        val nonce = ByteBuffer.allocate(12).put(prefix).putInt(number).put((if (left == 0) 1 else 0).toByte)
        out.write(jdk(javax.crypto.Cipher.DECRYPT_MODE, own, nonce.array).doFinal(segment))
        number += 1
      }
      lengths :+= out.size - before
    }
    (out.toByteArray, lengths)
  }

  /** HKDF by RFC 5869's third and second step over another implementation's test vector (A.1, cut to the key's length). */
  test("a message's key is RFC 5869's") {
    val ikm = Array.fill(22)(0x0b.toByte)
    val salt = (0 to 12).map(_.toByte).toArray
    val info = (0xf0 to 0xf9).map(_.toByte).toArray
    val expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a"
    assert(GcmFormat.key(ikm, salt, info).map(each => f"$each%02x").mkString == expected)
  }

  test("no message's last segment is almost full, and texts are cut without a rest") {
    for (keyBytes <- Seq(16, 32)) {
      val key = new Array[Byte](keyBytes)
      val header = GcmFormat.headerBytes(key)
      val edges = Seq(1L, 32751, 32752, 32753, 2 * 32752L, 31 * 32752L, 32 * 32752L, 1L << 22) ++
        (32752L - header - 1 to 32752L + 1) ++ (10 * 32752L - header - 1 to 10 * 32752L + 1)
      for (size <- edges ++ Seq.fill(500)(1L + random.nextInt(5000000))) {
        var left = size
        while (left > 0) {
          val next = GcmFormat.nextMessage(left, key)
          assert(next > 0 && next <= left, s"$next of $left")
          val last = next % 32752
          assert(last > 0 && last < 32752 - header, s"$next of $left")
          left -= next
        }
      }
    }
  }

  private final class Narrow(most: Int) extends WritableByteChannel {
    val taken = new ByteArrayOutputStream
    override def write(source: ByteBuffer): Int = {
      val count = math.min(most, source.remaining)
      (0 until count).foreach(_ => taken.write(source.get().toInt))
      count
    }
    override def isOpen: Boolean = true
    override def close(): Unit = ()
  }

  test("what is flushed together is encrypted as the JDK does it, whatever the socket takes at once") {
    needsOpenSsl()
    for (keyBytes <- Seq(16, 32); most <- Seq(1 << 20, 5000)) {
      val key = bytes(keyBytes)
      val socket = new Narrow(most)
      val wire = new ChannelOutboundHandlerAdapter {
        override def write(context: ChannelHandlerContext, message: AnyRef, promise: ChannelPromise): Unit =
          message match {
            case region: FileRegion =>
              while (region.transferred() < region.count()) assert(region.transferTo(socket, region.transferred()) > 0)
              region.release()
              promise.setSuccess(): Unit
            case other => promise.setFailure(new IllegalArgumentException(other.toString)): Unit
          }
      }
      val channel = new EmbeddedChannel(wire, new GcmEncryption(key))
      val sent = new ByteArrayOutputStream
      for (size <- Seq(1, 16, 32752, 32753, 300007, 1300000)) {
        val parts =
          Seq(direct(bytes(16)), direct(bytes(size)), Unpooled.wrappedBuffer(bytes(100)), Unpooled.EMPTY_BUFFER)
        parts.foreach(part => sent.write(array(part)))
        val told = parts.map(channel.write(_: AnyRef))
        channel.flush()
        assert(told.forall(_.isSuccess) && parts.take(3).forall(_.refCnt == 0))
      }
      val (plain, lengths) = read(key, socket.taken.toByteArray)
      assert(plain.sameElements(sent.toByteArray))
      assert(lengths.size >= 6 && lengths.forall(_ <= (1 << 20)))
    }
  }

  private def decrypted(channel: EmbeddedChannel): Array[Byte] = {
    val out = new ByteArrayOutputStream
    var next = channel.readInbound[ByteBuf]()
    while (next != null) { out.write(array(next)); next.release(); next = channel.readInbound[ByteBuf]() }
    out.toByteArray
  }

  test("what arrives is decrypted, in whatever pieces it comes, on the heap or not") {
    needsOpenSsl()
    for (keyBytes <- Seq(16, 32); piece <- Seq(1, 40, 32768, 65536, 1 << 22)) {
      val key = bytes(keyBytes)
      val texts = (if (piece < 1000) Seq(1, 100) else Seq(1, 32752, 32753, 700000)).map(bytes)
      val wire = texts.flatMap(message(key, _)).toArray
      val channel = new EmbeddedChannel(new GcmDecryption(key, _ => null))
      wire.grouped(piece).zipWithIndex.foreach { case (some, index) =>
        channel.writeInbound(if (index % 3 == 2) Unpooled.wrappedBuffer(some) else direct(some))
      }
      assert(decrypted(channel).sameElements(texts.flatten), s"pieces of $piece")
    }
  }

  test("a byte that was changed, a message that was cut or moved, are noticed, and nothing follows") {
    needsOpenSsl()
    val key = bytes(16)
    val text = bytes(100000)
    val good = message(key, text)
    val changed = Seq(0, 7, 8, 9, 30, 40, 20000, 32 * 1024 + 50, good.length - 1)
    for (at <- changed) {
      val wire = good.clone()
      wire(at) = (wire(at) ^ 1).toByte
      val channel = new EmbeddedChannel(new GcmDecryption(key, _ => null))
      val failed =
        try { wire.grouped(50000).foreach(some => channel.writeInbound(direct(some))); false }
        catch { case _: IOException => true }
      val passed = decrypted(channel)
      // A length that was made longer waits for what never comes; its key is another one, so nothing passes.
      assert(failed || passed.isEmpty, s"byte $at")
      assert(passed.length < text.length && passed.sameElements(text.take(passed.length)), s"byte $at")
      if (failed) intercept[IOException](channel.writeInbound(direct(good)))
    }
    // The second segment in place of the first.
    val header = 8 + 1 + 16 + 7
    val moved = good.take(header) ++ good.slice(header + 32768, header + 2 * 32768) ++ good.drop(header + 32768)
    val channel = new EmbeddedChannel(new GcmDecryption(key, _ => null))
    intercept[IOException](channel.writeInbound(direct(moved)))
    assert(decrypted(channel).isEmpty)
  }

  test("lengths that cannot be are refused") {
    needsOpenSsl()
    val key = bytes(16)
    for (length <- Seq(0L, -1L, 32L, 47L, 48L, Long.MinValue)) {
      val channel = new EmbeddedChannel(new GcmDecryption(key, _ => null))
      val wire = ByteBuffer.allocate(32).putLong(length).put(24.toByte).put(bytes(23)).array
      assert(intercept[IOException](channel.writeInbound(direct(wire))).getMessage.contains("states"), length.toString)
    }
  }

  /**
   * As a network does with a connection: into what is lent for its bytes, as much as there is at once.
   *
   * @return
   *   whether all of it was taken
   */
  private def arrive(channel: EmbeddedChannel, wire: Array[Byte], least: Int): Boolean = {
    val stream = ByteBuffer.wrap(wire)
    try {
      while (stream.hasRemaining) {
        val lent = channel.pipeline().get(classOf[GcmDecryption]).lend()
        val most = math.min(lent.remaining, stream.remaining)
        val some = if (random.nextInt(3) == 0) most else math.min(most, least + random.nextInt(40000))
        lent.put(stream.slice(stream.position(), some)).flip()
        stream.position(stream.position() + some)
        channel.writeInbound(Unpooled.wrappedBuffer(lent))
      }
      true
    } catch { case _: IOException => false }
  }

  test("what was read to the inbox is decrypted to where it belongs, segment by segment") {
    needsOpenSsl()
    for (keyBytes <- Seq(16, 32); least <- Seq(1, 1000, 200000); _ <- 1 to 3) {
      val key = bytes(keyBytes)
      val texts = Seq(1, 32752, 32753, 4 * 32752, 900000, 40, 1300000).map(bytes)
      val target = ByteBuffer.allocateDirect(texts.map(_.length).sum)
      var placed = 0
      val channel =
        new EmbeddedChannel(new GcmDecryption(key, count => if (count == 32752) target.slice().limit(count) else null))
      channel
        .pipeline()
        .addLast(new ChannelInboundHandlerAdapter {
          override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
            val text = message.asInstanceOf[ByteBuf]
            val count = text.readableBytes
            if (count == 32752) { // lies where it was put, and what follows is put behind it
              assert(OpenSsl.addressOf(text) == OpenSsl.addressOf(target.slice()))
              placed += 1
            } else target.duplicate().put(array(text))
            target.position(target.position() + count)
            text.release(): Unit
          }
        })
      assert(arrive(channel, texts.flatMap(message(key, _)).toArray, least))
      val whole = new Array[Byte](target.capacity)
      target.clear().get(whole)
      assert(!target.hasRemaining && whole.sameElements(texts.flatten))
      assert(placed == texts.map(_.length / 32752).sum)
    }
  }

  test("of a segment that was changed nothing is passed on, wherever it was put, and the inbox takes no more") {
    needsOpenSsl()
    val key = bytes(16)
    val wire = message(key, bytes(300000))
    wire(2 * 32768 + 5000) = (wire(2 * 32768 + 5000) ^ 1).toByte
    var passed = 0
    val channel = new EmbeddedChannel(new GcmDecryption(key, ByteBuffer.allocateDirect(_)))
    channel
      .pipeline()
      .addLast(new ChannelInboundHandlerAdapter {
        override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
          passed += 1
          message.asInstanceOf[ByteBuf].release(): Unit
        }
      })
    assert(!arrive(channel, wire, 1000) && passed == 2)
    assert(channel.pipeline().get(classOf[GcmDecryption]).lend() == null)
    intercept[IOException](channel.writeInbound(direct(message(key, bytes(10)))))
    assert(passed == 2)
  }

  test("a handler that leaves in the middle of what was read ends it") {
    needsOpenSsl()
    val key = bytes(16)
    var passed = 0
    val channel = new EmbeddedChannel(new GcmDecryption(key, _ => null))
    channel
      .pipeline()
      .addLast(new ChannelInboundHandlerAdapter {
        override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
          passed += 1
          message.asInstanceOf[ByteBuf].release()
          channel.pipeline().remove(classOf[GcmDecryption]): Unit
        }
      })
    channel.writeInbound(direct(message(key, bytes(1 << 20))))
    assert(passed == 1)
  }
}
