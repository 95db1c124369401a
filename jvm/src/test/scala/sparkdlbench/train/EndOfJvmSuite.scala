package sparkdlbench.train

import org.apache.hadoop.util.ShutdownHookManager
import sparkdlbench.OnOneLine
import sparkdlbench.common.RunFailedException

import java.io.File
import java.nio.charset.StandardCharsets
import java.nio.file.Files
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}
import java.util.concurrent.{CountDownLatch, Executors, TimeUnit}
import scala.concurrent.{ExecutionContext, Promise}
import scala.jdk.CollectionConverters._
import scala.util.{Random, Try}

/** What becomes of runs when the driver's JVM is told to end, at whichever moment of theirs. No Spark. */
class EndOfJvmSuite extends OnOneLine {
  private val waitSeconds = 60L
  private val never = waitSeconds * 1000

  /** Trains until somebody cancels it. */
  private final class Run {
    val cancels = new AtomicInteger
    private val cancelled = new CountDownLatch(1)
    val begun = new CountDownLatch(1)
    def cancel(): Unit = { cancels.incrementAndGet(); cancelled.countDown() }
    def train(): Unit = {
      begun.countDown()
      assert(cancelled.await(waitSeconds, TimeUnit.SECONDS), "nobody cancelled it")
    }
  }

  private def runs(cancelMillis: Long = never, beginMillis: Long = never) =
    new RunsToEnd[Run](_.cancel(), cancelMillis, beginMillis)

  private def started(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    thread.start()
    thread
  }

  private def awaited(thread: Thread): Unit = {
    thread.join(waitSeconds * 1000)
    assert(!thread.isAlive, s"${thread.getName} goes on")
  }

  test("with nothing going on it waits for nothing") {
    assert(runs().end() === Nil)
  }

  test("a run that goes on is cancelled, waited for and told of") {
    val (all, run) = (runs(), new Run)
    val training = started("training")(all.watching(run)(run.train()))
    assert(run.begun.await(waitSeconds, TimeUnit.SECONDS))
    assert(all.end() === Seq(run))
    awaited(training)
    assert(run.cancels.get > 0)
    assert(all.end() === Nil, "it has ended, and is forgotten")
  }

  test("a run that fails is forgotten, and its error goes on") {
    val (all, run) = (runs(), new Run)
    assert(
      intercept[IllegalStateException](all.watching(run)(throw new IllegalStateException("no"))).getMessage === "no"
    )
    assert(all.end() === Nil)
  }

  test("a run between its folder and its training is waited for, and cancelled once it trains") {
    val (all, run) = (runs(), new Run)
    all.preparing(run)
    val told = new java.util.concurrent.atomic.AtomicReference[Seq[Run]](Nil)
    val ending = started("ending")(told.set(all.end()))
    awaitCancel(run)
    assert(ending.isAlive)
    val training = started("training")(all.watching(run)(run.train()))
    awaited(training)
    awaited(ending)
    assert(told.get === Seq(run))
  }

  test("a run that is being made when all are ended is told of, and none is made after it") {
    val (all, run) = (runs(), new Run)
    val (making, made) = (new CountDownLatch(1), new CountDownLatch(1))
    val training = started("training") {
      all.preparing { making.countDown(); made.await(waitSeconds, TimeUnit.SECONDS); run }
      all.watching(run)(run.train())
    }
    assert(making.await(waitSeconds, TimeUnit.SECONDS))
    val told = new java.util.concurrent.atomic.AtomicReference[Seq[Run]](Nil)
    val ending = started("ending")(told.set(all.end()))
    ending.join(200)
    assert(ending.isAlive, "it waits for the run, whose folder is there already")
    made.countDown()
    awaited(training)
    awaited(ending)
    assert(told.get === Seq(run))
    val refused = intercept[RunFailedException](all.preparing(fail("a run was made")))
    assert(refused.getMessage === "The JVM was told to end while the run was prepared, so it does not begin.")
  }

  test("one whose making takes too long keeps nobody") {
    val all = runs(beginMillis = 150L)
    val (making, release) = (new CountDownLatch(1), new CountDownLatch(1))
    val slow = started("slow")(all.preparing { making.countDown(); release.await(); new Run }: Unit)
    assert(making.await(waitSeconds, TimeUnit.SECONDS))
    assert(all.end() === Nil)
    release.countDown()
    awaited(slow)
  }

