package sparkdlbench.transport.mpi
package fuzz

import sparkdlbench.fuzz.FuzzTarget
import sparkdlbench.transport.push.PushPeer

import java.nio.charset.StandardCharsets.UTF_8

object MpiPlaceFuzz extends FuzzTarget("mpi-place") {
  private val peer = PushPeer(1, "host", 7, "exec", "p", "k", encrypted = false, 5)
  def seeds: Seq[Array[Byte]] = Seq(MpiPlace.print(MpiPlace("/tmp/a b", "python3", "host", peer)).getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = MpiPlace.parse(new String(input, UTF_8)): Unit
}
