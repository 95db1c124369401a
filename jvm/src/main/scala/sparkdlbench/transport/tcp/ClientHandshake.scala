package sparkdlbench.transport.tcp

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.{Channel, ChannelHandlerContext, ChannelInboundHandlerAdapter}
import io.netty.handler.codec.ByteToMessageDecoder
import io.netty.handler.ssl.SslHandshakeCompletionEvent
import io.netty.util.AttributeKey
import io.netty.util.concurrent.Promise

import java.io.IOException
import javax.net.ssl.SSLException

/** The other end closed a connection before it had said who it is: it may do otherwise the next time. */
private[tcp] final class HandshakeRefused(message: String) extends IOException(message)

/**
 * The connecting side of the handshake.
 *
 * @param promise
 *   the connection, when the other end has proved itself and has accepted; or why not
 */
private[tcp] final class ClientHandshake(
    handshake: Handshake,
    hello: Array[Byte],
    endpoint: Endpoint,
    val promise: Promise[Channel]
) extends ByteToMessageDecoder {
  private var proved = false
  private var secured = true

  override def handlerAdded(context: ChannelHandlerContext): Unit =
    secured = context.pipeline().get(classOf[io.netty.handler.ssl.SslHandler]) == null

  override def channelActive(context: ChannelHandlerContext): Unit = if (secured) greet(context)

  override def userEventTriggered(context: ChannelHandlerContext, event: AnyRef): Unit = {
    event match {
      case done: SslHandshakeCompletionEvent =>
        if (done.isSuccess) greet(context) else broken(s"TLS failed: ${done.cause.getMessage}", done.cause)
      case _ =>
    }
    context.fireUserEventTriggered(event): Unit
  }

  private def greet(context: ChannelHandlerContext): Unit =
    context.writeAndFlush(Unpooled.wrappedBuffer(hello)): Unit

  override protected def decode(context: ChannelHandlerContext, in: ByteBuf, out: java.util.List[AnyRef]): Unit =
    if (!proved) {
      if (in.readableBytes >= Handshake.NonceBytes + Handshake.ProofBytes) {
        val nonce = take(in, Handshake.NonceBytes)
        if (handshake.same(take(in, Handshake.ProofBytes), handshake.serverProof(hello, nonce))) {
          proved = true
          context.writeAndFlush(Unpooled.wrappedBuffer(handshake.clientProof(hello, nonce))): Unit
        } else fail("it does not know the run's secret")
      }
    } else if (in.isReadable)
      if (in.readByte() == TcpServer.Accepted) {
        context.pipeline().replace(this, "silence", new Silence)
        promise.trySuccess(context.channel()): Unit
      } else fail("its answer makes no sense")

  override def channelInactive(context: ChannelHandlerContext): Unit =
    ended("it closed the connection: its log says why it refused")

  override def exceptionCaught(context: ChannelHandlerContext, cause: Throwable): Unit = {
    broken(String.valueOf(cause.getMessage), cause)
    context.close(): Unit
  }

  private def broken(why: String, cause: Throwable): Unit = cause match {
    case _: SSLException => fail(why) // which is an IOException as well
    case _: IOException => ended(why)
    case _ => fail(why)
  }

  /** The connection has ended. Before the other end has proved anything, that says nothing of what it thinks of us. */
  private def ended(why: String): Unit =
    if (proved) fail(why) else promise.tryFailure(new HandshakeRefused(refusal(why))): Unit

  private def fail(why: String): Unit = promise.tryFailure(new IOException(refusal(why))): Unit

  private def refusal(why: String) = s"$endpoint is not the rank that was looked for, or would not have us: $why"

  private def take(in: ByteBuf, count: Int): Array[Byte] = {
    val bytes = new Array[Byte](count)
    in.readBytes(bytes)
    bytes
  }

  /** Nothing comes this way any more, for streams go one way, but the word that the other end leaves. */
  private final class Silence extends ChannelInboundHandlerAdapter {
    override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
      val bytes = message.asInstanceOf[ByteBuf]
      if (bytes.readableBytes == 1 && bytes.readByte() == TcpServer.Left)
        context.channel().attr(ClientHandshake.HasLeft).set(java.lang.Boolean.TRUE)
      bytes.release()
      context.close(): Unit
    }
    override def exceptionCaught(context: ChannelHandlerContext, cause: Throwable): Unit = context.close(): Unit
  }
}

private[tcp] object ClientHandshake {

  /** Set where the other end has said that it leaves. */
  val HasLeft: AttributeKey[java.lang.Boolean] = AttributeKey.valueOf("sparkdlbench.tcp.left")
}
