package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings, Variants}

/** What holds for the codecs together. */
class CodecsSuite extends AnyFunSuite with CodecLaws {
  private val all = Variants.all[Codec]
  private val settings = Settings.resolve(Map.empty, RunKeys.own ++ all.flatMap(_.keys))

  // So a new one obeys them before it has a suite. Residuals are exact with few parameters alone: their codecs' suites choose some.
  all.filterNot(_.keepsResidual).foreach(codec => laws(codec.configured(settings), relativeError = None))

  test("every codec is found by scanning, and keeps its name and its own defaults when it is configured") {
    assert(Set("bf16", "fp16", "fp32", "threshold", "topk").subsetOf(all.map(_.name).toSet))
    all.foreach { codec =>
      val configured = codec.configured(settings)
      assert(configured.name == codec.name)
      Seq(0, 1, 999).foreach(count => assert(configured.maxBytes(count) == codec.maxBytes(count)))
    }
  }

  test("fp32 is lossless, and lossless codecs keep no residual") {
    assert(all.exists(codec => codec.name == "fp32" && codec.lossless))
    all.foreach(codec => assert(!(codec.lossless && codec.keepsResidual), codec.name))
  }

  test("the largest vectors do not overflow the formulas") {
    all.foreach(codec =>
      assert(codec.maxBytes(Int.MaxValue / 4) > 0 && codec.maxBytes(Int.MaxValue / 4) <= 4L * Int.MaxValue)
    )
  }
}
