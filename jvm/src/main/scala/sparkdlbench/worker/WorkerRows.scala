package sparkdlbench.worker

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.RunKeys
import sparkdlbench.data.{BatchPlan, RowFeeds, TrainingReader}

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * A rank's batches of a decoded set, for a training loop of the user's own. Each goes to a slot of the memory that Python has given: the
 * rows' values (fp32), their labels (int64, as `Batch` has them), their ids (int32), each for `capacity` rows. One thread.
 * `python/sparkdl_bench/worker/rows.py` is the other end.
 */
private[worker] final class WorkerRows(session: WorkerSession, words: JsonNode, hadoop: => Configuration)
    extends AutoCloseable {
  import WorkerRows._
  private val settings = {
    val raw = words.path("settings").properties.asScala.map(each => each.getKey -> each.getValue.asText).toMap
    RunKeys.resolve(raw + ("workers" -> session.size.toString))
  }
  private val feed = RowFeeds.open(settings, hadoop)
  private val width = feed.rows.width
  private val plan = BatchPlan(feed.rows.rows, RunKeys.globalBatch(settings), session.size)
  private val capacity = plan.maxShare
  private val reader = new TrainingReader(feed.rows, plan, settings(RunKeys.seed), session.rank)
  private val slotBytes = capacity.toLong * (width * 4L + 8 + 4)
  private var memory = ByteBuffer.allocateDirect(0)

  /** What the other end needs to know. */
  def about: String = Json.line(
    ListMap[String, Any](
      "rows" -> plan.rows,
      "width" -> width,
      "capacity" -> capacity,
      "steps" -> plan.stepsPerEpoch,
      "identity" -> feed.identity
    )
  )

  /** @return the answer's body */
  def run(request: Frame): Array[Byte] = {
    val body = request.body
    val answer = request.kind match {
      case Map =>
        memory = PythonMemory.map(session.pid, body.getInt(), body.getLong())
        Array.emptyByteArray
      case Read => read(body.getLong(), body.getInt())
      case other => throw new ProtocolException(s"request $other is unknown")
    }
    if (body.hasRemaining) throw new ProtocolException(s"request ${request.kind} has ${body.remaining} bytes too many")
    answer
  }

  private def read(step: Long, slot: Int): Array[Byte] = {
    if (step < 0 || step / plan.stepsPerEpoch > MostEpochs)
      throw new ConfigurationException(s"There is no step $step; valid are steps of the epochs 0 to $MostEpochs.")
    if (slot < 0 || (slot + 1L) * slotBytes > memory.capacity)
      throw new ProtocolException(s"slot $slot of $slotBytes bytes is not within the memory of ${memory.capacity}")
    val batch = reader.read(step)
    val at = (slot * slotBytes).toInt
    part(at, capacity * width * 4).asFloatBuffer().put(0, batch.features, 0, batch.rows * width)
    part(at + capacity * width * 4, capacity * 8).asLongBuffer().put(0, batch.labels, 0, batch.rows)
    val ids = part(at + capacity * (width * 4 + 8), capacity * 4).asIntBuffer()
    (0 until batch.rows).foreach(row => ids.put(row, batch.ids(row)))
    ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(batch.rows).array
  }

  private def part(at: Int, bytes: Int): ByteBuffer = memory.slice(at, bytes).order(ByteOrder.nativeOrder())

  override def close(): Unit = reader.close()
}

private[worker] object WorkerRows {

  /** int32 file descriptor, int64 bytes: the memory of the requests that follow. */
  val Map = 40

  /** int64 step from the start of training, int32 slot; answered with int32 rows. */
  val Read = 41
  private val MostEpochs = 1000000
}
