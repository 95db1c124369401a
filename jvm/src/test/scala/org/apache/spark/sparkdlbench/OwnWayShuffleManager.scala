package org.apache.spark.sparkdlbench

import org.apache.spark.scheduler.MapStatus
import org.apache.spark.serializer.SerializerInstance
import org.apache.spark.shuffle._
import org.apache.spark.storage.BlockManagerId
import org.apache.spark.{ShuffleDependency, SparkConf, SparkEnv, TaskContext}
import org.apache.spark.network.buffer.ManagedBuffer
import org.apache.spark.network.shuffle.MergedBlockMeta
import org.apache.spark.storage.{BlockId, ShuffleMergedBlockId}

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, EOFException}
import java.net.{InetAddress, ServerSocket, Socket}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * A shuffle manager that moves the bytes in a way of its own and counts them: map outputs stay in a store of the executor's,
 * which a TCP server of the manager's own serves; no shuffle file, no block transfer of Spark's. Where the server listens
 * stands in the map status, as the topology of the executor's block manager.
 */
private[spark] class OwnWayShuffleManager(conf: SparkConf, isDriver: Boolean) extends ShuffleManager {
  private val store = new OwnStore
  private lazy val server = new OwnServer(store, "127.0.0.1")

  override def registerShuffle[K, V, C](id: Int, dependency: ShuffleDependency[K, V, C]): ShuffleHandle =
    new BaseShuffleHandle(id, dependency)

  override def getWriter[K, V](
      handle: ShuffleHandle,
      mapId: Long,
      context: TaskContext,
      metrics: ShuffleWriteMetricsReporter
  ): ShuffleWriter[K, V] = new OwnWriter(handle, mapId, store, server.port)

  override def getReader[K, C](
      handle: ShuffleHandle,
      startMapIndex: Int,
      endMapIndex: Int,
      startPartition: Int,
      endPartition: Int,
      context: TaskContext,
      metrics: ShuffleReadMetricsReporter
  ): ShuffleReader[K, C] = {
    val found = SparkEnv.get.mapOutputTracker
      .getMapSizesByExecutorId(handle.shuffleId, startMapIndex, endMapIndex, startPartition, endPartition)
    val outputs =
      found.toSeq.flatMap { case (place, blocks) => blocks.map { case (id, _, _) => (place, id) } }.collect {
        case (place, id: org.apache.spark.storage.ShuffleBlockId) =>
          (place, OwnKey(id.shuffleId, id.mapId, id.reduceId))
      }
    new OwnReader[K, C](handle, outputs, store, server.port)
  }

  override def unregisterShuffle(id: Int): Boolean = { store.remove(id); true }
  override def stop(): Unit = if (!isDriver || store.used) server.close()

  override val shuffleBlockResolver: ShuffleBlockResolver = new ShuffleBlockResolver {
    type Directories = Option[Array[String]]
    private def none = throw new UnsupportedOperationException("this manager serves its blocks itself")
    override def getBlockData(id: BlockId, directories: Directories): ManagedBuffer = none
    override def getMergedBlockData(id: ShuffleMergedBlockId, directories: Directories) = none
    override def getMergedBlockMeta(id: ShuffleMergedBlockId, directories: Directories): MergedBlockMeta = none
    override def stop(): Unit = ()
  }
}

object OwnWayShuffleManager {

  /** Bytes that this process's servers have sent to others, bytes that readers found in their own process, bytes held now. */
  val served = new AtomicLong
  val found = new AtomicLong
  val held = new AtomicLong
}

private final case class OwnKey(shuffle: Int, map: Long, partition: Int)

private final class OwnStore {
  private val outputs = new ConcurrentHashMap[OwnKey, Array[Byte]]()
  @volatile var used: Boolean = false
  def put(key: OwnKey, bytes: Array[Byte]): Unit = {
    used = true
    val before = outputs.put(key, bytes)
    OwnWayShuffleManager.held.addAndGet(bytes.length.toLong - (if (before == null) 0 else before.length)): Unit
  }
  def get(key: OwnKey): Array[Byte] = Option(outputs.get(key)).getOrElse(Array.empty)
  def remove(shuffle: Int): Unit = outputs.keySet.asScala.filter(_.shuffle == shuffle).foreach { key =>
    Option(outputs.remove(key)).foreach(bytes => OwnWayShuffleManager.held.addAndGet(-bytes.length.toLong))
  }
}

