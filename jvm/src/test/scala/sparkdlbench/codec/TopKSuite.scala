package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.{RunKeys, Settings}

class TopKSuite extends AnyFunSuite with CodecLaws {
  private def configured(fraction: String): Codec =
    new TopK().configured(Settings.resolve(Map("codec.k_fraction" -> fraction), RunKeys.own :+ TopK.kFraction))

  laws(configured("0.01"), relativeError = None)
  laws(configured("0.5"), relativeError = None)
  laws(configured("1"), relativeError = Some(0))

  test("exactly the k largest magnitudes are sent, as they are; equal ones in the order of their places") {
    val random = new scala.util.Random(8)
    Seq(1, 2, 10, 1024, 5003).foreach { size =>
      Seq(
        Array.fill(size)(random.nextGaussian().toFloat),
        Array.fill(size)((random.nextInt(7) - 3).toFloat),
        Array.fill(size)(1f)
      ).foreach { values =>
        Seq("0.001", "0.1", "0.3", "0.999").foreach { fraction =>
          val k = math.ceil(size * fraction.toDouble).toInt
          val chosen = values.indices.sortBy(i => (-math.abs(values(i)), i)).take(k).toSet
          val wanted = values.indices.map(i => if (chosen(i)) values(i) else 0f)
          assert(decoded(configured(fraction), values).toSeq == wanted, s"size $size fraction $fraction")
        }
      }
    }
  }

  test("at least one value of a vector is sent, none of an empty one") {
    assert(configured("0.0001").maxBytes(5) == 8 && configured("0.0001").maxBytes(0) == 0)
  }

  test("NaN and infinities are sent first, so that they show") {
    val found =
      decoded(configured("0.02"), Array.fill(100)(1e30f).updated(70, Float.NaN).updated(20, Float.NegativeInfinity))
    assert(found(70).isNaN && found(20).isNegInfinity && found.count(_ != 0f) == 2)
  }

  test("a small value that always loses is sent once its residual has grown") {
    val codec = configured("0.5")
    val residual = direct(new Array[Float](2))
    val sums = new Array[Float](2)
    (1 to 8).foreach { _ =>
      val message = bytes(8)
      codec.encode(direct(Array(1f, 0.25f)), message, residual)
      val sent = direct(new Array[Float](2))
      codec.decode(message, sent)
      sums(0) += sent.get(0)
      sums(1) += sent.get(1)
    }
    assert(sums(1) >= 1f && sums(0) + residual.get(0) == 8f && sums(1) + residual.get(1) == 2f)
  }

  test("a message of another length, and fractions outside 0 to 1, are refused") {
    intercept[RunFailedException](
      configured("0.5").decode(encoded(configured("0.5"), ordinary(10)), direct(ordinary(20)))
    )
    Seq("0", "1.01", "-1", "x").foreach(fraction => intercept[ConfigurationException](configured(fraction)))
  }
}
