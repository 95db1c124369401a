package sparkdlbench.train

import sparkdlbench.common.RunFailedException

import java.util.concurrent.locks.ReentrantReadWriteLock
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * The runs of a JVM that go on or are about to, from any thread, and how all of them are ended.
 *
 * @param cancel
 *   asks a run to end; it may be asked again, and what it throws is nobody's concern
 * @param cancelMillis
 *   the longest wait for runs that go on
 * @param beginMillis
 *   the longest wait for a run that is prepared and does not begin
 */
private[train] final class RunsToEnd[R](cancel: R => Unit, cancelMillis: Long, beginMillis: Long) {
  private val LookMillis = 100L
  private val prepared = ConcurrentHashMap.newKeySet[R]()
  private val going = ConcurrentHashMap.newKeySet[R]()

  // Many runs may be made at once; none is while it is decided that no more are.
  private val making = new ReentrantReadWriteLock
  @volatile private var over = false

  /**
   * Makes a run that is to be trained; once `end` has begun none is made, as nobody would write its summary any more.
   *
   * @throws RunFailedException
   *   all runs are being ended
   */
  def preparing(make: => R): R = {
    making.readLock.lock()
    try {
      if (over)
        throw new RunFailedException("The JVM was told to end while the run was prepared, so it does not begin.")
      val run = make
      prepared.add(run)
      run
    } finally making.readLock.unlock()
  }

  /** A run is among those that go on while `body` trains it, whatever becomes of that. */
  def watching[T](run: R)(body: => T): T = {
    going.add(run)
    prepared.remove(run) // only now: at no moment is it in neither
    try body
    finally going.remove(run): Unit
  }

  /** Cancels all runs until they have ended, or the time is over. @return those that went on or were prepared when this began */
  def end(): Seq[R] = {
    val decided = making.writeLock.tryLock(beginMillis, TimeUnit.MILLISECONDS)
    over = true
    if (decided) making.writeLock.unlock()
    val found = all
    val start = System.nanoTime()
    def within(millis: Long) = System.nanoTime() - start < millis * 1000000L
    // More than once: a job that is just about to be submitted is not there to be cancelled yet.
    while ((!going.isEmpty && within(cancelMillis)) || (!prepared.isEmpty && within(beginMillis))) {
      all.foreach(run => Try(cancel(run)))
      Thread.sleep(LookMillis)
    }
    found
  }

  // The prepared first: one that begins between the two looks is in both, and not in none.
  private def all: Seq[R] = (prepared.asScala.toSeq ++ going.asScala).distinct
}
