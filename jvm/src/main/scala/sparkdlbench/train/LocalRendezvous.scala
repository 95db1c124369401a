package sparkdlbench.train

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicReferenceArray
import sparkdlbench.common.RunFailedException

/**
 * The ranks' all-gather of texts where all of them run in the driver's own JVM (a local master). Spark's own would do, but it
 * polls once a second, and on Spark 3.5 its first use starts a timer thread that keeps a program's JVM from ending.
 */
private[train] object LocalRendezvous {
  private final class AllGather(size: Int) {
    val texts = new AtomicReferenceArray[String](size)
    val missing = new CountDownLatch(size)
    val reading = new CountDownLatch(size)
  }
  private val gathers = new ConcurrentHashMap[String, AllGather]()

  /**
   * @param key
   *   names one all-gather of one attempt; the same on all ranks
   * @return
   *   every rank's text, by rank
   */
  def allGather(
      key: String,
      rank: Int,
      size: Int,
      text: String,
      timeoutMillis: Long,
      isKilled: => Boolean
  ): IndexedSeq[String] = {
    val gather = gathers.computeIfAbsent(key, _ => new AllGather(size))
    gather.texts.set(rank, text)
    gather.missing.countDown()
    var met = false
    try {
      await(gather, rank, size, timeoutMillis, isKilled)
      met = true
      (0 until size).map(gather.texts.get)
    } finally {
      gather.reading.countDown()
      // Of a meeting that failed nobody knows who still comes: whoever does finds an empty one, and fails as well.
      if (!met || gather.reading.getCount == 0) gathers.remove(key, gather): Unit
    }
  }

  private def await(gather: AllGather, rank: Int, size: Int, timeoutMillis: Long, isKilled: => Boolean): Unit = {
    val end = System.nanoTime() + timeoutMillis * 1000000L
    while (!gather.missing.await(PollMillis, TimeUnit.MILLISECONDS)) {
      if (isKilled) throw new CancelledException
      if (System.nanoTime() > end) {
        val absent = (0 until size).filter(gather.texts.get(_) == null)
        throw new RunFailedException(
          s"Rank $rank waited ${timeoutMillis / 1000} s in vain for ranks ${absent.mkString(", ")} to come as far as it is (start_timeout). Look at " +
            "what they read, or raise start_timeout where opening the data takes longer."
        )
      }
    }
  }

  /** Meetings that are not over. */
  private[train] def open: Int = gathers.size

  private val PollMillis = 50L
}
