package sparkdlbench.transport.ucx
package fuzz

import sparkdlbench.fuzz.FuzzTarget

import java.nio.charset.StandardCharsets.UTF_8

object UcxAddressFuzz extends FuzzTarget("ucx-address") {
  def seeds: Seq[Array[Byte]] = Seq(UcxAddress.print(UcxAddress.here(Array[Byte](1, 2, 3))).getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = UcxAddress.parse(new String(input, UTF_8)): Unit
}
