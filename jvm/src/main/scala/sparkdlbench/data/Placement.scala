package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, RunKeys, Settings}

import scala.util.Try

/** Whether each executor holds all rows of a set, or reads its own part of them while it trains. */
private[data] object Placement {
  val placement: Key[String] = Key.choice(
    "data.placement",
    "auto",
    Seq("auto", "replicated", "sharded"),
    "replicated: every executor holds all rows, in its heap or in a file that is mapped; sharded: each reads its own part, again each epoch, " +
      "and holds a few blocks of it; auto: sharded where the rows are over data.disk_limit"
  )
  val diskLimit: Key[Long] = Key.long(
    "data.disk_limit",
    "17179869184",
    0,
    "Local disk that the decoded rows may take in an executor, bytes; with data.placement=auto a larger set is sharded; 0: no limit"
  )
  val shards: Key[Option[Int]] = Key(
    "data.shards",
    "auto",
    s"auto, or a whole number from 1 to $MostShards",
    "Shards of a sharded set; a multiple of the workers, and a divisor of batch, is best. The same number gives the same batches for any number " +
      s"of workers. auto: the largest divisor of batch up to $AutoShards",
    text =>
      if (text == "auto") Some(None) else Try(text.toInt).toOption.filter(n => n >= 1 && n <= MostShards).map(Some(_))
  )
  val shuffleBuffer: Key[Option[Int]] = Key(
    "data.shuffle_buffer",
    "auto",
    "auto, or a whole number above 0",
    "Rows of a sharded set that are shuffled among each other at a time, over all workers; a worker holds its share of them twice. " +
      "auto: 64 MiB of rows",
    text => if (text == "auto") Some(None) else Try(text.toInt).toOption.filter(_ >= 1).map(Some(_))
  )
  val readTimeout: Key[Int] =
    Key.int("data.read_timeout", "120", 1, "Longest wait for rows of a sharded set that are being read, seconds")
  val keys: Seq[Key[_]] = Seq(placement, diskLimit, shards, shuffleBuffer, readTimeout)

  private def MostShards = 4096
  private def AutoShards = 64
  private val BufferBytes = 64L << 20
  private val BlockBytes = 256 << 10
  private val BlocksPerWindow = 4

  /** @param rows training and test rows. The same on every host: nothing but settings and the set decides. */
  def isSharded(rows: Long, rowBytes: Int, settings: Settings): Boolean = settings(placement) match {
    case "sharded" => true
    case "replicated" => false
    case _ =>
      val limit = settings(diskLimit)
      limit > 0 && rows * (rowBytes + 4L) > limit
  }

  /** @param rows training rows that are taken */
  def sharding(rows: Int, rowBytes: Int, batch: Int, settings: Settings): Sharding = {
    val count = math.min(rows, settings(shards).getOrElse(autoShards(batch)))
    val buffer = settings(shuffleBuffer).map(_.toLong).getOrElse(math.max(1L, BufferBytes / math.max(1, rowBytes)))
    val window = math.max(1L, math.min(buffer, rows.toLong) / count).toInt
    val block = math.max(1, math.min(BlockBytes / math.max(1, rowBytes), window / BlocksPerWindow))
    Sharding(count, block, math.max(1, window / block))
  }

  /** Shards that stay with their worker in each step: a divisor of the batch, unless it has none that is large enough. */
  private def autoShards(batch: Int): Int = {
    val most = math.min(batch, AutoShards)
    (most to math.max(1, most / 2) by -1).find(batch % _ == 0).getOrElse(most)
  }

  /** What a worker, were it the only one, holds of the rows: a window of each shard, and the next. */
  def heldBytes(rows: Int, rowBytes: Int, settings: Settings): Long = {
    val cut = sharding(rows, rowBytes, RunKeys.globalBatch(settings), settings)
    val window = cut.shards.toLong * cut.blockRows * cut.blocksPerWindow
    2 * math.min(window, rows.toLong) * (rowBytes + 4L)
  }

  def check(held: Long, settings: Settings): Unit = {
    val limit = settings(DataKeys.memoryLimit).getOrElse(ExecutorHeap.bytes / 2)
    if (limit > 0 && held > limit)
      throw new ConfigurationException(
        s"The data set is sharded (data.placement=${settings(placement)}), and up to $held bytes of it are held at a time, which is over " +
          s"`data.memory_limit` = $limit bytes. Lower `data.shuffle_buffer` (now ${settings.entries.getOrElse(shuffleBuffer.name, "auto")}), or raise the limit."
      )
  }
}
