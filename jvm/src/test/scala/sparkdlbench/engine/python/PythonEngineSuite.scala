package sparkdlbench.engine.python

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.Variants
import sparkdlbench.data.{Batch, RowIds}
import sparkdlbench.engine.libtorch.EngineFixture
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.model.{ModelSpec, ParityModels, RunKeysForTests}

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** With small programs in place of our Python process, which Python's own tests ask. */
class PythonEngineSuite extends AnyFunSuite {
  private val folder = Files.createTempDirectory("python engine")
  private val spec = EngineFixture.softmax(3, 2)
  private val rows = 4

  private def program(name: String, text: String): String = {
    val file = folder.resolve(name)
    Files.write(file, text.getBytes(UTF_8))
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwx------")).toString
  }

  private def shell(name: String, line: String): String = program(name, s"#!/bin/sh\n$line\n")

  private def variant(name: String): EngineVariant = Variants.find[EngineVariant]("engine", name)

  private def load(python: String, more: (String, String)*): Engine = {
    val entries = Seq("engine.name" -> "numpy", "engine.python" -> python, "seed" -> "7") ++ more
    variant("numpy").load(spec, rows, 3, RunKeysForTests.settings(entries: _*))
  }

  private def refusal(body: => Any): String = {
    val message = intercept[ConfigurationException](body).getMessage
    assert(!message.contains('\n'), message)
    message
  }

  /** Gradient i is parameter i × weight + step; the loss is the features' sum, right are as many as labels and ids sum up to, and the scores say class 1. */
  private def answering: String = program(
    "answering",
    """#!/usr/bin/env python3
      |import json, mmap, os, struct, sys
      |question = json.loads(sys.stdin.buffer.readline())
      |def mapped(name):
      |    with open(question["files"][name], "r+b") as file:
      |        return memoryview(mmap.mmap(file.fileno(), 0))
      |parameters, gradients = (mapped(name).cast("f") for name in ("parameters", "gradients"))
      |batch, labels_at, ids_at = mapped("batch"), question["labels_at"], question["ids_at"]
      |rows, width = question["rows"], question["model"]["input_shape"][0]
      |features = batch[:labels_at].cast("f")
      |labels = batch[labels_at:ids_at].cast("q")
      |ids = batch[ids_at : ids_at + 4 * rows].cast("i")
      |def answer(content):
      |    sys.stdout.buffer.write(content)
      |    sys.stdout.buffer.flush()
      |facts = {"pid": str(os.getpid()), "told": " ".join(str(question[name]) for name in ("engine", "device", "seed"))}
      |facts["omp"] = os.environ["OMP_NUM_THREADS"]
      |words = json.dumps(facts).encode()
      |answer(struct.pack(">ii", 0, len(words)) + words)
      |while len(request := sys.stdin.buffer.read(24)) == 24:
      |    what, count, step, weight = struct.unpack(">iiqd", request)
      |    if step == 99:
      |        sys.exit("it was told to end")
      |    if step == 98:
      |        answer(struct.pack(">ii", 2, 5) + b"a bug")
      |        continue
      |    if what == 1:
      |        for i in range(len(gradients)):
      |            gradients[i] = parameters[i] * weight + step
      |    told = struct.pack(">idq", 0, sum(features[: count * width]), sum(labels[:count]) + sum(ids[:count]))
      |    scores = struct.pack(">i", 8 * count) + struct.pack(">2f", 1, 2) * count
      |    answer(told + scores if what == 2 else told)
      |""".stripMargin
  )

  private def batch(rows: Int, step: Long, firstId: Int = 0): Batch = {
    val made = EngineFixture.batch(spec, rows, seed = 3)
    made.copy(ids = new RowIds(Array.tabulate(rows + firstId)(_ * 10), firstId), step = step)
  }

  private def withEngine(use: Engine => Unit): Unit = {
    assume(onPath("python3"), "there is no python3 on the PATH")
    val engine = load(answering)
    try use(engine)
    finally engine.close()
  }

  private def onPath(name: String): Boolean = sys.env
    .getOrElse("PATH", "")
    .split(':')
    .filter(_.nonEmpty)
    .exists(each => Files.isExecutable(Paths.get(each, name)))

  private def isThere(pid: Long): Boolean = ProcessHandle.of(pid).map[Boolean](_.isAlive).orElse(false)

  private def filesOfThisProcess: Seq[Path] = Seq("/dev/shm", System.getProperty("java.io.tmpdir"))
    .map(Paths.get(_))
    .filter(Files.isDirectory(_))
    .flatMap { place =>
      val found = Files.list(place)
      try found.iterator.asScala.toList
      finally found.close()
    }
    .filter { file =>
      val name = file.getFileName.toString
      name.startsWith("sparkdl-engine-") && name.contains(s"-${ProcessHandle.current().pid()}-")
    }

  test("while its process runs, no log of it is in the temporary folder: nothing is left where it is killed") {
    def logs: Set[String] = new java.io.File(System.getProperty("java.io.tmpdir"))
      .list()
      .toSet
      .filter(name => name.startsWith("sparkdl-engine-") && name.endsWith(".log"))
    val before = logs
    withEngine(_ => assert((logs -- before).isEmpty))
  }

