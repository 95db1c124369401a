package sparkdlbench.train

import org.apache.spark.SparkConf
import org.apache.spark.scheduler.{SparkListener, SparkListenerJobStart, SparkListenerTaskEnd}
import org.apache.spark.sparkdlbench.SparkTestSupport
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.{ConfigurationException, Json, MemoryKind, RunFailedException}
import sparkdlbench.config.RunKeys
import sparkdlbench.LocalSpark

import java.lang.management.{BufferPoolMXBean, ManagementFactory}
import java.nio.file.{Files, Path, Paths}
import scala.collection.mutable
import scala.jdk.CollectionConverters._

class MemoryEstimateSuite extends AnyFunSuite with LocalSpark {
  private lazy val results: Path = Files.createTempDirectory("results")
  private val mebi = 1L << 20

  private def prepare(settings: (String, String)*): TrainingRun = TrainingRun.prepare(
    sc,
    Map("results" -> results.toString, "transport" -> "block-stream", "data.source" -> "synthetic") ++ settings
  )

  private def estimate(run: TrainingRun) = Json.read(Json.text(run.memoryEstimate))

  private def complaint(settings: (String, String)*): String = {
    var jobs = 0
    val listener = new SparkListener { override def onJobStart(start: SparkListenerJobStart): Unit = jobs += 1 }
    SparkTestSupport.awaitEvents(sc)
    sc.addSparkListener(listener)
    val message =
      try intercept[ConfigurationException](prepare(settings: _*)).getMessage
      finally { SparkTestSupport.awaitEvents(sc); sc.removeSparkListener(listener) }
    assert(jobs == 0)
    message
  }

  test("a model that fits neither direct memory nor heap is refused before any job, with the settings to raise") {
    val wide = Seq("model.hidden" -> "400000", "workers" -> "2")
    val message = complaint(wide: _*)
    assert(message.contains("spark.driver.memory=") && message.contains("-XX:MaxDirectMemorySize="), message)
    assert(message.contains("spark.driver.maxResultSize=") && message.contains("318000010 parameters"), message)
    assert(message.contains("weights 1.2 GiB") && message.contains("memory_check=off"), message)
    assert(Files.list(results).iterator.asScala.isEmpty, "no results folder for a run that does not start")
    prepare(wide :+ ("memory_check" -> "off"): _*)
  }

  test("only what does not fit is complained of") {
    // The data set alone: every executor holds it.
    val message = complaint("transport" -> "block-manager", "data.rows" -> "1000000000")
    assert(message.contains("of heap") && !message.contains("MaxDirectMemorySize"), message)
  }

  test("a data set that takes most of the heap is named, and the key that has it mapped from disk, where it helps") {
    val run = prepare("workers" -> "2", "model.hidden" -> "64", "data.rows" -> "1000000", "data.test_rows" -> "1000")
    def message(source: String, heldBytes: Long): String = {
      val settings = run.setup.settings.updated(RunKeys.data, source)
      val setup = run.setup.copy(settings = settings, data = run.setup.data.copy(heldBytes = heldBytes))
      val limits = MemoryLimits(128 * mebi, 1024 * mebi, None, Some(1024 * mebi), Some(1024 * mebi), 1024 * mebi)
      intercept[ConfigurationException](
        MemoryCheck.check(setup, MemoryEstimate.of(setup, 1), limits, local = false)
      ).getMessage
    }
    val held = 1001000L * (784 + 4)
    val large = message("csv", held)
    Seq("data set 753 MiB", "spark.executor.memory=", s"data.memory_limit=${held / 2}", s"$held bytes", "now auto")
      .foreach(words => assert(large.contains(words), s"'$words' is not in: $large"))
    assert(!large.contains('\n'))
    // Mapped already; a source that holds nothing that could be mapped.
    Seq(message("csv", 1001000L * 4), message("synthetic", held)).foreach { other =>
      assert(other.contains("spark.executor.memory=") && !other.contains("data.memory_limit"), other)
    }
  }

  /** What is in use when the buffers of earlier runs are gone, which another thread frees after the collector. */
  private def settled(pool: BufferPoolMXBean): Long = {
    val end = System.nanoTime() + 30000000000L
    def collected = { System.gc(); Thread.sleep(100); pool.getMemoryUsed }
    val three = Iterator.continually(collected).sliding(3)
    three.find(used => used.distinct.size == 1 || System.nanoTime() > end).get.last
  }

  /** Direct memory that the JVM counts, at most, while `body` runs; over what it was before. */
  private def peakDirect(body: => Unit): Long = {
    val pool =
      ManagementFactory.getPlatformMXBeans(classOf[BufferPoolMXBean]).asScala.find(_.getName == "direct").get
    val before = settled(pool)
    @volatile var running = true
    @volatile var peak = 0L
    val sampler = new Thread(() => while (running) { peak = math.max(peak, pool.getMemoryUsed); Thread.sleep(2) })
    sampler.start()
    try body
    finally { running = false; sampler.join() }
    peak - before
  }

