package sparkdlbench.transport.mpi

import org.apache.spark.SparkContext
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.Settings
import sparkdlbench.transport._
import sparkdlbench.transport.push.LaneSlots

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._
import scala.util.Try

/** The transport between real executor processes, with a real MPI job beside them. */
class MpiSuite extends AnyFunSuite {
  private def settings(values: (String, String)*): Settings = Settings.resolve(values.toMap, new Mpi().keys)
  private val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))

  test(
    "two executors: sums by shared memory and by TCP, silence, a lost process, a lost executor; nothing is left behind"
  ) {
    Installed.assumeMpi()
    val before = left()
    LocalCluster.run(2, 1) { sc =>
      sums(sc, 2, settings(), Seq(1000003), Seq("recursive", "ps"))
      sums(sc, 2, settings("mpi.options" -> "--mca pml ob1 --mca btl tcp,self"), Seq(100003), Seq("ring", "ps"))
      sumsInSeveralFiles(sc)
      namesTheSilent(sc)
      val wrong =
        Try(LocalCluster.ranks(sc, 2, settings("mpi.python" -> "/nowhere/python"))(new Mpi().connect(_).close()))
      assert(wrong.failed.get.getMessage.contains("sparkdl-bench peers install mpi"))
      namesTheLostProcess(sc)
      namesTheLostExecutor(sc) // last: an executor is gone then
      // What belongs to jobs of other processes on this machine comes and goes.
      val end = System.nanoTime() + 120000000000L
      var staying = left() -- before
      while (staying.nonEmpty && System.nanoTime() < end) { Thread.sleep(100); staying = staying.intersect(left()) }
      assert(staying.isEmpty)
    }
  }

  test("two ranks an executor, each with an MPI process of its own, below a folder with a space in its name") {
    Installed.assumeMpi()
    val folder = Files.createDirectory(Files.createTempDirectory("mpi").resolve("with a space"))
    val options = s"-XX:+UseSerialGC '-Djava.io.tmpdir=$folder'"
    LocalCluster.run(2, 2, "spark.executor.extraJavaOptions" -> options) { sc =>
      val folders = LocalCluster.ranks(sc, 4, settings())(_ => sys.props("java.io.tmpdir"))
      assert(folders == Seq.fill(4)(folder.toString))
      sums(sc, 4, settings(), Seq(100003), Seq("sliced", "ring", "recursive", "ps"))
    }
  }

  test("it never claims to encrypt, and options that begin another process are refused") {
    assert(new Mpi().inTheClear(settings()).isDefined)
    assert(MpiPrograms.python("/bin/sh") == Paths.get("/bin/sh"))
    val message =
      intercept[ConfigurationException](MpiPrograms.launcher("/bin/true", Paths.get("/bin/sh")))
    assert(message.getMessage.contains("/bin/true is not Open MPI 5"))
    assert(settings("mpi.options" -> " --mca  pml ob1 ")(Mpi.options) == Seq("--mca", "pml", "ob1"))
    val second = intercept[ConfigurationException](settings("mpi.options" -> "-n 1 true : -n 1"))
    assert(second.getMessage.contains("mpi.options") && second.getMessage.contains("another process"))
  }

  test("lanes lie in as many files as their slots need") {
    def lane(id: Int, capacity: Int) = Lane(id, 0, 1, capacity)
    val all = Seq(lane(0, 1000), lane(1, 0), lane(2, 5000), lane(3, 64), lane(4, 1000))
    val most = 128L + LaneSlots.bytes(all(0)) + LaneSlots.bytes(all(1))
    val files = MpiTransport.inFiles(all, 128, most)
    assert(files.map(_.map(_.id)) == Seq(Seq(0, 1), Seq(2), Seq(3), Seq(4)))
    assert(MpiTransport.inFiles(all, 128, Int.MaxValue.toLong) == Seq(all))
    assert(MpiTransport.inFiles(Nil, 128, most).isEmpty)
  }

  private def sums(sc: SparkContext, ranks: Int, chosen: Settings, lengths: Seq[Int], topologies: Seq[String]): Unit =
    LocalCluster
      .ranks(sc, ranks, chosen)(Collectives.run(new Mpi().connect(_), _, lengths, topologies))
      .foreach(bytes => assert(bytes.keySet == Set("mpi") && bytes("mpi") > lengths.max * 4L))

  /** Where the JVM cannot map all lanes at once, as with a model of gigabytes. */
  private def sumsInSeveralFiles(sc: SparkContext): Unit = {
    val fileBytes = 300000L
    LocalCluster
      .ranks(sc, 2, settings())(
        Collectives.run(MpiTransport.connect(_, "auto", "auto", Nil, fileBytes), _, Seq(300003), Seq("sliced"))
      )
      .foreach(bytes => assert(bytes("mpi") > 300003 * 4L))
  }

  private def namesTheSilent(sc: SparkContext): Unit = {
    val results = LocalCluster.ranks(sc, 2, settings())(Collectives.silence(new Mpi().connect(_), _, 1500))
    assert(results(0).contains(Collectives.silent + " for rank 1 on host 127.0.0.1"), results(0))
  }

  private def namesTheLostProcess(sc: SparkContext): Unit = {
    val own = lanes
    val results = LocalCluster.ranks(sc, 2, settings()) { group =>
      val transport = new Mpi().connect(group)
      try {
        transport.open(own, _ => None)
        val refused = Try(transport.release(Lane(9, 1 - group.rank, group.rank, 64), 0)).failed.get.getMessage
        transport.send(own(1 - group.rank), 0, ByteBuffer.allocateDirect(8))
        transport.receive(own(group.rank), 0)
        transport.release(own(group.rank), 0)
        group.allGather("both have received") // or the other rank is still about that when its job ends
        if (group.rank == 1) ProcessHandle.of(transport.asInstanceOf[MpiTransport].process.number).get.destroyForcibly()
        s"$refused ${Try(transport.receive(own(group.rank), 1)).failed.get.getMessage}"
      } finally transport.close()
    }
    for (rank <- 0 to 1) assert(results(rank).contains(s"beside rank $rank has ended"), results(rank))
    assert(results(0).contains("signal 9"), results(0))
    for (rank <- 0 to 1) assert(results(rank).startsWith(s"Rank $rank was asked for Lane(9,"), results(rank))
  }

  private def namesTheLostExecutor(sc: SparkContext): Unit = {
    val own = lanes
    val said = Files.createTempFile("said", ".txt")
    val file = said.toString
    val failed = Try(LocalCluster.ranks(sc, 2, settings()) { group =>
      val transport = new Mpi().connect(Undisturbed(group))
      transport.open(own, _ => None)
      group.allGather("both are open")
      LostExecutor.halt(group, s"$file.left", 3)
      try transport.receive(own.head, 0)
      catch {
        case error: RunFailedException =>
          Files.write(Paths.get(file), error.getMessage.getBytes(UTF_8)); throw error
      } finally transport.close()
      ""
    })
    assert(failed.isFailure)
    val end = System.nanoTime() + 20000000000L
    while (Files.size(said) == 0 && System.nanoTime() < end) Thread.sleep(50)
    val message = new String(Files.readAllBytes(said), UTF_8)
    Files.delete(said)
    Files.deleteIfExists(Paths.get(s"$file.left")): Unit
    assert(message.contains("beside rank 0 has ended") && message.contains("the Spark task beside MPI rank 1"), message)
  }

  /** Files and folders of the transport's on this host now. */
  private def left(): Set[Path] =
    Seq("/dev/shm", sys.props("java.io.tmpdir"))
      .map(Paths.get(_))
      .filter(Files.isDirectory(_))
      .flatMap { folder =>
        val all = Files.list(folder)
        try all.iterator.asScala.filter(_.getFileName.toString.startsWith("sparkdl-mpi-")).toList
        finally all.close()
      }
      .toSet
}
