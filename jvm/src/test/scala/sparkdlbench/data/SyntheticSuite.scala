package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

class SyntheticSuite extends AnyFunSuite {
  private val source = new Synthetic
  private val hadoop = new Configuration(false)
  private def settings(more: (String, String)*): Settings = Settings.resolve(more.toMap, RunKeys.own ++ source.keys)

  private def rowsOf(store: RowStore, count: Int): Seq[(Int, Seq[Float])] = {
    val batch = new BatchReader(store, count).readRange(0, count)
    (0 until count).map { row =>
      (batch.labels.get(row).toInt, (0 until store.width).map(column => batch.features.get(row * store.width + column)))
    }
  }

  test("the facts are those that were asked for") {
    val set = settings("data.rows" -> "123", "data.test_rows" -> "45", "data.shape" -> "3,8,8", "data.classes" -> "7")
    val facts = source.inspect(set, hadoop)
    assert((facts.trainRows, facts.testRows, facts.shape, facts.classes) == ((123, 45, Seq(3, 8, 8), 7)))
    val sets = source.open(set, hadoop)
    assert((sets.train.rows, sets.test.rows, sets.train.width) == ((123, 45, 192)))
    assert(rowsOf(sets.train, 123).map(_._1).toSet == (0 until 7).toSet)
  }

  test("a row depends on seed and id alone") {
    val one = rowsOf(source.open(settings("seed" -> "4"), hadoop).train, 20)
    assert(rowsOf(source.open(settings("seed" -> "4", "data.rows" -> "50"), hadoop).train, 20) == one)
    assert(rowsOf(source.open(settings("seed" -> "5"), hadoop).train, 20) != one)
    val sets = source.open(settings("seed" -> "4"), hadoop)
    assert(rowsOf(sets.test, 20) != one)
    val backwards = new BatchReader(sets.train, 2).read(Array(19, 3), 0, 2)
    assert((0 until 784).map(i => backwards.features.get(i)) == one(19)._2)
    assert((0 until 784).map(i => backwards.features.get(784 + i)) == one(3)._2)
    assert(one.map(_._2).distinct.length == 20)
  }

  test("rows wider than the staging array are made in one piece") {
    val wide = rowsOf(source.open(settings("data.shape" -> "10000"), hadoop).train, 1).head._2
    assert(wide.length == 10000 && wide.distinct.length > 9000)
    val mean = wide.map(_.toDouble).sum / 10000
    assert(math.abs(mean) < 0.03)
  }

  test("the class with the nearest mean is the right one for nearly all test rows, at any width, but not for all") {
    Seq("16", "784", "3,32,32").foreach { shape =>
      val sets = source.open(settings("data.shape" -> shape, "data.rows" -> "6000", "data.test_rows" -> "1500"), hadoop)
      val accuracy = nearestMeanAccuracy(rowsOf(sets.train, 6000), rowsOf(sets.test, 1500))
      assert(accuracy > 0.93 && accuracy < 1, s"shape $shape: $accuracy")
    }
  }

  private def nearestMeanAccuracy(train: Seq[(Int, Seq[Float])], test: Seq[(Int, Seq[Float])]): Double = {
    val means = train.groupBy(_._1).map { case (label, rows) =>
      val sum = new Array[Double](rows.head._2.length)
      rows.foreach { case (_, row) => var i = 0; row.foreach { value => sum(i) += value; i += 1 } }
      label -> sum.map(_ / rows.length)
    }
    val right = test.count { case (label, row) =>
      means.minBy { case (_, mean) => mean.zip(row).map { case (a, b) => (a - b) * (a - b) }.sum }._1 == label
    }
    right.toDouble / test.length
  }

  test("rows are scaled, normalised and cropped as those of other sources") {
    val plain = rowsOf(source.open(settings("data.shape" -> "3,8,8"), hadoop).train, 30)
    val scaled = rowsOf(source.open(settings("data.shape" -> "3,8,8", "data.scale" -> "2"), hadoop).train, 30)
    assert(scaled == plain.map { case (label, values) => (label, values.map(_ * 2)) })
    assert(rowsOf(source.open(settings("data.shape" -> "3,8,8", "data.scale" -> "1"), hadoop).train, 30) == plain)
    val asked =
      settings("data.shape" -> "3,8,8", "data.rows" -> "500", "data.normalize" -> "standard", "data.crop" -> "4")
    assert(source.inspect(asked, hadoop).shape == Seq(3, 4, 4))
    val sets = source.open(asked, hadoop)
    assert(sets.test.width == 48 && sets.augmentation.exists(_.outShape == Seq(3, 4, 4)))
    val first = rowsOf(sets.train, 500).map(_._2.head.toDouble)
    assert(math.abs(first.sum / 500) < 1e-4 && math.abs(first.map(value => value * value).sum / 500 - 1) < 1e-3)
  }

  test("a shape without values or of too many is refused") {
    Seq("", "65536,65536", "3,-1").foreach { shape =>
      val error = intercept[ConfigurationException](settings("data.shape" -> shape))
      assert(error.getMessage.contains("'data.shape'"))
    }
  }
}
