package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings, Variants}

class DigitsSuite extends AnyFunSuite {
  private val source = new Digits
  private val settings = Settings.resolve(Map.empty, RunKeys.own)
  private val sets = source.open(settings, new Configuration(false))

  test("the facts are those of the published set") {
    val facts = source.inspect(settings, new Configuration(false))
    assert((facts.trainRows, facts.testRows, facts.shape, facts.classes) == ((1438, 359, Seq(1, 8, 8), 10)))
    assert(Variants.find[DataSource]("data source", "digits").isInstanceOf[Digits])
  }

  test("rows and labels are the published ones: class counts, first row, sum of all pixels") {
    val batches = Seq(sets.train, sets.test).map(store => new BatchReader(store, store.rows).readRange(0, store.rows))
    val labels = batches.flatMap(batch => (0 until batch.rows).map(row => batch.labels.get(row).toInt))
    assert((0 to 9).map(digit => labels.count(_ == digit)) == Seq(178, 182, 177, 183, 181, 182, 181, 179, 174, 180))
    val first = (0 until 64).map(column => (batches.head.features.get(column) * 16).toInt)
    assert(first.take(16) == Seq(0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0))
    val sum = batches.map(batch => (0 until batch.rows * 64).map(i => (batch.features.get(i) * 16).toLong).sum).sum
    assert(sum == PublishedPixelSum)
  }

  test("values are 0 to 1 and every fifth row tests: the fifth published row is the first test row, a 4") {
    val batch = new BatchReader(sets.test, 1).readRange(0, 1)
    assert(batch.labels.get(0) == 4)
    assert((0 until 64).forall(i => batch.features.get(i) >= 0 && batch.features.get(i) <= 1))
  }

  test("nothing asked, nothing done; normalised, cropped and mirrored where that is asked for") {
    val again = source.open(settings, new Configuration(false))
    assert((again.train eq sets.train) && (again.test eq sets.test) && again.augmentation.isEmpty)
    val asked = Settings.resolve(
      Map("data.normalize" -> "mean", "data.crop" -> "6", "data.flip" -> "true"),
      RunKeys.own ++ source.keys
    )
    val facts = source.inspect(asked, new Configuration(false))
    val changed = source.open(asked, new Configuration(false))
    assert(facts.shape == Seq(1, 6, 6) && changed.test.width == 36)
    assert(changed.augmentation.exists(_.outShape == Seq(1, 6, 6)))
    val batch = new BatchReader(changed.train, changed.train.rows).readRange(0, changed.train.rows)
    val means = (0 until 64).map { column =>
      (0 until batch.rows).map(row => batch.features.get(row * 64 + column).toDouble).sum / batch.rows
    }
    assert(means.forall(mean => math.abs(mean) < 1e-5), means)
  }

  private val PublishedPixelSum = 561718L
}
