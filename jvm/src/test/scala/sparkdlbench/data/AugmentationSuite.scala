package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

class AugmentationSuite extends AnyFunSuite {
  import SourceFixture.rows

  private val (height, width) = (5, 6)

  /** Two channels; a pixel says its row, channel and place: id · 1000 + channel · 100 + y · 10 + x + 1. */
  private val store: RowStore = {
    val blocks = RowBlocks.onHeap(40, 2 * height * width * 4)
    (0 until 40).foreach { id =>
      val bytes = java.nio.ByteBuffer.allocate(blocks.rowBytes).order(java.nio.ByteOrder.LITTLE_ENDIAN)
      for (c <- 0 until 2; y <- 0 until height; x <- 0 until width) bytes.putFloat(pixel(id, c, y, x))
      blocks.write(id, bytes.array)
    }
    new HeldRowStore(blocks, ValueKind.Float32, Array.tabulate(40)(_ % 3), 1)
  }
  private def pixel(id: Int, c: Int, y: Int, x: Int): Float = id * 1000f + c * 100 + y * 10 + x + 1

  private def of(more: (String, String)*): Option[Augmentation] =
    Augmentation.of(Seq(2, height, width), Settings.resolve(more.toMap, RunKeys.own ++ Augmentation.keys))

  /** Which window a row was made from: (top, left, mirrored), found by trying all. */
  private def windowOf(id: Int, values: Seq[Float], side: (Int, Int), padding: Int): Option[(Int, Int, Boolean)] = {
    val tries = for {
      top <- -padding to height + padding - side._1
      left <- -padding to width + padding - side._2
      mirrored <- Seq(false, true)
    } yield (top, left, mirrored)
    tries.find { case (top, left, mirrored) =>
      val wanted = for (c <- 0 until 2; y <- top until top + side._1; i <- 0 until side._2) yield {
        val x = left + (if (mirrored) side._2 - 1 - i else i)
        if (y >= 0 && y < height && x >= 0 && x < width) pixel(id, c, y, x) else 0f
      }
      wanted == values
    }
  }

  test("each training row is a window of its own image, and all windows and both sides come up") {
    val augmentation = of("data.padding" -> "2", "data.crop" -> "4", "data.flip" -> "true").get
    assert(augmentation.outShape == Seq(2, 4, 4))
    val found = (0 until 20).flatMap { epoch =>
      rows(augmentation.training(store, epoch)).zipWithIndex.map { case ((label, values), id) =>
        assert(label == id % 3)
        windowOf(id, values, (4, 4), 2).getOrElse(fail(s"row $id of epoch $epoch is no window"))
      }
    }
    assert(found.toSet.size == 6 * 7 * 2, "every place and side")
    assert(math.abs(found.count(_._3) - 400) < 80)
  }

  test("what happens to a row depends on seed, epoch and id, not on the batch or the rank it is in") {
    val augmentation = of("data.padding" -> "1").get
    val whole = rows(augmentation.training(store, 3))
    assert(whole == rows(augmentation.training(store, 3)))
    assert(whole != rows(augmentation.training(store, 4)))
    assert(whole != rows(of("data.padding" -> "1", "seed" -> "1").get.training(store, 3)))
    val plan = BatchPlan(40, 16, 3)
    val order = EpochOrder.permutation(9, 1, 40)
    val readers = (0 until 3).map(new TrainingReader(store, plan, 9, _, Some(augmentation)))
    val read =
      for (
        step <- 0 until plan.stepsPerEpoch; reader <- readers; batch = reader.read(1, step); row <- 0 until batch.rows
      )
        yield (0 until 60).map(i => batch.features.get(row * 60 + i))
    val epoch = rows(augmentation.training(store, 1))
    assert(read == order.toSeq.map(epoch(_)._2))
  }

  test("test rows are cropped in the centre and otherwise left alone") {
    val cropped = rows(of("data.crop" -> "3", "data.flip" -> "true").get.testing(store))
    cropped.zipWithIndex.foreach { case ((_, values), id) =>
      assert(windowOf(id, values, (3, 3), 0).contains((1, 1, false)))
    }
    assert(of("data.padding" -> "4", "data.flip" -> "true").get.testing(store) eq store)
  }

  test("nothing asked, nothing done; senseless wishes are refused") {
    assert(of().isEmpty)
    assert(intercept[ConfigurationException](of("data.crop" -> "6")).getMessage.contains("5 or less"))
    val flat = Settings.resolve(Map("data.flip" -> "true"), RunKeys.own ++ Augmentation.keys)
    assert(intercept[ConfigurationException](Augmentation.of(Seq(784), flat)).getMessage.contains("784"))
  }
}
