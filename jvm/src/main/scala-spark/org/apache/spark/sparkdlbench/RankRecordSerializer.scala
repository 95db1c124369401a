package org.apache.spark.sparkdlbench

import org.apache.spark.serializer.{DeserializationStream, SerializationStream, Serializer, SerializerInstance}

import java.io.{
  ByteArrayInputStream,
  ByteArrayOutputStream,
  DataInputStream,
  DataOutputStream,
  InputStream,
  OutputStream
}
import java.nio.ByteBuffer
import scala.reflect.ClassTag

/**
 * Writes (receiving rank, bytes) as two lengths of 4 bytes and the bytes. Spark's own serialisers would copy large arrays in
 * small blocks (Java) or refuse them (Kryo, over `spark.kryoserializer.buffer.max`).
 */
private[spark] final class RankRecordSerializer extends Serializer with Serializable {
  def newInstance(): SerializerInstance = new RankRecordInstance
  override private[spark] def supportsRelocationOfSerializedObjects: Boolean = true
}

private[spark] object RankRecordSerializer {

  /** Bytes that a record takes beside its own. */
  val Framing = 8
}

private final class RankRecordInstance extends SerializerInstance {
  def serialize[T: ClassTag](value: T): ByteBuffer = {
    val bytes = new ByteArrayOutputStream
    val stream = serializeStream(bytes)
    stream.writeObject(value)
    stream.close()
    ByteBuffer.wrap(bytes.toByteArray)
  }

  def deserialize[T: ClassTag](bytes: ByteBuffer): T = {
    val copy = new Array[Byte](bytes.remaining)
    bytes.duplicate().get(copy)
    deserializeStream(new ByteArrayInputStream(copy)).readObject[T]()
  }

  def deserialize[T: ClassTag](bytes: ByteBuffer, loader: ClassLoader): T = deserialize[T](bytes)
  def serializeStream(stream: OutputStream): SerializationStream = new RankRecordOutput(stream)
  def deserializeStream(stream: InputStream): DeserializationStream = new RankRecordInput(stream)
}

private final class RankRecordOutput(stream: OutputStream) extends SerializationStream {
  private val out = new DataOutputStream(stream)

  override def writeObject[T: ClassTag](value: T): SerializationStream = {
    (value: Any) match {
      case rank: Int => out.writeInt(rank)
      case bytes: Array[Byte] => out.writeInt(bytes.length); out.write(bytes)
      case (rank: Int, bytes: Array[Byte]) => writeObject(rank).writeObject(bytes)
      case other =>
        throw new IllegalArgumentException(
          s"a shuffle among ranks carries (rank, bytes), not ${if (other == null) "null" else other.getClass.getName}"
        )
    }
    this
  }
  override def writeKey[T: ClassTag](key: T): SerializationStream = writeObject(key)
  override def writeValue[T: ClassTag](value: T): SerializationStream = writeObject(value)
  def flush(): Unit = out.flush()
  def close(): Unit = out.close()
}

private final class RankRecordInput(stream: InputStream) extends DeserializationStream {
  private val in = new DataInputStream(stream)

  def readObject[T: ClassTag](): T = (readRank(), readBytes()).asInstanceOf[T]
  override def readKey[T: ClassTag](): T = readRank().asInstanceOf[T]
  override def readValue[T: ClassTag](): T = readBytes().asInstanceOf[T]
  def close(): Unit = in.close()

  /** At the end: an EOFException, which ends Spark's iterators. */
  private def readRank(): Int = in.readInt()

  private def readBytes(): Array[Byte] = {
    val bytes = new Array[Byte](in.readInt())
    in.readFully(bytes)
    bytes
  }
}
