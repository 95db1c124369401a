package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings, Variants}

/** What holds for the codecs together. */
class CodecsSuite extends AnyFunSuite {
  private val all = Variants.all[Codec]

  test("every codec is found by scanning, and keeps its name and its own defaults when it is configured") {
    assert(all.map(_.name) == Seq("bf16", "fp16", "fp32", "threshold", "topk"))
    val settings = Settings.resolve(Map.empty, RunKeys.own ++ all.flatMap(_.keys))
    all.foreach { codec =>
      val configured = codec.configured(settings)
      assert(configured.name == codec.name)
      Seq(0, 1, 999).foreach(count => assert(configured.maxBytes(count) == codec.maxBytes(count)))
    }
  }

  test("no codec but a lossless one claims to be lossless, and lossless ones keep no residual") {
    all.foreach(codec => assert(codec.lossless == (codec.name == "fp32") && !(codec.lossless && codec.keepsResidual)))
  }

  test("the largest vectors do not overflow the formulas") {
    all.foreach(codec =>
      assert(codec.maxBytes(Int.MaxValue / 4) > 0 && codec.maxBytes(Int.MaxValue / 4) <= 4L * Int.MaxValue)
    )
  }
}
