package sparkdlbench.train

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicReferenceArray
import sparkdlbench.common.RunFailedException

/**
 * The ranks' all-gather of texts where all of them run in the driver's own JVM (a local master). Spark's own would do, but it
 * polls once a second, and on Spark 3.5 its first use starts a timer thread that keeps a program's JVM from ending.
 */
private[train] object LocalRendezvous {
  private final class Board(size: Int) {
    val texts = new AtomicReferenceArray[String](size)
    val missing = new CountDownLatch(size)
    val reading = new CountDownLatch(size)
  }
  private val boards = new ConcurrentHashMap[String, Board]()

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
    val board = boards.computeIfAbsent(key, _ => new Board(size))
    board.texts.set(rank, text)
    board.missing.countDown()
    var met = false
    try {
      await(board, rank, size, timeoutMillis, isKilled)
      met = true
      (0 until size).map(board.texts.get)
    } finally {
      board.reading.countDown()
      // Of a meeting that failed nobody knows who still comes: whoever does finds an empty board, and fails as well.
      if (!met || board.reading.getCount == 0) boards.remove(key, board): Unit
    }
  }

  private def await(board: Board, rank: Int, size: Int, timeoutMillis: Long, isKilled: => Boolean): Unit = {
    val end = System.nanoTime() + timeoutMillis * 1000000L
    while (!board.missing.await(PollMillis, TimeUnit.MILLISECONDS)) {
      if (isKilled) throw new CancelledException
      if (System.nanoTime() > end) {
        val absent = (0 until size).filter(board.texts.get(_) == null)
        throw new RunFailedException(
          s"Rank $rank waited ${timeoutMillis / 1000} s in vain for ranks ${absent.mkString(", ")} to come as far as it is (start_timeout). Look at " +
            "what they read, or raise start_timeout where opening the data takes longer."
        )
      }
    }
  }

  /** Meetings that are not over. */
  private[train] def open: Int = boards.size

  private val PollMillis = 50L
}