  test("weights, gradient and rows are in memory that both have; loss and rights come back") {
    withEngine { engine =>
      assert(engine.facts("told") == "numpy cpu 7")
      assert(engine.facts("omp") == "3" && engine.facts("threads") == "3" && engine.facts("engine") == "numpy")
      for (i <- 0 until engine.parameters.length) engine.parameters.floats.put(i, i.toFloat)
      // Fewer rows than there is room for, and ids that begin in the middle of their array.
      val three = batch(3, step = 5, firstId = 2)
      var ready = Seq.empty[(Int, Int)]
      val loss = engine.step(three, 0.5f, (from, until) => ready = ready :+ ((from, until)))
      assert(ready == Seq((0, spec.parameterCount)))
      assert(engine.gradients.toArray.toSeq == (0 until spec.parameterCount).map(i => i * 0.5f + 5))
      val features = (0 until 9).map(three.features.get(_))
      assert(math.abs(loss - features.map(_.toDouble).sum) < 1e-9)
      val found = engine.evaluate(three)
      val labels = (0 until 3).map(three.labels.get(_)).sum
      assert(found.rows == 3 && found.correct == labels + (2 + 3 + 4) * 10 && found.lossSum == loss)
      assert(found.measures("").toMap.apply("recall") == (if (labels > 0) Some(1.0) else Some(0.0)))
    }
  }

  test("no rows: no gradient, nothing right, and nobody is asked") {
    withEngine { engine =>
      engine.step(batch(2, step = 1), 1f, (_, _) => ())
      var ready = 0
      // The program would end at step 99.
      val none = batch(1, step = 99).copy(rows = 0)
      assert(engine.step(none, 1f, (from, until) => ready += until - from) == 0.0)
      assert(ready == spec.parameterCount && engine.gradients.toArray.forall(_ == 0f))
      assert(engine.evaluate(none).rows == 0)
      assertThrows[IllegalArgumentException](engine.step(EngineFixture.batch(spec, rows + 1, 1), 1f, (_, _) => ()))
    }
  }

  test("nothing is left: the files lose their names at once, the process ends with the engine") {
    assume(onPath("python3"), "there is no python3 on the PATH")
    val engine = load(answering)
    val pid = engine.facts("pid").toLong
    assert(isThere(pid))
    assert(filesOfThisProcess.isEmpty, filesOfThisProcess)
    engine.close()
    assert(!isThere(pid))
  }

  test("a process that fails, or ends, fails the run with what it said") {
    withEngine { engine =>
      val failure = intercept[RunFailedException](engine.step(batch(2, step = 98), 1f, (_, _) => ())).getMessage
      assert(failure.contains("The engine 'numpy' failed") && failure.contains("a bug"), failure)
      val ended = intercept[RunFailedException](engine.step(batch(2, step = 99), 1f, (_, _) => ())).getMessage
      assert(ended.contains("ended with status 1; it said: it was told to end"), ended)
      assert(ended.contains("spark.executor.memoryOverhead"), ended)
    }
  }

  test("a Python that cannot be started, ends, says something else or nothing is told, with what to install") {
    def told(python: String, words: String, more: (String, String)*): Unit = {
      val message = refusal(load(python, more: _*))
      Seq(words, python, "pip install 'sparkdl-bench==").foreach(each => assert(message.contains(each), message))
      assert(filesOfThisProcess.isEmpty, filesOfThisProcess)
    }
    told(folder.resolve("gone").toString, "cannot be started")
    val bare = shell("bare", "echo 'No module named sparkdl_bench' >&2; exit 3")
    told(bare, "ended with status 3; it said: No module named")
    told(shell("talking", "echo hello, who is there; exec sleep 60"), "is none of ours: it answered with the number")
    told(shell("silent", "exec sleep 60"), "did not answer within 1 s (engine.timeout)", "engine.timeout" -> "1")
  }

  private def checked(name: String, spec: ModelSpec, entries: (String, String)*): Unit =
    variant(name).check(spec, 1, RunKeysForTests.settings(("engine.name" -> name) +: entries: _*))

  test("what an engine does not do is refused before any process is started") {
    val lenet = ParityModels.family("lenet", Seq(1, 28, 28))
    checked("numpy", EngineFixture.mlp(20, "16,8", 5, "tanh"))
    checked("torch", lenet, "engine.device" -> "cuda:1")
    assert(refusal(checked("numpy", lenet)).contains("layer 'conv1' is of kind 'conv2d'"))
    assert(refusal(checked("numpy", spec, "engine.device" -> "cuda")).contains("the engine 'numpy' has the CPU alone"))
    Seq("engine.blas" -> "mkl", "engine.compute" -> "bf16", "engine.onednn" -> "off", "engine.cbwr" -> "avx2").foreach {
      case (key, value) =>
        val reason = refusal(checked("torch", spec, key -> value))
        assert(reason.startsWith(s"$key=$value was asked for") && reason.contains("engine.name=libtorch"), reason)
    }
    val synchronised = ParityModels.family("resnet-18", Seq(1, 28, 28))
    val layers = synchronised.layers.map { layer =>
      if (layer.kind == "batch-norm") layer.copy(options = layer.options + ("sync" -> 1.0)) else layer
    }
    assert(refusal(checked("torch", synchronised.copy(layers = layers))).contains("each worker's own rows"))
  }

  test("a device is cpu, cuda or cuda:N") {
    Seq("gpu", "cuda:", "cuda:-1", "cuda:one", "").foreach { name =>
      assert(refusal(checked("torch", spec, "engine.device" -> name)).contains("Valid: cpu, cuda, cuda:N"))
    }
  }
}