/** Asked for a key, answers with a length and the bytes. */
private final class OwnServer(store: OwnStore, host: String) {
  private val socket = new ServerSocket(0, 50, InetAddress.getByName(host))
  def port: Int = socket.getLocalPort
  private val acceptor =
    daemon(() => while (!socket.isClosed) Try(socket.accept()).foreach(peer => daemon(() => serve(peer))))

  def close(): Unit = socket.close()

  private def serve(peer: Socket): Unit = try {
    val (in, out) = (new DataInputStream(peer.getInputStream), new DataOutputStream(peer.getOutputStream))
    while (true) {
      val bytes = store.get(OwnKey(in.readInt(), in.readLong(), in.readInt()))
      // Counted first: who has the bytes may ask for the count.
      OwnWayShuffleManager.served.addAndGet(bytes.length.toLong)
      out.writeInt(bytes.length)
      out.write(bytes)
      out.flush()
    }
  } catch { case _: EOFException => () }
  finally peer.close()

  private def daemon(body: () => Unit): Thread = {
    val thread = new Thread(() => body(), "own-way-shuffle")
    thread.setDaemon(true)
    thread.start()
    thread
  }
  locally(acceptor)
}

private final class OwnWriter[K, V](handle: ShuffleHandle, mapId: Long, store: OwnStore, port: Int)
    extends ShuffleWriter[K, V] {
  private val dependency = handle.asInstanceOf[BaseShuffleHandle[K, V, Any]].dependency
  private val partitions = dependency.partitioner.numPartitions
  private var lengths = new Array[Long](partitions)

  override def write(records: Iterator[Product2[K, V]]): Unit = {
    val serializer: SerializerInstance = dependency.serializer.newInstance()
    val buffers = Array.fill(partitions)(new ByteArrayOutputStream)
    val streams = buffers.map(serializer.serializeStream(_))
    records.foreach { record =>
      val stream = streams(dependency.partitioner.getPartition(record._1))
      stream.writeKey[Any](record._1)
      stream.writeValue[Any](record._2)
    }
    streams.foreach(_.close())
    for (partition <- 0 until partitions)
      store.put(OwnKey(handle.shuffleId, mapId, partition), buffers(partition).toByteArray)
    lengths = buffers.map(_.size.toLong)
  }

  override def stop(success: Boolean): Option[MapStatus] = if (!success) None
  else {
    val own = SparkEnv.get.blockManager.shuffleServerId
    Some(MapStatus(BlockManagerId(own.executorId, own.host, own.port, Some(port.toString)), lengths, mapId))
  }

  override def getPartitionLengths(): Array[Long] = lengths
}

private final class OwnReader[K, C](
    handle: ShuffleHandle,
    outputs: Seq[(BlockManagerId, OwnKey)],
    store: OwnStore,
    port: Int
) extends ShuffleReader[K, C] {
  private val dependency = handle.asInstanceOf[BaseShuffleHandle[K, Any, C]].dependency

  override def read(): Iterator[Product2[K, C]] = {
    val serializer = dependency.serializer.newInstance()
    outputs.iterator.flatMap { case (place, key) =>
      val bytes = if (place.topologyInfo.contains(port.toString)) own(key) else fetch(place, key)
      serializer
        .deserializeStream(new ByteArrayInputStream(bytes))
        .asKeyValueIterator
        .map(_.asInstanceOf[Product2[K, C]])
    }
  }

  private def own(key: OwnKey): Array[Byte] = {
    val bytes = store.get(key)
    OwnWayShuffleManager.found.addAndGet(bytes.length.toLong)
    bytes
  }

  private def fetch(place: BlockManagerId, key: OwnKey): Array[Byte] = {
    val socket = new Socket("127.0.0.1", place.topologyInfo.get.toInt)
    try {
      socket.setSoTimeout(30000)
      val (in, out) = (new DataInputStream(socket.getInputStream), new DataOutputStream(socket.getOutputStream))
      out.writeInt(key.shuffle)
      out.writeLong(key.map)
      out.writeInt(key.partition)
      out.flush()
      val bytes = new Array[Byte](in.readInt())
      in.readFully(bytes)
      bytes
    } finally socket.close()
  }
}
