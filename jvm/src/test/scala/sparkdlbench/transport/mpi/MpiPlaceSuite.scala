package sparkdlbench.transport.mpi

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.PushPeer

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
}
