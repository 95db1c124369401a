package sparkdlbench.topology

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.vector.{Buckets, FlatBuffer}

import scala.collection.mutable

/** `Collective.step`: the order of its calls. That its sums are right is for the laws of the topologies. */
class WholeStepSuite extends AnyFunSuite {

  test("a few buckets are contributed to ahead of the first sum, then one for each sum") {
    val noted = new Noted(40, Collective.AheadBytes / 4 / 8)
    noted.step(7)(_ => ())
    for (bucket <- 0 until 40) {
      val before = noted.calls.take(noted.calls.indexOf(s"reduce $bucket 7"))
      assert(before.count(_.startsWith("contribute")) == math.min(40, bucket + 8), s"bucket $bucket")
    }
    assert(noted.calls.filter(_.startsWith("contribute")) == (0 until 40).map(bucket => s"contribute $bucket 7"))
  }

  test("each bucket is reduced, shown to the caller and published in turn; all are collected, then flushed once") {
    val noted = new Noted(5, 100)
    noted.step(0)(bucket => noted.calls += s"reduced $bucket")
    val expected = (0 until 5).map(bucket => s"contribute $bucket 0") ++
      (0 until 5).flatMap(bucket => Seq(s"reduce $bucket 0", s"reduced $bucket", s"publish $bucket 0")) ++
      (0 until 5).map(bucket => s"collect $bucket 0") :+ "flush"
    assert(noted.calls == expected)
  }

  test("of buckets that are longer than what may be ahead, the next one is on its way all the same") {
    val noted = new Noted(3, Collective.AheadBytes)
    noted.step(0)(_ => ())
    assert(
      noted.calls.take(5) == Seq("contribute 0 0", "contribute 1 0", "reduce 0 0", "publish 0 0", "contribute 2 0")
    )
  }

  test("a vector without values is flushed") {
    val noted = new Noted(0, 1)
    noted.step(0)(_ => fail("there is no bucket"))
    assert(noted.calls == Seq("flush"))
  }

  private final class Noted(count: Int, bucketLength: Int) extends Collective {
    private val layout = Buckets(count * bucketLength, bucketLength)
    val calls: mutable.ArrayBuffer[String] = mutable.ArrayBuffer.empty
    def buckets: Int = layout.count
    def range(bucket: Int): (Int, Int) = (layout.from(bucket), layout.until(bucket))
    def owned(bucket: Int): (Int, Int) = range(bucket)
    def contribute(bucket: Int, sequence: Long): Unit = calls += s"contribute $bucket $sequence"
    def reduce(bucket: Int, sequence: Long): Unit = calls += s"reduce $bucket $sequence"
    def publish(bucket: Int, sequence: Long): Unit = calls += s"publish $bucket $sequence"
    def collect(bucket: Int, sequence: Long): Unit = calls += s"collect $bucket $sequence"
    def flush(): Unit = calls += "flush"
    def residual: Option[FlatBuffer] = None
    def encoded: Seq[EncodedRange] = Nil
    def roundsParameters: Boolean = false
  }
}
