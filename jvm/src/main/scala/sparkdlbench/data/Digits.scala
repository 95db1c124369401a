package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.config.{Key, Settings}

import java.nio.charset.StandardCharsets

/**
 * The optical digits of E. Alpaydin and C. Kaynak (UCI, 1998, CC BY 4.0): 1,797 images of 8 × 8, pixels 0..16 scaled to
 * 0..1. Embedded, so that a first run needs no file. Every fifth row (ids 4, 9, 14, …) is for testing: 1,438 rows
 * train, 359 test.
 */
final class Digits extends DataSource {
  def name = "digits"
  def doc = "1,797 handwritten digits of 8 × 8 pixels, embedded: nothing to download"
  override def keys: Seq[Key[_]] = DataKeys.changes

  def inspect(settings: Settings, hadoop: Configuration): DataFacts = {
    val sets = Digits.sets
    Pipeline.facts(
      DataFacts(
        sets.train.rows,
        sets.test.rows,
        Digits.Shape,
        Digits.Classes,
        "optical digits, 8 × 8 pixels, every fifth row tests (Alpaydin and Kaynak, UCI 1998, CC BY 4.0)",
        (sets.train.rows + sets.test.rows) * (Digits.Width + 4L),
        input = RowInput(Digits.Shape, factor = Digits.Scale)
      ),
      settings
    )
  }

  def open(settings: Settings, hadoop: Configuration): DataSets = Pipeline.sets(Digits.sets, Digits.Shape, settings)
}

object Digits {
  val Shape: Seq[Int] = Seq(1, 8, 8)
  val Width: Int = Shape.product
  val Classes = 10
  private val Scale = 1.0 / 16
  private val Resource = "/sparkdlbench/digits.txt"

  private lazy val sets: DataSets = {
    val lines = read().filterNot(line => line.isEmpty || line.startsWith("#"))
    val (test, train) = lines.zipWithIndex.partition { case (_, id) => id % 5 == 4 }
    DataSets(store(train.map(_._1)), store(test.map(_._1)))
  }

  private def read(): Seq[String] = {
    val stream = Option(getClass.getResourceAsStream(Resource))
      .getOrElse(throw new AssertionError(s"the jar lacks its resource $Resource"))
    try new String(stream.readAllBytes(), StandardCharsets.US_ASCII).split('\n').toSeq
    finally stream.close()
  }

  private def store(lines: Seq[String]): RowStore = {
    val blocks = RowBlocks.onHeap(lines.length, Width)
    lines.zipWithIndex.foreach { case (line, row) =>
      blocks.write(row, Array.tabulate(Width)(column => Character.digit(line.charAt(column), 17).toByte))
    }
    val labels = lines.map(line => line.substring(Width + 1).trim.toInt).toArray
    new HeldRowStore(blocks, ValueKind.UInt8, labels, Scale)
  }
}
