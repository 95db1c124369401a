package sparkdlbench.metrics

import com.codahale.metrics.MetricRegistry
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** With a program that prints what `nvidia-smi` prints, and lines that it printed on an H100. */
class GpuUseSuite extends AnyFunSuite {
  private def program(body: String): Path = {
    val folder = Files.createTempDirectory("gpu-use")
    val file = folder.resolve("nvidia-smi")
    Files.write(file, s"#!/bin/sh\n$body\n".getBytes(UTF_8))
    assert(file.toFile.setExecutable(true))
    folder
  }

  private def await(what: String)(condition: => Boolean): Unit = {
    val end = System.nanoTime() + 60000000000L
    while (!condition && System.nanoTime() < end) Thread.sleep(10)
    assert(condition, what)
  }

  test("lines are index, per cent and MiB; what the driver does not tell is -1; other lines are none") {
    assert(GpuUse.parse("0, 37, 1024").contains("0" -> GpuSample(0.37, 1L << 30)))
    assert(GpuUse.parse("11, 0, 0").contains("11" -> GpuSample(0, 0)))
    assert(GpuUse.parse("1, [N/A], 1").contains("1" -> GpuSample(-1, 1L << 20)))
    assert(GpuUse.parse("1, 3, [Not Supported]").contains("1" -> GpuSample(0.03, -1)))
    val others =
      Seq("", "No devices were found", "GPU-7, 1, 2", "0, 1", "0, 1, 2, 3", "NVIDIA-SMI has failed, because, it")
    others.foreach(line => assert(GpuUse.parse(line).isEmpty, line))
  }

  test("lines of an H100, idle and at work") {
    val lines = Files.readAllLines(Paths.get(getClass.getResource("/gpu/nvidia-smi-h100.txt").toURI)).asScala.toSeq
    val read = lines.map(line => GpuUse.parse(line).getOrElse(fail(line)))
    assert(read.map(_._1).toSet == Set("0"))
    assert(read.head._2 == GpuSample(0, 0))
    assert(read.map(_._2.use).max == 1)
    assert(read.map(_._2.memoryBytes).max == 62179L << 20)
  }

  test("the program runs as long as it is open, is asked at the rate, and leaves nothing behind") {
    val folder = program(
      """echo "$@" > "$(dirname "$0")/arguments"; echo $$ > "$(dirname "$0")/pid"
        |while true; do echo "0, 50, 100"; echo "1, [N/A], 200"; sleep 0.05; done""".stripMargin
    )
    val use = GpuUse.start(4, Seq(Files.createTempDirectory("empty"), folder)).get
    try await("two GPUs")(use.latest == Map("0" -> GpuSample(0.5, 100L << 20), "1" -> GpuSample(-1, 200L << 20)))
    finally use.close()
    assert(Files.readString(folder.resolve("arguments")).contains("--loop-ms=250"))
    val pid = Files.readString(folder.resolve("pid")).trim.toLong
    await("the program's end")(!ProcessHandle.of(pid).map[Boolean](_.isAlive).orElse(false))
    await("nothing is claimed any more")(use.latest.isEmpty)
  }

  test("Spark's metrics system is told the mean use and all memory of the GPUs, as long as somebody samples them") {
    val registry = new MetricRegistry
    ResourceGauges.register(registry)
    def value(name: String): Any = registry.getGauges().get(name).getValue
    def told: (Any, Any) = (value("gpuUse"), value("gpuMemoryBytes"))
    assert(told == ((-1.0, -1L)))
    val prints = "while true; do echo '0, 50, 100'; echo '1, 100, 200'; echo '2, [N/A], 300'; sleep 0.05; done"
    val use = GpuUse.start(4, Seq(program(prints))).get
    val another = GpuUse.start(4, Seq(program("echo 'No devices were found'; exit 6"))).get
    try await("three GPUs, two of which tell their use")(told == ((0.75, 600L << 20)))
    finally { use.close(); another.close() }
    assert(told == ((-1.0, -1L)))
  }

  test("where there is no GPU nothing is claimed: no program, one that fails, one that cannot be started") {
    assert(GpuUse.start(4, Seq(Files.createTempDirectory("empty"))).isEmpty)
    val failing = GpuUse.start(4, Seq(program("echo 'No devices were found'; exit 6"))).get
    try { Thread.sleep(100); assert(failing.latest.isEmpty) }
    finally failing.close()
    val folder = Files.createTempDirectory("gpu-use")
    Files.createDirectory(folder.resolve("nvidia-smi"))
    assert(GpuUse.start(4, Seq(folder)).isEmpty)
  }

  test("resources.json has lists for GPUs where some were seen, and none where not") {
    val log = ResourceLog.open("gpus", 4)
    try {
      val one = ResourceSample(0, 0, 1, 1, 1, 0, Map.empty, 0, 0)
      log.add(ResourceReport("gpus", "driver", "a", Seq(one, one.copy(millis = 250))))
      log.add(
        ResourceReport("gpus", "0", "b", Seq(one, one.copy(millis = 250, gpus = Map("3" -> GpuSample(0.25, 7)))))
      )
      val processes = Json.read(Json.line(log.toMap(0))).path("processes").elements.asScala.toSeq
      assert(!processes.head.has("gpus"))
      val gpu = processes(1).path("gpus").path("3")
      assert(gpu.path("use").elements.asScala.map(_.asDouble).toSeq == Seq(-1, 0.25))
      assert(gpu.path("memory_bytes").elements.asScala.map(_.asLong).toSeq == Seq(-1, 7))
    } finally ResourceLog.close("gpus")
  }
}
