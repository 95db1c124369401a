package sparkdlbench.worker

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import sparkdlbench.common.{ConfigurationException, Json, RunFailedException}
import sparkdlbench.train.CheckpointFolder

import java.io.IOException
import java.nio.channels.{Channels, FileChannel}
import java.util.Locale
import scala.collection.immutable.ListMap
import scala.util.Try

/**
 * Checkpoints of a rank's own in a folder of any Hadoop file system. Each is one file, which has a number greater than those before it, and
 * gets its name when it is whole: a reader finds the newest whole one. Content comes from, and goes to, memory of the Python process.
 *
 * @param isClosed
 *   the rank is gone, and must not make anything appear any more
 */
private[worker] final class WorkerFiles(pid: Long, hadoop: => Configuration, isClosed: () => Boolean) {
  import WorkerFiles._

  /** Saves the next one, and removes all but the newest `keep`. */
  def save(words: JsonNode): String = in(words, "written") { files =>
    val descriptor = WorkerConnection.whole(words, "descriptor", 0, Int.MaxValue)
    val keep = WorkerConnection.whole(words, "keep", 1, Int.MaxValue)
    val before = numbered(files)
    val number = if (before.isEmpty) 1L else before.keys.max + 1
    val partial = new Path(files.root, s".$number-${java.util.UUID.randomUUID()}.partial")
    try {
      files.write(partial)(out => opened(descriptor)(source => Channels.newInputStream(source).transferTo(out)))
      if (isClosed()) throw new IOException("the rank has ended")
      files.rename(partial, new Path(files.root, name(number)))
    } catch {
      case cause: IOException =>
        Try(files.delete(partial, recursive = false))
        throw cause
    }
    // What stays too long costs room alone.
    val old = before.keys.toSeq.sorted.dropRight(keep - 1).map(name)
    (old ++ left(files, number)).foreach(each => Try(files.delete(new Path(files.root, each), recursive = false)))
    Json.line(ListMap("number" -> number))
  }

  /** Number and length of the newest; empty where there is none. */
  def newest(words: JsonNode): String = in(words, "looked for") { files =>
    val all = numbered(files)
    Json.line(
      if (all.isEmpty) ListMap.empty[String, Any] else ListMap("number" -> all.keys.max, "bytes" -> all(all.keys.max))
    )
  }

  /** Fills the memory with one. */
  def load(words: JsonNode): String = in(words, "read") { files =>
    val descriptor = WorkerConnection.whole(words, "descriptor", 0, Int.MaxValue)
    val stream = files.open(new Path(files.root, name(words.path("number").asLong)))
    try opened(descriptor)(target => stream.transferTo(Channels.newOutputStream(target)))
    finally stream.close()
    Json.line(ListMap.empty[String, Any])
  }

  private def in(words: JsonNode, done: String)(use: CheckpointFolder => String): String = {
    val folder = WorkerConnection.text(words, "folder")
    try {
      val path = new Path(folder)
      // Relative to the executor's working folder, which is another one for each executor.
      if (!path.isAbsolute && path.getFileSystem(hadoop).getUri.getScheme == "file")
        throw new ConfigurationException(
          s"The folder '$folder' for checkpoints would be another one on each executor. Give its whole path, or a URI such as hdfs:///user/me/run-7."
        )
      use(new CheckpointFolder(path, hadoop))
    } catch {
      // An IllegalArgumentException is a path or a file system that is none.
      case cause @ (_: IOException | _: IllegalArgumentException) if !cause.isInstanceOf[ProtocolException] =>
        throw new RunFailedException(
          s"The checkpoint in '$folder' could not be $done: ${cause.getMessage}. Look whether that file system can be reached from the executors, and has room.",
          cause
        )
    }
  }

  private def opened[T](descriptor: Int)(use: FileChannel => T): T = {
    val channel = PythonMemory.open(pid, descriptor)
    try use(channel)
    finally channel.close()
  }

  /** What executors that were killed while they wrote have left: only one rank writes, and its file up to this number has its name by now. */
  private def left(files: CheckpointFolder, number: Long): Seq[String] =
    Try(files.names(files.root)).getOrElse(Set.empty).toSeq.collect {
      case partial @ Partial(of) if of.toLong <= number => partial
    }

  /** Those that are whole: length by number. */
  private def numbered(files: CheckpointFolder): Map[Long, Long] =
    files.entries(files.root).collect { case (Name(number), bytes) => number.toLong -> bytes }
}

private[worker] object WorkerFiles {
  private val Name = """checkpoint-(\d{10})""".r
  private val Partial = """\.(\d{1,18})-[0-9a-f-]{36}\.partial""".r
  private def name(number: Long): String = "checkpoint-%010d".formatLocal(Locale.ROOT, number)
}
