package sparkdlbench.worker

import sparkdlbench.common.MappedFile
import sparkdlbench.vector.VectorFile

import java.io.IOException
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.nio.{ByteBuffer, ByteOrder}

/**
 * Memory without a name that a Python process has made (memfd), mapped here through `/proc/<pid>/fd/<number>`: nothing is left of it, however
 * the processes end.
 */
private[worker] object PythonMemory {

  /** Ours, and that of PyTorch's storages which processes share. */
  private val Prefixes = Seq("/memfd:sparkdl", "/dev/shm/torch_")

  /** Fails with a ProtocolException where that is no such memory, or has fewer bytes. */
  def map(pid: Long, descriptor: Int, bytes: Long): ByteBuffer = {
    if (bytes < 0 || bytes > Int.MaxValue) throw new ProtocolException(s"memory of $bytes bytes cannot be mapped")
    val channel = open(pid, descriptor)
    try {
      // What is mapped beyond the end would kill this JVM where it is touched.
      if (channel.size < bytes)
        throw new ProtocolException(s"the memory $descriptor has ${channel.size} bytes, not $bytes")
      channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes).order(ByteOrder.nativeOrder())
    } finally channel.close()
  }

  /** From its start on, whatever the process does with its own descriptor. */
  def open(pid: Long, descriptor: Int): FileChannel = {
    val file = Paths.get(s"/proc/$pid/fd/$descriptor")
    if (!Prefixes.exists(target(file).startsWith(_)))
      throw new ProtocolException(s"$file is no memory of a Python worker")
    FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)
  }

  /** The same for other executors of this host. None where it cannot be told from other memory. */
  def shared(pid: Long, descriptor: Int, bytes: Long): Option[VectorFile] = {
    val file = Paths.get(s"/proc/$pid/fd/$descriptor")
    // A storage of PyTorch's could still shrink under those who have mapped it.
    if (target(file).startsWith(Prefixes.head)) MappedFile.identity(file).map(new VectorFile(file.toString, bytes, _))
    else None
  }

  private def target(file: Path): String =
    try Files.readSymbolicLink(file).toString
    catch {
      case error: IOException => throw new ProtocolException(s"$file cannot be looked at: ${error.getMessage}")
    }
}
