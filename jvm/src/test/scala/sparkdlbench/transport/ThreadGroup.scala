package sparkdlbench.transport

import java.util.concurrent.TimeUnit
import scala.concurrent.duration.DurationInt
import scala.concurrent.{Await, ExecutionContext, Future}

/** Ranks as threads: runs the same function on every rank of an in-memory group. */
object ThreadGroup {

  /**
   * @param limitMillis
   *   after this time the ranks that still run are interrupted, and the call fails with their stacks
   * @return
   *   every rank's result, by rank
   * @throws Throwable
   *   the failure of the rank that failed first, other ranks' failures suppressed in it
   */
  def run[T](size: Int, conditions: InMemoryConditions = InMemoryConditions(), limitMillis: Long = 300000)(
      body: Transport => T
  ): IndexedSeq[T] = {
    val group = new InMemoryGroup(size, conditions)
    val results = new Array[Option[T]](size)
    val failures = new java.util.concurrent.ConcurrentLinkedQueue[Throwable]
    val threads = (0 until size).map { rank =>
      val thread = new Thread(() => runRank(group, rank, body, results, failures), s"rank-$rank")
      thread.setDaemon(true)
      thread.start()
      thread
    }
    try {
      val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMillis)
      threads.foreach(thread => thread.join(math.max(1, (deadline - System.nanoTime()) / 1000000)))
      val stuck = threads.filter(_.isAlive)
      // All stacks first: an interrupted rank fails, and its failure must not come before its stack.
      stuck.foreach(thread => failures.add(stillRuns(thread, limitMillis)))
      stuck.foreach(_.interrupt())
    } finally group.close()
    Option(failures.poll()).foreach { first =>
      failures.forEach(other => if (other ne first) first.addSuppressed(other))
      throw first
    }
    results.toIndexedSeq.map(_.get)
  }

  /** What comes of each case, all at once: for groups whose ranks sleep most of the time. */
  def together[A, B](cases: Seq[A])(body: A => B): Seq[B] = {
    implicit val threads: ExecutionContext = ExecutionContext.fromExecutor(task => new Thread(task).start())
    Await.result(Future.traverse(cases)(each => Future(body(each))), 10.minutes)
  }

  private def runRank[T](
      group: InMemoryGroup,
      rank: Int,
      body: Transport => T,
      results: Array[Option[T]],
      failures: java.util.Queue[Throwable]
  ): Unit =
    try {
      val transport = group.connect(rank)
      try results(rank) = Some(body(transport))
      finally transport.close()
    } catch {
      case error: Throwable =>
        failures.add(error)
        group.abort(error)
    }

  private def stillRuns(thread: Thread, limitMillis: Long): Throwable = {
    val error = new AssertionError(s"${thread.getName} still runs after $limitMillis ms")
    error.setStackTrace(thread.getStackTrace)
    error
  }
}
