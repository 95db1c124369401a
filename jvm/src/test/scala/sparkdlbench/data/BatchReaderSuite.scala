package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

import java.nio.{FloatBuffer, LongBuffer}
import sparkdlbench.common.ConfigurationException

class BatchReaderSuite extends AnyFunSuite {

  /** Row id is (id, id + 0.5), its class id mod 3. */
  private class Counting(val rows: Int) extends RowStore {
    def width = 2
    def label(id: Int): Long = id % 3L
    def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
      features.put(at * 2, id.toFloat).put(at * 2 + 1, id + 0.5f)
      labels.put(at, id % 3L)
    }
  }

  private def ids(features: FloatBuffer, rows: Int): Seq[Int] = (0 until rows).map { row =>
    assert(features.get(row * 2 + 1) == features.get(row * 2) + 0.5f)
    features.get(row * 2).toInt
  }

  test("all ranks' batches of an epoch are the epoch's order, for any number of workers") {
    val order = EpochOrder.permutation(5, 2, 103).toSeq
    (1 to 4).foreach { workers =>
      val plan = BatchPlan(103, 10, workers)
      val readers = (0 until workers).map(new TrainingReader(new Counting(103), plan, 5, _))
      val read = for (step <- 0 until plan.stepsPerEpoch; reader <- readers; batch = reader.read(2, step)) yield {
        (0 until batch.rows).foreach(row => assert(batch.labels.get(row) == ids(batch.features, batch.rows)(row) % 3))
        ids(batch.features, batch.rows)
      }
      assert(read.flatten == order)
    }
  }

  test("epochs may be read in any order, and a run's steps are counted through") {
    val plan = BatchPlan(20, 6, 2)
    val reader = new TrainingReader(new Counting(20), plan, 1, 1)
    val wanted = EpochOrder.permutation(1, 1, 20).slice(9, 12).toSeq
    val second = reader.read(1, 1)
    assert(ids(second.features, second.rows) == wanted)
    reader.read(0, 0)
    val again = reader.read(5L)
    assert(ids(again.features, again.rows) == wanted)
  }

  test("rows are read in the store's order for evaluation; an empty range is an empty batch") {
    val reader = new BatchReader(new Counting(10), 4)
    val batch = reader.readRange(5, 9)
    assert(batch.rows == 4 && ids(batch.features, 4) == Seq(5, 6, 7, 8))
    assert(reader.readRange(9, 9).rows == 0)
    assert(batch.features.isDirect && batch.labels.isDirect && batch.features.position() == 0)
  }

  test("a batch over the limit of a buffer is refused with the remedy") {
    val error = intercept[ConfigurationException](new BatchReader(new Counting(10), 1 << 29))
    assert(error.getMessage.contains("lower `batch`"))
  }
}
