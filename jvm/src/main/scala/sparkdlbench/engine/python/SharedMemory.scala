package sparkdlbench.engine.python

import sparkdlbench.common.{ConfigurationException, MappedFile}
import sparkdlbench.data.Batch
import sparkdlbench.model.ModelSpec
import sparkdlbench.vector.FlatBuffer

import java.nio.file.{Files, Path}
import java.nio.{ByteBuffer, ByteOrder, FloatBuffer, IntBuffer, LongBuffer}
import scala.collection.mutable

/**
 * What a rank's JVM and its Python process both map: weights, gradient, running statistics and one batch, a file each, in memory where
 * the host has room there (/dev/shm). Nothing is copied between the network and the gradient that Python computes.
 *
 * @param rows
 *   the largest batch
 * @param labelsARow
 *   as many as outputs where these are answers
 */
private[python] final class SharedMemory(spec: ModelSpec, rows: Int, labelsARow: Int = 1) {
  private val width = spec.inputShape.map(_.toLong).product
  private val made = mutable.LinkedHashMap.empty[String, Path]

  /** Where the batch's labels begin in its file, and their ids, bytes; features begin at 0. */
  val labelsAt: Long = (4L * rows * width + 7) / 8 * 8
  val idsAt: Long = labelsAt + 8L * rows * labelsARow

  val parameters: FlatBuffer = flat("parameters", spec.parameterCount)
  val gradients: FlatBuffer = flat("gradients", spec.parameterCount)
  val statistics: FlatBuffer = flat("statistics", spec.statisticsCount)
  private val batch = file("batch", idsAt + 4L * rows)
  private val features: FloatBuffer = part(0, labelsAt).asFloatBuffer()
  private val labels: LongBuffer = part(labelsAt, idsAt).asLongBuffer()
  private val ids: IntBuffer = part(idsAt, idsAt + 4L * rows).asIntBuffer()

  /** Names of the files. */
  def files: Map[String, String] = made.map { case (name, path) => name -> path.toString }.toMap

  /** Copies a batch to where Python reads it. */
  def put(one: Batch): Unit = {
    features.put(0, one.features, 0, one.rows * width.toInt)
    labels.put(0, one.labels, 0, one.rows * labelsARow)
    var row = 0
    while (row < one.rows) { ids.put(row, one.ids(row)); row += 1 }
  }

  /** The files lose their names, so that nothing is left of them however the processes end; who has mapped them keeps them. */
  def unlink(): Unit = made.values.foreach(path => Files.deleteIfExists(path))

  private def flat(name: String, length: Int): FlatBuffer = FlatBuffer.over(file(name, 4L * length), length)

  private def part(from: Long, until: Long): ByteBuffer =
    batch.slice(from.toInt, (until - from).toInt).order(ByteOrder.nativeOrder())

  /** A new file of zeros, mapped. */
  private def file(name: String, bytes: Long): ByteBuffer = {
    val folders = MappedFile.folders
    val found =
      if (bytes > Int.MaxValue) None
      else MappedFile.create(folders, SharedMemory.Prefix, math.max(bytes, FlatBuffer.Alignment.toLong).toInt)
    val (path, memory) = found.getOrElse {
      unlink()
      throw new ConfigurationException(
        s"An engine in a Python process needs a mapped file of $bytes bytes ($name of the model ${spec.name}, $rows rows), and there is none: a file holds less " +
          s"than 2 GiB, and ${folders.mkString(" and ")} need room for all of them. Free some there, lower batch, or set engine.name=libtorch."
      )
    }
    made += name -> path
    memory
  }
}

private[python] object SharedMemory {
  private val Prefix = "sparkdl-engine-"
}
