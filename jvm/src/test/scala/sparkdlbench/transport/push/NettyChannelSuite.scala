package sparkdlbench.transport.push

import io.netty.buffer.Unpooled
import io.netty.channel.Channel
import io.netty.channel.embedded.EmbeddedChannel
import org.scalatest.funsuite.AnyFunSuite

import java.io.IOException
import java.nio.ByteBuffer
import scala.collection.mutable

/** What every channel over one of Netty's connections keeps count of and tells. */
class NettyChannelSuite extends AnyFunSuite {

  /** Payloads as they are; they leave when the connection is flushed. */
  private final class Plain(connection: Channel, onFailure: Throwable => Unit, onDrained: () => Unit)
      extends NettyChannel(connection, onFailure, onDrained) {
    channel.closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
      closed()
    }

    override def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = {
      checkOpen("it has ended")
      countQueued()
      channel.write(Unpooled.wrappedBuffer(payload)).addListener(done): Unit
    }
    override def framingBytes: Long = 0
    override def finish(): Unit = finishing = true
  }

  private class Fixture {
    val connection = new EmbeddedChannel()
    val failures = mutable.ArrayBuffer.empty[Throwable]
    var drained = 0
    val channel = new Plain(connection, cause => { failures += cause; () }, () => drained += 1)
    def push(): Unit = channel.push(0, 0, ByteBuffer.allocate(4))
    def refusal: String = intercept[IOException](push()).getMessage
  }

  test("payloads may be changed once all of them are written") {
    val one = new Fixture
    import one._
    assert(channel.isDrained && !channel.isFinished && channel.sockets == Seq(connection))
    push()
    push()
    assert(!channel.isDrained && drained == 0)
    connection.flushOutbound()
    assert(channel.isDrained && drained == 2 && failures.isEmpty)
  }

  test("what breaks the connection is told once, and thrown at whoever pushes next") {
    val one = new Fixture
    import one._
    push()
    connection.close()
    assert(failures.map(_.getMessage) == Seq("the connection was closed"))
    assert(channel.isDrained && channel.isFinished && drained > 0)
    assert(refusal == "the connection was closed")
    assert(failures.size == 1)
  }

  test("that the connection is closed in the end is no failure; nothing can be pushed any more") {
    val one = new Fixture
    import one._
    channel.finish()
    assert(refusal == "it has ended" && !channel.isFinished)
    connection.close()
    assert(failures.isEmpty && channel.isFinished && drained > 0)
    val other = new Fixture
    other.channel.abort()
    assert(other.failures.isEmpty && other.channel.isFinished && !other.connection.isOpen)
  }
}