  test("direct memory of a run is what was estimated", TakesLong) {
    for {
      (workers, codec, variant) <- Seq(
        ("2", "fp32", Seq.empty),
        ("3", "fp32", Seq("in_memory_first" -> "off")),
        ("3", "bf16", Seq("in_memory_first" -> "off")),
        ("4", "threshold", Seq("in_memory_first" -> "off")),
        ("2", "threshold", Seq("transport" -> "block-manager")),
        ("2", "bf16", Seq("transport" -> "shuffle")),
        ("2", "bf16", Seq("transport" -> "shuffle", "shuffle.exchanges" -> "one")),
        ("2", "bf16", Seq("transport" -> "shuffle", "topology" -> "tree"))
      )
    } {
      val shared = Seq(
        "workers" -> workers,
        "codec" -> codec,
        "model.hidden" -> "2000",
        "batch" -> "600",
        "max_steps" -> "20",
        "data.rows" -> "2000",
        "data.test_rows" -> "300"
      )
      val run = prepare(shared ++ variant: _*)
      val stated = Seq("executor_direct_bytes", "driver_direct_bytes").map(estimate(run).path(_).asLong).sum
      val seen = peakDirect(run.train())
      // All that is estimated is allocated, to the alignment of buffers; what comes on top are Spark's own buffers and the
      // staging of a few threads.
      assert(stated > 20 * mebi)
      assert(
        seen > 0.95 * stated - mebi && seen < 1.05 * stated + 4 * mebi,
        s"$workers $codec $variant: $seen seen, $stated stated"
      )
    }
  }

  test("the estimate and the limits are in run.json") {
    val run = prepare("workers" -> "2", "model.hidden" -> "64", "max_steps" -> "2", "data.rows" -> "500")
    val folder = Paths.get(run.train().folder)
    val memory = Json.read(Files.readString(folder.resolve("run.json"))).path("memory_estimate")
    val weights = memory.path("each_worker").elements.asScala.find(_.path("name").asText == "weights").get
    assert(weights.path("bytes").asLong == 4L * (784 * 64 + 64 + 64 * 10 + 10))
    assert(memory.path("workers_per_executor").asInt == 2)
    assert(memory.path("limits").path("executor_heap_bytes").asLong == Runtime.getRuntime.maxMemory)
  }

  test("a checkpoint of ranks with weights of their own is as large as all of them together") {
    val shared = Seq("workers" -> "4", "model.hidden" -> "1000", "optimizer.momentum" -> "0.9")
    def heap(settings: (String, String)*) =
      estimate(prepare(shared ++ settings: _*)).path("executor_heap_bytes").asLong
    val weights = 4L * (784 * 1000 + 1000 + 1000 * 10 + 10)
    // Of its own each time: a run that is prepared owns its folder until it ends.
    def folder = "checkpoint.dir" -> Files.createTempDirectory("checkpoints").toString
    def read(vectors: Int) = 4 * vectors * weights // by each of four ranks, in the one process
    val onTheirWay = 3 * weights // what needs most without checkpoints
    // Four ranks' weights and momentum, and the mean; and weights and momentum put together.
    val own = heap("algorithm" -> "local-sgd", folder) - heap("algorithm" -> "local-sgd")
    assert(own == read(4 * 2 + 1 + 2) - onTheirWay)
    assert(heap(folder) - heap() == read(2 + 2) - onTheirWay)
  }

  test("gossip's mean travels in fp32 where the codec keeps residuals, and so it is estimated") {
    def parts(codec: String) =
      estimate(prepare("workers" -> "3", "algorithm" -> "gossip", "codec" -> codec, "in_memory_first" -> "off"))
        .path("each_worker")
    for (codec <- Seq("topk", "threshold")) assert(parts(codec) == parts("fp32"), codec)
  }

  test("records on their way to the driver, or to an aggregator, count with topology tree") {
    val run = prepare("transport" -> "shuffle", "topology" -> "tree", "workers" -> "2", "model.hidden" -> "100")
    val gradient = 4L * run.setup.spec.parameterCount
    def atTimes(workers: Int): Long = {
      val setup = run.setup.copy(settings = run.setup.settings.updated(RunKeys.workers, workers.toString))
      MemoryEstimate.of(setup, workers).worker.filter(_.kind == MemoryKind.HeapAtTimes).map(_.bytes).max
    }
    // Two ranks send to the driver; of six each three to one of two aggregators.
    assert(atTimes(2) == 2 * gradient && atTimes(6) == 4 * gradient)
  }

