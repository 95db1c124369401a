package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.{RunKeys, Settings}

class ThresholdSuite extends AnyFunSuite with CodecLaws {
  private def configured(tau: String): Codec =
    new Threshold().configured(Settings.resolve(Map("codec.threshold" -> tau), RunKeys.own :+ Threshold.threshold))

  // Most values are sent with the first (bit map), few with the second (indices).
  laws(configured("0.015625"), relativeError = None)
  laws(configured("2.5"), relativeError = None)

  test("values at or beyond tau become plus or minus tau, others 0; the residual keeps the rest") {
    val codec = configured("0.5")
    val values = Array(0.4f, 0.5f, -0.75f, 1.75f, -0.49f, 0f)
    assert(decoded(codec, values).toSeq == Seq(0f, 0.5f, -0.5f, 0.5f, 0f, 0f))
    val residual = direct(Array(0.25f, 0f, 0f, 0f, -0.25f, 0f))
    codec.encode(direct(values), bytes(codec.maxBytes(6).toInt), residual)
    assert(array(residual).toSeq == Seq(0.4f + 0.25f - 0.5f, 0f, -0.25f, 1.25f, -0.49f - 0.25f + 0.5f, 0f))
  }

  test("few values travel as indices of 4 bytes, many as 2 bits each, never more than the bound") {
    val codec = configured("1")
    def bytesFor(sent: Int, size: Int) = encoded(codec, Array.tabulate(size)(i => if (i < sent) 2f else 0.5f)).remaining
    assert(bytesFor(0, 1000) == 8)
    assert(bytesFor(10, 1000) == 8 + 40)
    assert(bytesFor(63, 1000) == 8 + 63 * 4)
    assert(bytesFor(64, 1000) == 8 + 63 * 4)
    assert(bytesFor(1000, 1000) == 8 + 63 * 4)
    assert(codec.maxBytes(1000) == 8 + 63 * 4)
  }

  test("a message brings its own tau") {
    val target = direct(new Array[Float](2))
    configured("9").decode(encoded(configured("0.5"), Array(1f, -1f)), target)
    assert(array(target).toSeq == Seq(0.5f, -0.5f))
  }

  test("values that no threshold can stand for fail the run instead of staying in the residual for ever") {
    Seq(Float.NaN, Float.PositiveInfinity, Float.NegativeInfinity).foreach { bad =>
      val few = Array.fill(100)(0f).updated(50, bad)
      val many = Array.fill(100)(1f).updated(50, bad)
      Seq(few, many).foreach { values =>
        val message = intercept[RunFailedException](encoded(configured("0.5"), values)).getMessage
        assert(message.contains(bad.toString) && message.contains("place 50") && message.contains("learning_rate"))
      }
    }
  }

  test("thresholds that are not above 0 are refused") {
    Seq("0", "-1", "1e-60", "1e60", "x").foreach(tau => intercept[ConfigurationException](configured(tau)))
  }
}
