package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

class TakenRowsSuite extends AnyFunSuite {
  private def taken(all: Int, share: String): TakenRows =
    TakenRows.of(all, Settings.resolve(Map("data.share" -> share), Seq(DataKeys.share)))
  private def ids(rows: TakenRows): Seq[Int] = (0 until rows.rows).map(row => rows(row))

  test("one row of each stretch, in order; one at least, and all of them where the share is 1") {
    for (all <- Seq(1, 2, 7, 100, 1438, 60000); share <- Seq("0.001", "0.1", "0.29", "0.5", "0.93", "1")) {
      val rows = taken(all, share)
      val (found, size, count) = (ids(rows), all.toLong, rows.rows)
      assert(rows.rows == math.max(1, math.round(all * share.toDouble)), s"$share of $all")
      assert(found.zipWithIndex.forall { case (id, stretch) =>
        id >= stretch * size / count && id < (stretch + 1) * size / count
      })
      assert((0 until all).filter(id => rows.has(id)) == found && !rows.has(-1))
      val members = found.toSet
      val before = (0 until all).scanLeft(0)((sum, id) => if (members(id)) sum + 1 else sum)
      assert((0 to all).map(id => rows.before(id)) == before)
    }
    assert(ids(taken(1438, "1")) == (0 until 1438))
    assert(taken(100, "0.29").rows == 29, "though 100 × 0.29 is a little less in fp64")
  }

  test("the rows are the published ones, on every platform") {
    // The same stand in tests/comparison/test_plan.py.
    assert(ids(taken(20, "0.4")) == Seq(0, 3, 6, 7, 11, 14, 16, 17))
  }

  test("classes keep their shares, be the rows sorted by class or the classes in turns") {
    for (share <- Seq("0.1", "0.2", "0.5")) {
      val found = ids(taken(1000, share))
      val wanted = share.toDouble * 100
      for (label <- 0 until 10) {
        assert(found.count(_ / 100 == label) == wanted.toInt)
        val inTurns = found.count(_ % 10 == label)
        assert(inTurns > wanted / 3 && inTurns < wanted * 2, s"$share of class $label: $inTurns")
      }
    }
  }

  test("the largest counts do not overflow") {
    val half = taken(Int.MaxValue, "0.5")
    assert(half.rows == 1 << 30 && half(half.rows - 1) >= Int.MaxValue - 2 && half.has(half(half.rows - 1)))
    assert(half.before(Int.MaxValue) == half.rows)
    val one = taken(Int.MaxValue, "1e-12")
    assert(one.rows == 1 && one(0) == 0 && one.before(Int.MaxValue) == 1)
  }

  test("a share that is none is refused") {
    Seq("0", "-0.5", "1.5", "NaN", "half").foreach { text =>
      val message = intercept[ConfigurationException](taken(10, text)).getMessage
      assert(message.contains(s"'$text'") && message.contains("a number above 0, at most 1"), message)
    }
  }

  private val hadoop = new Configuration(false)
  for (
    (source, more) <- Seq[(DataSource, Map[String, String])](
      (new Digits, Map.empty),
      (new Synthetic, Map("data.rows" -> "90", "data.test_rows" -> "7", "data.shape" -> "3"))
    )
  )
    test(s"of ${source.name} the rows that are taken train, and all test rows test") {
      def settings(share: String): Settings =
        Settings.resolve(more ++ Map("data.share" -> share), RunKeys.own ++ source.keys)
      val (whole, some) = (source.open(settings("1"), hadoop), source.open(settings("0.3"), hadoop))
      val (all, train) = (SourceFixture.rows(whole.train), SourceFixture.rows(some.train))
      assert(train == ids(taken(all.size, "0.3")).map(all(_)))
      assert(SourceFixture.rows(some.test) == SourceFixture.rows(whole.test))
      val facts = source.inspect(settings("0.3"), hadoop)
      assert((facts.trainRows, facts.testRows) == ((train.size, whole.test.rows)))
    }
}
