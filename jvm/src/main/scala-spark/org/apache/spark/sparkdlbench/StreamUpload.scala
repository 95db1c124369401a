package org.apache.spark.sparkdlbench

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.{Channel, ChannelHandlerContext}
import org.apache.spark.network.buffer.NioManagedBuffer
import org.apache.spark.network.client.{RpcResponseCallback, TransportClient}
import org.apache.spark.network.protocol.UploadStream
import org.apache.spark.network.shuffle.protocol.UploadBlockStream
import org.apache.spark.sparkdlbench.StreamUpload._
import sparkdlbench.transport.push.{Frame, NettyChannel, UploadWindow}

import java.nio.ByteBuffer
import java.util.ArrayList
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

/**
 * Frames as the bodies of a row of block uploads on one connection. An upload's length must be declared when it begins, so
 * the row is cut into uploads of 256 KiB at first and 16 MiB later, wherever in a frame a cut falls; the last one is filled
 * up with a padding frame. The server answers each upload, which is how errors over there come back.
 *
 * What is queued here by the rank's thread is written by the connection's event loop, one task a frame, or at once where the
 * rank runs that loop itself.
 *
 * @param idleMillis
 *   say something this often: Spark closes a connection that is silent while an upload is open
 */
final class StreamUpload(
    client: TransportClient,
    blockId: String,
    metadata: Array[Byte],
    onFailure: Throwable => Unit,
    onDrained: () => Unit,
    idleMillis: Long
) extends NettyChannel(client.getChannel, onFailure, onDrained) {
  private val context = firstPlainHandler(channel)
  private val asRegions = channel.pipeline().get(SaslHandler) != null
  private val answers = new AtomicLong
  private var uploads = 0L
  private var window = UploadWindow.FirstBytes
  private var left = 0L
  private var framing = 0L

  def start(): Unit = {
    val every = idleMillis
    val beat = channel.eventLoop().scheduleAtFixedRate(() => keepAlive(), every, every, TimeUnit.MILLISECONDS)
    channel.closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
      beat.cancel(false); closed()
    }: Unit
  }

  override def encryptFaster(): Option[String] = SparkCiphers.encrypt(channel)

  override def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = synchronized {
    checkOpen("the stream has been ended")
    framing += Frame.HeaderBytes
    if (lane < 0) framing += payload.remaining
    write(frame(lane, sequence, payload.duplicate(), payload.remaining))
  }

  /** The frame's bytes (of the payload as many as are given), with upload headers wherever an upload is full. */
  private def frame(lane: Int, sequence: Long, payload: ByteBuffer, length: Int): ArrayList[ByteBuf] = {
    val parts = new ArrayList[ByteBuf](4)
    cut(Frame.header(channel.alloc(), lane, length, sequence), parts)
    if (payload.hasRemaining) cut(Unpooled.wrappedBuffer(payload), parts)
    parts
  }

  private def cut(data: ByteBuf, parts: ArrayList[ByteBuf]): Unit = {
    if (left == 0) parts.add(beginUpload())
    while (data.readableBytes > left) {
      parts.add(data.readRetainedSlice(left.toInt))
      parts.add(beginUpload())
    }
    left -= data.readableBytes
    parts.add(data)
  }

  /** What `TransportClient.uploadStream` writes before the body; here the body follows piece by piece. */
  private def beginUpload(): ByteBuf = {
    val id = uploads
    val message = new UploadStream(
      id,
      new NioManagedBuffer(new UploadBlockStream(blockId, metadata).toByteBuffer),
      new Length(window)
    )
    client.getHandler.addRpcRequest(id, new Answer(id))
    val bytes = 8 + message.`type`().encodedLength() + message.encodedLength()
    val header = Unpooled.directBuffer(bytes)
    header.writeLong(bytes.toLong)
    message.`type`().encode(header)
    message.encode(header)
    uploads += 1
    framing += bytes
    left = window
    window = UploadWindow.after(window)
    header
  }

  private def write(parts: ArrayList[ByteBuf]): Unit = {
    countQueued()
    val loop = channel.eventLoop()
    if (loop.inEventLoop()) writeNow(parts) else loop.execute(() => writeNow(parts))
  }

  private def writeNow(parts: ArrayList[ByteBuf]): Unit = {
    val last = parts.size - 1
    var i = 0
    while (i < last) { context.write(message(parts.get(i)), context.voidPromise()); i += 1 }
    context.writeAndFlush(message(parts.get(last))).addListener(done): Unit
  }

  private def message(part: ByteBuf): AnyRef = if (asRegions) new BytesRegion(part) else part

  /**
   * Spark closes a connection whose upload is not answered while it sees nothing else on it, and it sees nothing of what is
   * written past its own handlers: so it is told as well.
   */
  private def keepAlive(): Unit = {
    client.getHandler.updateTimeOfLastRequest()
    channel.eventLoop().execute(() => sayNothing())
  }

  /** In the event loop: so it comes between frames, whoever runs that loop by now. */
  private def sayNothing(): Unit = synchronized {
    if (!finishing && !isBroken && allWritten) {
      framing += Frame.HeaderBytes
      write(frame(Frame.PaddingLane, 0, ByteBuffer.allocate(0), 0))
    }
  }

  override def framingBytes: Long = synchronized(framing)

  override def finish(): Unit = synchronized {
    if (!finishing && !isBroken) {
      if (left > 0) pad()
      finishing = true
      if (answers.get == uploads) channel.close(): Unit
    }
  }

  /** Fills the open upload up, so that the server sees its end and not a broken connection. */
  private def pad(): Unit = {
    val whole =
      if (left >= Frame.HeaderBytes) left else left + window // a header that is cut opens another upload
    framing += whole
    val parts =
      frame(Frame.PaddingLane, 0, ByteBuffer.allocate(0), (whole - Frame.HeaderBytes).toInt)
    while (left > 0) cut(Unpooled.wrappedBuffer(zeros(math.min(left, ZeroBytes.toLong).toInt)), parts)
    write(parts)
  }

  private final class Answer(id: Long) extends RpcResponseCallback {
    override def onSuccess(response: ByteBuffer): Unit = {
      answers.incrementAndGet()
      if (finishing && answers.get == uploads) channel.close(): Unit
    }
    override def onFailure(cause: Throwable): Unit = fail(cause)
  }
}

private[sparkdlbench] object StreamUpload {
  val ZeroBytes: Int = 64 << 10
  private val SaslHandler = "saslEncryption"
  private val Zeros = ByteBuffer.allocateDirect(ZeroBytes).asReadOnlyBuffer()

  def zeros(count: Int): ByteBuffer = Zeros.slice(0, count)

  /**
   * Bytes written from here on towards the wire meet only what encrypts them: Spark's message encoders, which come later in
   * the pipeline, have nothing to do with the inside of an upload.
   */
  def firstPlainHandler(channel: Channel): ChannelHandlerContext =
    Seq("chunkedWriter", "encoder").iterator
      .map(channel.pipeline().context(_: String))
      .find(_ != null)
      .getOrElse(
        throw new IllegalStateException(s"Spark's channel pipeline ${channel.pipeline().names()} is not one we know.")
      )

  /** Only says how long the body will be. */
  private final class Length(bytes: Long) extends NioManagedBuffer(ByteBuffer.allocate(0)) {
    override def size(): Long = bytes
  }
}
