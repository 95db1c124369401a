package sparkdlbench.train

import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.fs.{FSDataOutputStream, Path, RawLocalFileSystem}
import org.apache.hadoop.util.Progressable

import java.io.{IOException, OutputStream}
import java.net.URI
import java.util.concurrent.atomic.AtomicInteger

/** The local disk, on which all that changes something fails after so many operations. Called `failing:`. */
class FailingFileSystem extends RawLocalFileSystem {
  override def getUri: URI = URI.create("failing:///")
  override def getScheme: String = "failing"

  private def change[T](operation: => T): T = {
    if (FailingFileSystem.left.getAndDecrement() <= 0) throw new IOException("No space left on device")
    operation
  }

  override def create(
      path: Path,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = {
    val out = change(super.create(path, overwrite, bufferSize, replication, blockSize, progress))
    new FSDataOutputStream(
      new OutputStream {
        override def write(byte: Int): Unit = change(out.write(byte))
        override def write(from: Array[Byte], offset: Int, count: Int): Unit = change {
          out.write(from, offset, count / 2)
          change(out.write(from, offset + count / 2, count - count / 2))
        }
        override def close(): Unit = { out.close(); change(()) }
      },
      null
    )
  }

  override def rename(from: Path, to: Path): Boolean = change(super.rename(from, to))
  override def delete(path: Path, recursive: Boolean): Boolean = change(super.delete(path, recursive))
  override def mkdirs(path: Path, permission: FsPermission): Boolean = change(super.mkdirs(path, permission))
}

object FailingFileSystem { val left = new AtomicInteger(Int.MaxValue) }
