package sparkdlbench.data

import java.io.EOFException
import java.nio.{ByteBuffer, ByteOrder}

/** What is damaged in an LMDB file, and where. */
private[data] final class LmdbException(val offset: Long, reason: String) extends RuntimeException(reason)

/**
 * Reads the entries of an LMDB environment's main database in the order of their keys, from any file that can be read at a place:
 * the C library maps its file, so it reads local disks alone, and a damaged file ends its process. On-disk format of LMDB
 * 0.9 (lmdb.h, mdb.c), little-endian, 64 bits.
 *
 * @param length
 *   of the file, bytes
 * @param read
 *   (place in the file, buffer, number of bytes): fills the buffer from 0 on
 */
private[data] final class LmdbFile(length: Long, read: (Long, Array[Byte], Int) => Unit) {
  import LmdbFile._

  private val meta = newestMeta()
  private val pages = length / meta.pageBytes
  private var pagesRead = 0L

  /** Entries that the database says it has. */
  def entries: Long = meta.entries

  /**
   * @param use
   *   (value, number of the entry, its place in the file); false: no more
   */
  def foreach(use: (Array[Byte], Long, Long) => Boolean): Unit =
    if (meta.root != NoPage) {
      var entry = 0L
      walk(meta.root, 0) { (value, offset) =>
        val more = use(value, entry, offset)
        entry += 1
        more
      }
      ()
    }

  private def newestMeta(): Meta = {
    val first = readMeta(0)
    val second = readMeta(first.pageBytes.toLong)
    if (second.pageBytes != first.pageBytes)
      damaged(first.pageBytes.toLong, "the two meta pages name different page sizes")
    if (second.transaction > first.transaction) second else first
  }

  private def readMeta(at: Long): Meta = {
    val page = bytes(at, MetaBytes, "the meta page")
    val (magic, version) = (page.getInt(PageHeader), page.getInt(PageHeader + 4))
    if (magic != Magic)
      damaged(at, f"the meta page has the magic number 0x$magic%08x, LMDB's is 0x$Magic%08x; it is no LMDB file")
    if (version != Version) damaged(at, s"LMDB's data version is $version, and this reads $Version")
    val pageBytes = page.getInt(PageHeader + 24)
    if (Integer.bitCount(pageBytes) != 1 || pageBytes < 256 || pageBytes > (1 << 16))
      damaged(at, s"its pages are of $pageBytes bytes; valid are powers of 2 from 256 to 65536")
    val main = PageHeader + 72
    if ((page.getShort(main + 4) & DupSort) != 0)
      damaged(at, "its main database holds several values a key, which is no data set")
    Meta(pageBytes, page.getLong(main + 32), page.getLong(main + 40), page.getLong(PageHeader + 128))
  }

  /** @return whether to go on */
  private def walk(page: Long, depth: Int)(use: (Array[Byte], Long) => Boolean): Boolean = {
    val at = placeOf(page)
    pagesRead += 1
    if (depth > MostDepth || pagesRead > pages) damaged(at, "its tree of pages leads in a circle")
    val content = bytes(at, meta.pageBytes, "a page")
    val flags = content.getShort(10) & 0xffff
    val keys = ((content.getShort(12) & 0xffff) - PageHeader) / 2
    if (keys < 0 || PageHeader + keys * 2 > meta.pageBytes) damaged(at, s"a page says that it has $keys keys")
    val visit: Int => Boolean =
      if ((flags & Branch) != 0) node => walk(childOf(content, node), depth + 1)(use)
      else if ((flags & Leaf) != 0 && (flags & Leaf2) == 0) node => use(valueOf(content, node, at), at + node)
      else damaged(at, f"a page of the tree has the flags 0x$flags%x")
    var key = 0
    var more = true
    while (key < keys && more) {
      val node = content.getShort(PageHeader + key * 2) & 0xffff
      if (node < PageHeader || node + NodeHeader > meta.pageBytes)
        damaged(at, s"an entry lies at $node in its page of ${meta.pageBytes} bytes")
      more = visit(node)
      key += 1
    }
    more
  }

  private def childOf(page: ByteBuffer, node: Int): Long =
    (page.getInt(node) & 0xffffffffL) | ((page.getShort(node + 4) & 0xffffL) << 32)

  private def valueOf(page: ByteBuffer, node: Int, at: Long): Array[Byte] = {
    val size = page.getInt(node) & 0xffffffffL
    val flags = page.getShort(node + 4) & 0xffff
    val start = node + NodeHeader + (page.getShort(node + 6) & 0xffff)
    if ((flags & ~BigData) != 0) damaged(at + node, f"an entry has the flags 0x$flags%x")
    if ((flags & BigData) == 0) {
      if (start + size > meta.pageBytes) damaged(at + node, s"an entry of $size bytes does not fit its page")
      page.array.slice(start, start + size.toInt)
    } else {
      if (start + 8 > meta.pageBytes) damaged(at + node, "an entry does not fit its page")
      val from = placeOf(page.getLong(start)) + PageHeader
      if (size > length - from || size > MostValueBytes)
        damaged(at + node, s"an entry says that it has $size bytes, and the file has ${length - from} left")
      bytes(from, size.toInt, "a value").array
    }
  }

  private def placeOf(page: Long): Long = {
    if (page < 2 || page >= pages)
      damaged(0, s"page $page is not in the file of $pages pages: it is truncated or damaged")
    page * meta.pageBytes
  }

  private def bytes(at: Long, count: Int, what: String): ByteBuffer = {
    if (at + count > length) damaged(at, s"$what of $count bytes ends after the file's $length bytes: it is truncated")
    val content = new Array[Byte](count)
    try read(at, content, count)
    catch { case _: EOFException => damaged(at, s"$what of $count bytes is not there: the file is truncated") }
    ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
  }

  private def damaged(at: Long, reason: String): Nothing = throw new LmdbException(at, reason)
}

private[data] object LmdbFile {
  private final case class Meta(pageBytes: Int, entries: Long, root: Long, transaction: Long)

  private val Magic = 0xbeefc0de
  private val Version = 1
  private val PageHeader = 16
  private val NodeHeader = 8
  private val MetaBytes = PageHeader + 136
  private val Branch = 0x01
  private val Leaf = 0x02
  private val Leaf2 = 0x20
  private val BigData = 0x01
  private val DupSort = 0x04
  private val NoPage = -1L
  private val MostDepth = 64
  private val MostValueBytes = 256L << 20
}
