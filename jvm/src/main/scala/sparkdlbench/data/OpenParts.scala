package sparkdlbench.data

import org.apache.hadoop.fs.{FSDataInputStream, FileSystem, Path}

import java.io.IOException
import scala.collection.mutable

/** The files of a folder that are open for reading: at most `most` of those that were used last, besides those in use. Thread-safe; a file is used by one thread at a time. */
private[data] final class OpenParts(fileSystem: FileSystem, most: Int) extends AutoCloseable {
  private final class Opened(val stream: FSDataInputStream) { var users = 0 }

  private var closed = false

  /** The one that was used last comes last. */
  private val open = mutable.LinkedHashMap.empty[Path, Opened]

  def use[T](file: Path)(read: FSDataInputStream => T): T = {
    val opened = take(file)
    try opened.stream.synchronized(read(opened.stream))
    finally giveBack(opened)
  }

  private def take(file: Path): Opened = synchronized {
    if (closed) throw new IOException("the reader of these rows was closed")
    val opened = open.remove(file).getOrElse(new Opened(fileSystem.open(file)))
    open(file) = opened
    opened.users += 1
    opened
  }

  private def giveBack(opened: Opened): Unit = synchronized {
    opened.users -= 1
    // Those that are in use stay, and are closed when they are given back.
    open.toSeq.filter(_._2.users == 0).take(math.max(0, open.size - most)).foreach { case (path, idle) =>
      open.remove(path)
      idle.stream.close()
    }
  }

  override def close(): Unit = synchronized {
    closed = true
    open.values.foreach(_.stream.close())
    open.clear()
  }
}
