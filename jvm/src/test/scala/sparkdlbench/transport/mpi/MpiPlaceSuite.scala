package sparkdlbench.transport.mpi

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.RunFailedException
import sparkdlbench.config.Settings
import sparkdlbench.transport.push.PushPeer
import sparkdlbench.transport.{Collectives, LocalCluster, Mpi}

import java.nio.file.{Files, Paths}

class MpiPlaceSuite extends AnyFunSuite {
  private val peer = PushPeer(3, "10.0.0.3", 0, "7", "a-process", "a-kernel", encrypted = false)

  test("what a rank tells the others prints and parses, whatever its paths hold") {
    val odd = Seq("/tmp/with two  spaces/x", "/tmp/\"quoted\"\\{\"}", "/tmp/gr\u00f6\u00dfer\n")
    for (folder <- "/tmp/sparkdl-mpi-1" +: odd) {
      val one = MpiPlace(folder, s"$folder/bin/python", "node-3", peer)
      assert(MpiPlace.parse(MpiPlace.print(one)) == one)
      assert(!MpiPlace.print(one).contains('\n'))
    }
    for (text <- Seq("", "/tmp/x /usr/bin/python node-3 3 10.0.0.3", "{}", """{"folder": "/tmp/x"}"""))
      assert(intercept[RunFailedException](MpiPlace.parse(text)).getMessage.contains("cannot be read"), text)
  }

  test("a job starts and sums where the folder for temporary files has a space in its name") {
    val python = Paths.get(sys.props("user.home"), ".cache/sparkdl-bench/peers/mpi/bin/python")
    assume(Files.isExecutable(python), s"$python is not there: bring it with `sparkdl-bench peers install mpi`")
    val folder = Files.createDirectory(Files.createTempDirectory("mpi").resolve("with a space"))
    val options = s"-XX:+UseSerialGC '-Djava.io.tmpdir=$folder'"
    LocalCluster.run(2, 1, "spark.executor.extraJavaOptions" -> options) { sc =>
      val sent = LocalCluster.ranks(sc, 2, Settings.resolve(Map.empty, new Mpi().keys)) { group =>
        require(sys.props("java.io.tmpdir").endsWith("with a space"), sys.props("java.io.tmpdir"))
        Collectives.run(new Mpi().connect(_), group, Seq(10007), Seq("sliced"))
      }
      assert(sent.forall(_.keySet == Set("mpi")))
    }
  }
}
