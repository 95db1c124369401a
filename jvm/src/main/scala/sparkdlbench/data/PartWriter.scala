package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.TaskContext
import sparkdlbench.loss.Target

import java.io.{BufferedOutputStream, OutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.Locale
import scala.collection.mutable.ArrayBuilder

/**
 * What became of one part of a set.
 *
 * @param digest
 *   of its rows
 * @param failure
 *   why the run must end, where a bad record ends it
 */
private[data] final case class PartOutcome(
    index: Int,
    part: RowsPart,
    digest: RowsDigest,
    skipped: Skipped,
    failure: Option[String]
)

/** Writes one part's good records to a file of decoded rows (see RowsPart). */
private[data] final class PartWriter(layout: RecordLayout, skip: Boolean, limit: Int, stream: OutputStream)
    extends RecordSink(layout, skip, limit) {

  /** Of each row its labels, and its weight where it has one. */
  private val labels = new ArrayBuilder.ofInt
  private val running = new RowsDigest.Running
  private var count = 0

  def rows: Int = count
  def digest: RowsDigest = running.result

  protected def accept(row: Array[Byte], label: Int): Unit = {
    stream.write(row)
    labels += label
    if (otherLabels.nonEmpty) labels ++= otherLabels
    if (layout.weighted) labels += Target.weightBits(weight)
    running.add(row, label, weight, otherLabels)
    count = Math.addExact(count, 1)
  }

  def finish(): Unit = {
    val values = labels.result()
    val bytes = ByteBuffer.allocate(math.min(values.length, PartWriter.Labels) * 4).order(ByteOrder.LITTLE_ENDIAN)
    values.indices.grouped(PartWriter.Labels).foreach { some =>
      bytes.clear()
      some.foreach(at => bytes.putInt(values(at)))
      stream.write(bytes.array, 0, some.length * 4)
    }
  }
}

private[data] object PartWriter {
  private val Labels = 1 << 14
  private val StreamBytes = 1 << 16

  /** Decodes one part into a file of `folder`. Each attempt of the task writes a file of its own: Spark says whose counts. */
  def write(
      folder: String,
      index: Int,
      work: DecodeWork,
      layout: RecordLayout,
      policy: BadRecords,
      hadoop: Configuration
  ): PartOutcome = {
    val attempt = Option(TaskContext.get()).fold(0L)(_.taskAttemptId())
    val file = "part-%05d-%d".formatLocal(Locale.ROOT, index, attempt) // in digits that readers know
    val path = new Path(folder, file)
    val stream = new BufferedOutputStream(path.getFileSystem(hadoop).create(path, true), StreamBytes)
    var closed = false
    try {
      val writer = new PartWriter(layout, policy.skip, policy.limit, stream)
      val failure =
        try { work.decode(writer); None }
        catch { case bad: BadRecordException => Some(bad.getMessage) }
      writer.finish()
      stream.close()
      closed = true
      PartOutcome(index, RowsPart(file, writer.rows, work.test), writer.digest, writer.skipped, failure)
    } finally if (!closed) stream.close()
  }
}

/** Whether bad records are left out, and how many at most. */
private[data] final case class BadRecords(skip: Boolean, limit: Int)

/** One part's decoding, in a task. */
private[data] final class DecodeWork(val test: Boolean, val decode: RecordSink => Unit)