  test("what tasks return to the driver is what was estimated") {
    for (variant <- Seq("shuffle.exchanges" -> "one", "topology" -> "tree")) {
      val shared = Seq("transport" -> "shuffle", "workers" -> "4", "model.hidden" -> "1000", "data.rows" -> "500")
      val run = prepare(shared ++ Seq("max_steps" -> "3", variant): _*)
      val returned = mutable.Map.empty[Int, Long].withDefaultValue(0L)
      val listener = new SparkListener {
        override def onTaskEnd(end: SparkListenerTaskEnd): Unit =
          returned(end.stageId) = returned(end.stageId) + end.taskMetrics.resultSize
      }
      SparkTestSupport.awaitEvents(sc)
      sc.addSparkListener(listener)
      try run.train()
      finally { SparkTestSupport.awaitEvents(sc); sc.removeSparkListener(listener) }
      val (most, stated) = (returned.values.max, estimate(run).path("result_bytes").asLong)
      assert(most > 0.9 * stated && most < stated + mebi, s"$variant: $most returned, $stated stated")
    }
  }

  test("the best weights come back beside the last ones: one result of twice the size; over a job per step it is not") {
    val weights = 4L * (784 * 1000 + 1000 + 1000 * 10 + 10)
    def bytes(settings: (String, String)*): (Long, Long) = {
      val told = estimate(prepare(Seq("workers" -> "2", "model.hidden" -> "1000") ++ settings: _*))
      (told.path("result_bytes").asLong, told.path("driver_heap_bytes").asLong)
    }
    val (plain, heap) = bytes()
    assert(plain == weights && bytes("keep_best" -> "loss") == ((2 * weights, heap + 3 * weights)))
    val jobs = "transport" -> "block-manager"
    val (result, ofJobs) = bytes(jobs)
    assert(bytes(jobs, "keep_best" -> "loss") == ((result, ofJobs + weights)))
  }

  test("a training that goes on with fewer workers is held against the memory, as one that starts is") {
    val folder = Files.createTempDirectory("checkpoints").toString
    val run = prepare(
      "workers" -> "2",
      "model.hidden" -> "400000",
      "memory_check" -> "off",
      "checkpoint.dir" -> folder
    )
    def next(check: String): RunSetup = {
      val settings = run.setup.settings.updated(RunKeys.workers, "8").updated(MemoryCheck.mode, check)
      new Resubmission(sc, () => false).next(
        run.setup.copy(settings = settings),
        "An executor was lost.",
        new RuntimeException("lost"),
        lackedSlots = true, // no wait for executors that will not come
        isFinal = false
      )
    }
    assert(next("off").workers == 4)
    val message = intercept[RunFailedException](next("on")).getMessage
    assert(message.startsWith("An executor was lost. It cannot go on with 4 workers in place of 8."), message)
    assert(message.contains("does not fit the session's memory") && message.contains("spark.driver.memory="), message)
    Checkpointing.release(run.setup)
  }

  test("limits come from the session's configuration") {
    assert(MemoryLimits.directOf("-Xss1m -XX:MaxDirectMemorySize=3g -XX:MaxDirectMemorySize=512m", 7) == 512 * mebi)
    assert(
      MemoryLimits.directOf("-XX:+UseSerialGC", 7) == 7 && MemoryLimits.directOf("-XX:MaxDirectMemorySize=0", 7) == 7
    )
    val conf = new SparkConf(false)
    assert(MemoryLimits.overheadOf("spark://host:7077", conf, 1024 * mebi).isEmpty)
    assert(MemoryLimits.overheadOf("yarn", conf, 1024 * mebi).contains(384 * mebi))
    assert(MemoryLimits.overheadOf("yarn", conf, 10240 * mebi).contains(1024 * mebi))
    conf.set("spark.executor.memoryOverhead", "2g")
    assert(MemoryLimits.overheadOf("k8s://https://host", conf, 1024 * mebi).contains(2048 * mebi))
  }

  test("on YARN and Kubernetes the memory outside the heap must fit the overhead; elsewhere nothing enforces it") {
    val run = prepare("workers" -> "4", "model.hidden" -> "20000")
    def check(overhead: Option[Long]) = MemoryCheck.check(
      run.setup,
      MemoryEstimate.of(run.setup, 2),
      MemoryLimits(8192 * mebi, 8192 * mebi, overhead, Some(4096 * mebi), Some(4096 * mebi), 1024 * mebi),
      local = false
    )
    check(None)
    check(Some(4096 * mebi))
    val message = intercept[ConfigurationException](check(Some(384 * mebi))).getMessage
    assert(message.contains("spark.executor.memoryOverhead=") && message.contains("with 2 workers"), message)
    assert(!message.contains("MaxDirectMemorySize"), message)
  }
}
