package sparkdlbench.transport.push

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.embedded.EmbeddedChannel
import io.netty.channel.{ChannelOutboundHandlerAdapter, ChannelPromise, FileRegion}
import io.netty.handler.codec.UnsupportedMessageTypeException
import org.scalatest.funsuite.AnyFunSuite

import java.io.{ByteArrayOutputStream, IOException}
import java.nio.ByteBuffer
import java.nio.channels.{ClosedChannelException, WritableByteChannel}
import javax.crypto.spec.{IvParameterSpec, SecretKeySpec}
import scala.collection.mutable
import scala.util.Random

/** OpenSSL's key stream held against the JDK's, and the handlers that encrypt a connection by it. */
class AesCtrSuite extends AnyFunSuite {
  private val random = new Random(7)

  private def bytes(count: Int): Array[Byte] = { val made = new Array[Byte](count); random.nextBytes(made); made }

  private def direct(of: Array[Byte]): ByteBuffer = ByteBuffer.allocateDirect(of.length).put(of).flip()

  private def array(of: ByteBuffer): Array[Byte] = {
    val copy = new Array[Byte](of.remaining)
    of.duplicate().get(copy)
    copy
  }

  /** By the JDK, from the beginning of the stream. */
  private def reference(key: Array[Byte], iv: Array[Byte], plain: Array[Byte]): Array[Byte] = {
    val cipher = javax.crypto.Cipher.getInstance("AES/CTR/NoPadding")
    cipher.init(javax.crypto.Cipher.ENCRYPT_MODE, new SecretKeySpec(key, "AES"), new IvParameterSpec(iv))
    cipher.doFinal(plain)
  }

  private def needsOpenSsl(): Unit = {
    if (OpenSsl.library.isLeft) cancel(OpenSsl.library.left.toOption.get)
    assert(OpenSsl.library.toOption.get.startsWith("OpenSSL "))
  }

  test("the bytes are the JDK's, for each size of key, from any place of the stream, in place and elsewhere") {
    needsOpenSsl()
    for (keyBytes <- Seq(16, 24, 32); start <- Seq(0, 1, 15, 16, 17, 4097)) {
      val (key, iv, plain) = (bytes(keyBytes), bytes(16), bytes(start + 70001))
      val expected = reference(key, iv, plain).drop(start)
      val source = direct(plain.drop(start))
      val target = ByteBuffer.allocateDirect(source.remaining)
      val cipher = new AesCtr(key, iv, start.toLong)
      try { // in pieces that end within blocks
        var at = 0
        Seq(1, 15, 16, 4081, source.remaining - 4113).foreach { count =>
          cipher(OpenSsl.addressOf(source) + at, OpenSsl.addressOf(target) + at, count)
          at += count
        }
      } finally cipher.close()
      assert(array(target).sameElements(expected), s"$keyBytes bytes of key from $start on")
      val inPlace = new AesCtr(key, iv, start.toLong)
      try inPlace(OpenSsl.addressOf(source), OpenSsl.addressOf(source), source.remaining)
      finally inPlace.close()
      assert(array(source).sameElements(expected))
    }
  }

  test("a counter that overflows begins again at zero, as the JDK's does") {
    needsOpenSsl()
    val (key, iv) = (bytes(16), Array.fill(16)(0xff.toByte))
    val expected = reference(key, iv, new Array[Byte](64))
    val fromSecond = new AesCtr(key, iv, 16)
    try assert(fromSecond.next().sameElements(expected.slice(16, 32)))
    finally fromSecond.close()
  }

  test("a cipher that is closed, and keys of other sizes, are refused by name; closing twice is none") {
    needsOpenSsl()
    val cipher = new AesCtr(bytes(16), bytes(16), 0)
    cipher.close()
    cipher.close()
    assert(intercept[IOException](cipher.next()).getMessage == "the connection's cipher has been closed")
    assert(intercept[IOException](new AesCtr(bytes(8), bytes(16), 0)).getMessage.contains("not 8"))
    intercept[IllegalArgumentException](new AesCtr(bytes(16), bytes(8), 0))
  }

  /** A socket that takes no more than so many bytes at once. */
  private final class Narrow(most: Int) extends WritableByteChannel {
    val taken = new ByteArrayOutputStream
    var writes = 0
    override def write(source: ByteBuffer): Int = {
      val count = math.min(most, source.remaining)
      (0 until count).foreach(_ => taken.write(source.get().toInt))
      writes += 1
      count
    }
    override def isOpen: Boolean = true
    override def close(): Unit = ()
  }

