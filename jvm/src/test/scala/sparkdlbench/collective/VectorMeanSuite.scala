package sparkdlbench.collective

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup}
import sparkdlbench.vector.FlatBuffer

class VectorMeanSuite extends AnyFunSuite {

  /** Every rank's vector after `times` averages, before each of which rank r adds r + 1 to all of its values. */
  private def run(ranks: Int, length: Int, times: Int, conditions: InMemoryConditions): IndexedSeq[Seq[Float]] =
    ThreadGroup.run(ranks, conditions) { transport =>
      val vector = new FlatBuffer(length)
      val mean = new VectorMean(transport, vector, transport.size)
      for (_ <- 0 until times) {
        for (i <- 0 until length) vector.floats.put(i, vector.floats.get(i) + transport.rank + 1)
        mean.average()
      }
      vector.toArray.toSeq
    }

  for (ranks <- Seq(1, 2, 3, 5); length <- Seq(1, 3, 5000))
    test(s"the mean, the same bits everywhere: $ranks ranks, $length values") {
      val found = run(ranks, length, 4, InMemoryConditions(delaySeed = Some(ranks.toLong)))
      val expected = (1 to ranks).sum.toDouble / ranks
      assert(found.distinct.size == 1)
      found.head.foreach(value => assert((value - 4 * expected).abs < 1e-5))
    }

  test("it sends two messages of the vector for each rank but the first, and none besides") {
    val bytes = ThreadGroup.run(3) { transport =>
      val mean = new VectorMean(transport, new FlatBuffer(100), transport.size)
      mean.average()
      mean.average()
      transport.bytesSent.filterNot(_._1.endsWith(".framing")).values.sum
    }
    assert(bytes.sum == 2 * 2 * 2 * 400)
    assert(bytes.head == 2 * 2 * 400)
  }
}
