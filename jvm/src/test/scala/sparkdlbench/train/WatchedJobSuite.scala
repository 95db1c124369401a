package sparkdlbench.train

import org.apache.spark.TaskContext
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns

import java.io.IOException
import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

class WatchedJobSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("transport" -> "block-stream", "workers" -> "2")

  test("where listening to a job fails, its tasks are ended and the failure is told") {
    val setup = prepared().setup
    def job(): Unit = {
      sc.setJobGroup(setup.runId, "a training", interruptOnCancel = false)
      sc.parallelize(0 until 2, 2).foreach(_ => WatchedJobSuite.runUntilEnded())
    }
    val full = new IOException("No space left on device")
    def listen(): Unit = if (WatchedJobSuite.running.get == 2) throw full else Thread.sleep(10)
    val told = intercept[IOException](new WatchedJob(sc, setup).run(job(), () => listen(), () => false))
    assert(told eq full)
    assert(told.getSuppressed.isEmpty)
    val end = System.nanoTime() + 20000000000L
    while (WatchedJobSuite.running.get > 0 && System.nanoTime() < end) Thread.sleep(20)
    assert(WatchedJobSuite.running.get == 0, "tasks still run")
  }

  test("tasks that run are seen to run before any heartbeat, and those that get no slots not to") {
    val setup = prepared("recovery.replacement_wait" -> "1").setup
    def job(millis: Long): Unit = {
      sc.setJobGroup(setup.runId, "a training", interruptOnCancel = false)
      sc.parallelize(0 until 2, 2).barrier().mapPartitions { tasks => Thread.sleep(millis); tasks }.count(): Unit
    }
    def watched(millis: Long): WatchedJob = {
      val watch = new WatchedJob(sc, setup)
      watch.run(job(millis), () => Thread.sleep(20), () => false): Unit
      watch
    }
    assert(watched(4000).complaint.isEmpty)
    val slots = sc.defaultParallelism // of a local master: its threads
    val other = sc.parallelize(0 until slots, slots).foreachAsync(_ => WatchedJobSuite.holdSlot())
    try {
      val without = watched(0)
      assert(without.complaint.get.contains("for 1 s (recovery.replacement_wait)"))
      assert(without.lackedSlots && !other.isCompleted)
    } finally WatchedJobSuite.released.countDown()
    scala.concurrent.Await.ready(other, scala.concurrent.duration.Duration(60, "s")): Unit
  }
}

/** In an object, so that tasks need nothing of the suite. */
private object WatchedJobSuite {
  val running = new AtomicInteger
  val released = new CountDownLatch(1)

  /** Until the test has seen what it waits for, however long that takes. */
  def holdSlot(): Unit = released.await(120, TimeUnit.SECONDS): Unit

  def runUntilEnded(): Unit = {
    running.incrementAndGet()
    try while (!TaskContext.get().isInterrupted()) Thread.sleep(10)
    finally running.decrementAndGet(): Unit
  }
}