  /** What is flushed through `CtrEncryption`, as a socket takes it that is full after every write of `most` bytes. */
  private final class Sending(key: Array[Byte], iv: Array[Byte], most: Int) {
    val socket = new Narrow(most)
    val handler = new CtrEncryption(new AesCtr(key, iv, 0))
    private val wire = new ChannelOutboundHandlerAdapter {
      override def write(
          context: io.netty.channel.ChannelHandlerContext,
          message: AnyRef,
          promise: ChannelPromise
      ): Unit =
        message match {
          case region: FileRegion =>
            while (region.transferred() < region.count()) assert(region.transferTo(socket, region.transferred()) > 0)
            assert(region.transferTo(socket, region.transferred()) == 0)
            region.release()
            promise.setSuccess(): Unit
          case other => promise.setFailure(new UnsupportedMessageTypeException(other, classOf[FileRegion])): Unit
        }
    }
    val channel = new EmbeddedChannel(wire, handler)
  }

  test(
    "what is flushed together leaves as one, in pieces, whatever the socket takes at once; each promise is fulfilled"
  ) {
    needsOpenSsl()
    val (key, iv) = (bytes(16), bytes(16))
    for (most <- Seq(1000003, 5000)) {
      val sending = new Sending(key, iv, most)
      val sent = new ByteArrayOutputStream
      val kept = mutable.ArrayBuffer.empty[ByteBuf]
      for (round <- 0 until 3) {
        val header = Unpooled.directBuffer(16).writeBytes(bytes(16))
        val payload = bytes(300007 + round)
        val parts =
          Seq(
            header,
            Unpooled.wrappedBuffer(direct(payload)),
            Unpooled.wrappedBuffer(bytes(100)),
            Unpooled.EMPTY_BUFFER
          )
        parts.foreach { part =>
          val copy = new Array[Byte](part.readableBytes); part.getBytes(0, copy); sent.write(copy)
        }
        kept ++= parts.take(3)
        val told = parts.map(sending.channel.write(_: AnyRef))
        assert(told.forall(!_.isDone) && sending.socket.taken.size < sent.size)
        sending.channel.flush()
        assert(told.forall(_.isSuccess))
      }
      assert(sending.socket.taken.toByteArray.sameElements(reference(key, iv, sent.toByteArray)))
      assert(kept.forall(_.refCnt == 0))
      if (most > CtrEncryption.PieceBytes) assert(sending.socket.writes == 3 * 3) // 300 KB in pieces of 128 KiB
    }
  }

  test("what is not flushed when the connection ends is told so and released; other messages are refused") {
    needsOpenSsl()
    val sending = new Sending(bytes(16), bytes(16), 100)
    val refused = sending.channel.write("text")
    assert(refused.cause.isInstanceOf[UnsupportedMessageTypeException])
    val waiting = Unpooled.directBuffer(8).writeLong(1)
    val told = sending.channel.write(waiting)
    sending.channel.pipeline().remove(sending.handler)
    assert(told.cause.isInstanceOf[ClosedChannelException] && waiting.refCnt == 0)
  }

  test("what arrives is decrypted where it lies; bytes of the heap in a copy") {
    needsOpenSsl()
    val (key, iv, plain) = (bytes(32), bytes(16), bytes(50021))
    val encrypted = reference(key, iv, plain)
    val channel = new EmbeddedChannel(new CtrDecryption(new AesCtr(key, iv, 0)))
    val arrived = new ByteArrayOutputStream
    var at = 0
    for (count <- Seq(1, 20000, 30019, 1)) {
      val piece = encrypted.slice(at, at + count)
      val onHeap = count == 30019
      val message = if (onHeap) Unpooled.wrappedBuffer(piece) else Unpooled.wrappedBuffer(direct(piece))
      channel.writeInbound(message)
      val read = channel.readInbound[ByteBuf]()
      assert((read eq message) != onHeap && (!onHeap || message.refCnt == 0))
      val copy = new Array[Byte](read.readableBytes)
      read.getBytes(read.readerIndex, copy)
      arrived.write(copy)
      at += count
    }
    assert(arrived.toByteArray.sameElements(plain))
  }
}
