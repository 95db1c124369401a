package sparkdlbench.vector

import java.nio.ByteBuffer

/**
 * Memory that begins with a vector, and that other processes of this user and host may map until it is released. Those that have
 * mapped it keep it.
 *
 * @param path
 *   by which they open it, through this or another process' descriptor
 * @param identity
 *   `device-inode`, of which a kernel has one file at a time
 * @param held
 *   what `path` leads to as long as it is open
 */
final class VectorFile(val path: String, val bytes: Long, val identity: String, held: AutoCloseable = () => ()) {
  def release(): Unit = held.close()
}

/**
 * A part of a vector.
 *
 * @param bytes
 *   its memory; a sender gives this very buffer
 * @param file
 *   that it lies in
 * @param offset
 *   where it begins in the file, bytes
 */
final case class VectorPart(bytes: ByteBuffer, file: Option[VectorFile], offset: Int)
