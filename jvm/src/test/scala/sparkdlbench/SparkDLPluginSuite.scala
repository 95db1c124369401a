package sparkdlbench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{MappedFile, ProcessMark}

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}

class SparkDLPluginSuite extends AnyFunSuite with LocalSpark {
  override protected def sparkSettings: Seq[(String, String)] = Seq("spark.plugins" -> "sparkdlbench.SparkDLPlugin")

  private var left: Seq[Path] = Nil

  /** Folders of processes that have ended: a number of ours, with another start. */
  override def beforeAll(): Unit = {
    left = for (prefix <- Seq("sparkdl-mpi-", "sparkdl-w-"); mark <- ProcessMark.own) yield {
      val folder = Files.createTempDirectory(Paths.get(System.getProperty("java.io.tmpdir")), prefix)
      Files.write(folder.resolve(MappedFile.Owner), mark.copy(start = mark.start + 1).print.getBytes(UTF_8))
      folder
    }
    super.beforeAll()
  }

  test("a way to Python workers that could not be opened is tried again, and ever more rarely") {
    var seconds = 0L
    val tries = new OpeningTries(() => seconds * 1000000000L)
    assert(tries.isDue && tries.failed() == 1 && !tries.isDue)
    seconds += 1
    assert(tries.isDue && tries.failed() == 2 && !tries.isDue)
    seconds += 1
    assert(!tries.isDue)
    seconds += 1
    assert(tries.isDue)
    val pauses = Seq.fill(20)(tries.failed())
    assert(pauses.head == 4 && pauses.last == 600)
    tries.begin()
    assert(tries.isDue && tries.failed() == 1)
  }

  test("a driver removes what killed runs have left, whether or not its own run comes as far as theirs") {
    if (left.isEmpty) cancel("/proc does not tell this process' number, start and namespaces")
    assert(left.filter(Files.exists(_)).isEmpty)
  }
}