  test("one that is prepared and never trained keeps nobody, and is told of") {
    val (all, run) = (runs(beginMillis = 150L), new Run)
    all.preparing(run)
    assert(all.end() === Seq(run))
    assert(run.cancels.get > 0)
  }

  test("one that does not heed its cancelling is given up, also where that throws") {
    val release = new CountDownLatch(1)
    val begun = new CountDownLatch(1)
    val cancels = new AtomicInteger
    val all = new RunsToEnd[String](
      { _ => cancels.incrementAndGet(); throw new IllegalStateException("the session is gone") },
      cancelMillis = 350L,
      beginMillis = never
    )
    val training = started("deaf")(all.watching("deaf") { begun.countDown(); release.await() })
    assert(begun.await(waitSeconds, TimeUnit.SECONDS))
    assert(all.end() === Seq("deaf"))
    assert(cancels.get > 1, "a job that was just about to be submitted is cancelled by a later call only")
    release.countDown()
    awaited(training)
  }

  test("at any moment of many runs: none that it tells of goes on after it, and none of them was left uncancelled") {
    val random = new Random(7)
    for (turn <- 1 to 10) {
      val all = runs()
      val many = Seq.fill(8)(new Run)
      val ended = new AtomicBoolean
      val threads = many.zipWithIndex.map { case (run, number) =>
        val pause = random.nextInt(3).toLong
        started(s"run $number of turn $turn") {
          Thread.sleep(pause)
          // As a command that is told to end: what has not begun yet does not begin any more.
          Try(all.preparing(run)).foreach(_ => all.watching(run)(if (!ended.get) run.train()))
        }
      }
      Thread.sleep(random.nextInt(4).toLong)
      val told = all.end()
      ended.set(true)
      told.foreach(run => assert(run.cancels.get > 0))
      many.foreach(_.cancel()) // those that came later
      threads.foreach(awaited)
      assert(all.end() === Nil)
    }
  }

  test("a command's JVM that gets SIGTERM says one line, whatever fails after it, and ends with the signal's status") {
    val output = Files.createTempFile("end-of-jvm", ".log")
    val java = s"${System.getProperty("java.home")}${File.separator}bin${File.separator}java"
    val command =
      Seq(java, "-Xmx128m", "-cp", System.getProperty("java.class.path"), "sparkdlbench.train.EndOfJvmProbe")
    val process = new ProcessBuilder(command.asJava).redirectErrorStream(true).redirectOutput(output.toFile).start()
    def said = new String(Files.readAllBytes(output), StandardCharsets.UTF_8)
    try {
      val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(waitSeconds)
      while (!said.contains("ready") && process.isAlive && System.nanoTime() < deadline) Thread.sleep(20)
      assert(said.contains("ready"), said)
      process.destroy() // SIGTERM
      assert(process.waitFor(waitSeconds, TimeUnit.SECONDS), said)
      assert(process.exitValue === 143, said)
      val lines = said.split('\n').toSeq.dropWhile(_ != "ready") // before it the JVM may speak of its options
      assert(lines === Seq("ready", "told of 0 runs, begun true"))
    } finally {
      process.destroyForcibly()
      Files.deleteIfExists(output): Unit
    }
  }

  private def awaitCancel(run: Run): Unit = {
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(waitSeconds)
    while (run.cancels.get == 0 && System.nanoTime() < deadline) Thread.sleep(5)
    assert(run.cancels.get > 0)
  }
}

/** A command that waits for its end; then, as when Spark stops, a future finds its pool shut down and a thread fails. */
object EndOfJvmProbe {
  private val SparkStops = 40

  def main(arguments: Array[String]): Unit = {
    EndOfJvm.ofCommand(runs => Some(s"told of ${runs.size} runs, begun ${EndOfJvm.hasBegun}"))
    ShutdownHookManager.get().addShutdownHook(() => stop(), SparkStops)
    println("ready")
    Thread.sleep(600000)
  }

  private def stop(): Unit = {
    val pool = Executors.newSingleThreadExecutor()
    val answer = Promise[Int]()
    answer.future.foreach(_ => ())(ExecutionContext.fromExecutor(pool))
    pool.shutdown()
    Try(answer.success(1)): Unit
    val thread = new Thread(() => throw new IllegalStateException("after the line"))
    thread.start()
    thread.join()
  }
}
