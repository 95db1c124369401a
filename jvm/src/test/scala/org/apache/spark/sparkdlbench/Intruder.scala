package org.apache.spark.sparkdlbench

import io.netty.buffer.Unpooled
import org.apache.spark.network.TransportContext
import org.apache.spark.network.buffer.NioManagedBuffer
import org.apache.spark.network.client.{RpcResponseCallback, TransportClientBootstrap, TransportClientFactory}
import org.apache.spark.network.crypto.AuthClientBootstrap
import org.apache.spark.network.netty.SparkTransportConf
import org.apache.spark.network.protocol.UploadStream
import org.apache.spark.network.sasl.SecretKeyHolder
import org.apache.spark.network.server.NoOpRpcHandler
import org.apache.spark.network.shuffle.protocol.UploadBlockStream
import org.apache.spark.network.shuffle.BlockStoreClient
import org.apache.spark.storage.ShuffleBlockId
import org.apache.spark.{SparkConf, SparkEnv}
import sparkdlbench.transport.push.StreamId

import java.nio.ByteBuffer
import java.util.Collections
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import scala.util.Try

/** A client that connects to executors' block-transfer servers with uploads for the reserved shuffle. */
final class Intruder private (factory: TransportClientFactory, own: Boolean) extends AutoCloseable {

  /**
   * Connects, declares an upload of `declared` bytes and sends `body` of them.
   *
   * @return
   *   why it was refused: the server's words, or what became of the connection
   */
  def upload(host: String, port: Int, blockId: String, body: Array[Byte], declared: Long): String = {
    val answers = new LinkedBlockingQueue[String]
    Try(factory.createUnmanagedClient(host, port)).fold(
      error => s"no connection: $error",
      client =>
        try {
          val message = new UploadStream(
            0,
            new NioManagedBuffer(new UploadBlockStream(blockId, SparkBlockStreamNetwork.metadata).toByteBuffer),
            new Intruder.Declared(declared)
          )
          client.getHandler.addRpcRequest(
            0,
            new RpcResponseCallback {
              override def onSuccess(response: ByteBuffer): Unit = answers.add("taken"): Unit
              override def onFailure(cause: Throwable): Unit = answers.add(s"refused: $cause"): Unit
            }
          )
          val header = 8 + message.`type`().encodedLength() + message.encodedLength()
          val bytes = Unpooled.directBuffer(header + body.length)
          bytes.writeLong(header.toLong)
          message.`type`().encode(bytes)
          message.encode(bytes)
          bytes.writeBytes(body)
          StreamUpload.firstPlainHandler(client.getChannel).writeAndFlush(bytes)
          Option(answers.poll(20, TimeUnit.SECONDS)).getOrElse("no answer")
        } finally client.close()
    )
  }

  override def close(): Unit = if (own) factory.close()
}

object Intruder {
  private final class Declared(bytes: Long) extends NioManagedBuffer(ByteBuffer.allocate(0)) {
    override def size(): Long = bytes
  }

  def blockId(stream: StreamId): String = blockId(stream.inbox, stream.ranks)

  def blockId(inbox: Long, ranks: Int): String =
    ShuffleBlockId(SparkBlockStreamNetwork.ReservedShuffle, inbox, ranks).name

  /** Speaks Spark's protocol, but has no secret at all. */
  def withoutSecret(conf: SparkConf): Intruder = withBootstraps(conf, Collections.emptyList())

  /** Authenticates itself as Spark does, with this secret. */
  def withSecret(conf: SparkConf, secret: String): Intruder = {
    val holder = new SecretKeyHolder {
      override def getSaslUser(appId: String): String = "sparkSaslUser"
      override def getSecretKey(appId: String): String = secret
    }
    val transportConf = SparkTransportConf.fromSparkConf(conf, "shuffle", 1)
    withBootstraps(
      conf,
      Collections.singletonList(new AuthClientBootstrap(transportConf, conf.getAppId, holder))
    )
  }

  /** The session's own client, of this driver: whoever has the session's secret. */
  def ofSession: Intruder = {
    val field = classOf[BlockStoreClient].getDeclaredField("clientFactory")
    field.setAccessible(true)
    val factory = field.get(SparkEnv.get.blockManager.blockTransferService).asInstanceOf[TransportClientFactory]
    new Intruder(factory, own = false)
  }

  private def withBootstraps(conf: SparkConf, bootstraps: java.util.List[TransportClientBootstrap]): Intruder = {
    val context = new TransportContext(SparkTransportConf.fromSparkConf(conf, "shuffle", 1), new NoOpRpcHandler)
    new Intruder(context.createClientFactory(bootstraps), own = true)
  }
}
