package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite

class Fp32Suite extends AnyFunSuite with CodecLaws {
  laws(new Fp32, relativeError = Some(0))

  test("fp32 is found by its name") {
    assert(sparkdlbench.config.Variants.find[Codec]("codec", "fp32").isInstanceOf[Fp32])
  }
}
