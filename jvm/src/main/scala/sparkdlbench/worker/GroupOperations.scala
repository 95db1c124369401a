package sparkdlbench.worker

import sparkdlbench.common.ConfigurationException
import sparkdlbench.collective.{Collective, ElementType, Reduction, VectorAllReduce}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.Transport
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable.ArrayBuffer

/**
 * The collective operations of a group's connection, one after the other. Requests name parts of the memory that Python has given: int64
 * offset, int64 bytes. `python/sparkdl_bench/worker/group.py` is the other end.
 *
 * @param pid
 *   of the Python process
 * @param topology
 *   of vectors that are reduced again and again
 * @param bucketBytes
 *   of those, what travels as one message
 */
private[worker] final class GroupOperations(
    pid: Long,
    transport: Transport,
    collective: Collective,
    topology: Topology,
    bucketBytes: Int
) extends AutoCloseable {
  import GroupOperations._
  private val vectors = ArrayBuffer.empty[VectorAllReduce]
  private var memory = ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder())

  def run(request: Frame): Unit = {
    val body = request.body
    request.kind match {
      case Map => memory = PythonMemory.map(pid, body.getInt(), body.getLong())
      case AllReduce =>
        val (elements, reduction) = (elementsOf(body), reductionOf(body))
        collective.allReduce(part(body), elements, reduction)
      case ReduceScatter =>
        val (elements, reduction) = (elementsOf(body), reductionOf(body))
        val mine = part(body)
        collective.reduceScatter(parts(body), mine, elements, reduction)
      case AllGather =>
        val mine = part(body)
        collective.allGather(mine, parts(body))
      case AllToAll =>
        val outgoing = parts(body)
        collective.allToAll(outgoing, parts(body))
      case Broadcast =>
        val root = body.getInt()
        collective.broadcast(part(body), root)
      case Barrier => collective.barrier()
      case Bind => vectors += bound(body.getInt(), body.getLong(), body.getInt())
      case ReduceBound =>
        val vector = chosen(vectors.toSeq, body.getInt(), "vector")
        val reduction = reductionOf(body)
        if (!VectorAllReduce.reductions.contains(reduction))
          throw new ProtocolException(s"vectors are not reduced by ${reduction.name}")
        vector.run(reduction, body.getInt())
      case Place =>
        val vector = chosen(vectors.toSeq, body.getInt(), "vector")
        add(vector, body.getInt(), body.getInt(), body.getLong(), body.getInt())
      case Leave =>
        chosen(vectors.toSeq, body.getInt(), "vector").remove(body.getInt())
      case other => throw new ProtocolException(s"request $other is unknown")
    }
    if (body.hasRemaining) throw new ProtocolException(s"request ${request.kind} has ${body.remaining} bytes too many")
  }

  private def bound(descriptor: Int, bytes: Long, length: Int): VectorAllReduce = {
    if (length < 0 || length * 4L > bytes) throw new ProtocolException(s"$bytes bytes do not hold $length values")
    val values =
      FlatBuffer.over(PythonMemory.map(pid, descriptor, bytes), length, PythonMemory.shared(pid, descriptor, bytes))
    collective.bind(values, topology, math.max(1, bucketBytes / 4))
  }

  private def add(vector: VectorAllReduce, place: Int, descriptor: Int, bytes: Long, length: Int): Unit = {
    if (length < 0 || length * 4L > bytes) throw new ProtocolException(s"$bytes bytes do not hold $length values")
    if (!vector.add(place, FlatBuffer.over(PythonMemory.map(pid, descriptor, bytes), length)))
      throw new ConfigurationException(
        "Values are reduced in the memory that the group has for them, and not elsewhere."
      )
  }

  private def part(body: ByteBuffer): ByteBuffer = GroupOperations.part(memory, body)

  private def parts(body: ByteBuffer): IndexedSeq[ByteBuffer] = (0 until collective.size).map(_ => part(body))

  override def close(): Unit = transport.close()
}

private[worker] object GroupOperations {

  /** int32 file descriptor, int64 bytes: the memory of the requests that follow. */
  val Map = 20

  /** int32 type, int32 reduction (their places in `ElementType.all` and `Reduction.all`), part. */
  val AllReduce = 21

  /** int32 type, int32 reduction, own part, one part per rank. */
  val ReduceScatter = 22

  /** Own part, one part per rank. */
  val AllGather = 23

  /** One outgoing part per rank, one incoming part per rank. */
  val AllToAll = 24

  /** int32 root, part. */
  val Broadcast = 25
  val Barrier = 26

  /** int32 file descriptor, int64 bytes, int32 fp32 values at the start of that memory: the next vector, numbered from 0 on. */
  val Bind = 27

  /** int32 number of a vector, int32 reduction (sum or average), int32 place: 0, or one that `Place` has given it. */
  val ReduceBound = 28

  /**
   * int32 number of a vector, int32 place (1 and up), int32 file descriptor, int64 bytes, int32 values at the start of that memory: where
   * this rank may have the vector's values too. A `ConfigurationException` where the group cannot do so.
   */
  val Place = 29

  /** int32 number of a vector, int32 place: it is used no more. */
  val Leave = 30

  /** The next part that a request names. */
  private[worker] def part(memory: ByteBuffer, body: ByteBuffer): ByteBuffer = {
    val (offset, bytes) = (body.getLong(), body.getLong())
    if (offset < 0 || bytes < 0 || offset > memory.capacity || bytes > memory.capacity - offset)
      throw new ProtocolException(
        s"a part of $bytes bytes from $offset on is not within the memory of ${memory.capacity}"
      )
    memory.slice(offset.toInt, bytes.toInt).order(ByteOrder.nativeOrder())
  }

  private def elementsOf(body: ByteBuffer): ElementType = chosen(ElementType.all, body.getInt(), "type of values")
  private def reductionOf(body: ByteBuffer): Reduction = chosen(Reduction.all, body.getInt(), "reduction")

  private def chosen[T](all: Seq[T], place: Int, what: String): T =
    all.lift(place).getOrElse(throw new ProtocolException(s"there is no $what $place"))
}
