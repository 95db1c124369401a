package sparkdlbench

import org.scalactic.source.Position
import org.scalatest.Tag
import org.scalatest.funsuite.AnyFunSuite

/**
 * A suite whose subject has nothing of Spark in it (engines, parsers, schedules on threads). It is compiled for every Spark
 * line, and run on the default one alone: on the others its tests are ignored, which the totals count as skipped.
 */
abstract class OnOneLine extends AnyFunSuite {
  override protected def test(name: String, tags: Tag*)(body: => Any)(implicit position: Position): Unit =
    if (org.apache.spark.SPARK_VERSION.startsWith("3.")) ignore(name, tags: _*)(body)
    else super.test(name, tags: _*)(body)
}
