package org.apache.spark.sparkdlbench

import org.apache.spark.network.client.StreamCallbackWithID
import org.apache.spark.storage.{BlockId, ShuffleBlockId}
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.{FrameReader, Mailbox, StreamId}

import java.nio.ByteBuffer

/** Marks a resolver that gives uploads of the reserved shuffle to our mailboxes. */
trait ReceivesStreams

/** Gives the bytes of one upload to the reader of its stream. Runs on Spark's network threads, or the rank's own (`Progress`). */
private[sparkdlbench] final class InboxStream(id: BlockId, stream: StreamId, mailbox: Mailbox)
    extends StreamCallbackWithID {
  private val reader: FrameReader = mailbox.reader(stream.from)
  private val connection = Option(ReceiveInPlace.current)
  reader.beginUpload()
  connection.foreach { one => one.attach(reader, mailbox.cipher); mailbox.arrivesBy(one.channel) }

  override def getID: String = id.name
  override def onData(streamId: String, data: ByteBuffer): Unit = reader.accept(data)
  override def onComplete(streamId: String): Unit = {
    connection.foreach(_.detach())
    reader.endUpload()
  }
  override def onFailure(streamId: String, cause: Throwable): Unit = {
    connection.foreach(_.detach())
    if (!mailbox.hasLeft(stream.from))
      mailbox.fail(
        new RunFailedException(s"the stream from rank ${stream.from} to rank ${stream.to} broke off: $cause", cause)
      )
  }
}

private[sparkdlbench] object InboxStream {

  /** The receiver of an upload, if it is one of ours. */
  def find(id: BlockId): Option[StreamCallbackWithID] = id match {
    case ShuffleBlockId(SparkBlockStreamNetwork.ReservedShuffle, inbox, ranks) =>
      val stream = StreamId(inbox, ranks)
      Some(new InboxStream(id, stream, Mailbox.accept(stream)))
    case _ => None
  }
}
