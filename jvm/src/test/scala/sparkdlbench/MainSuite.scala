package sparkdlbench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Facts

import scala.util.Properties

/** Which Spark and Scala the jar takes. (Through spark-submit: tests/test_wheel.py.) */
class MainSuite extends AnyFunSuite {
  private def fits(line: String, built: String, spark: String, running: String): Boolean =
    !Main.mismatch(line, built, spark, running).isPresent

  test("the jar's own Spark line and Scala fit, whatever their last numbers are") {
    assert(fits("3.5", "2.12.18", "3.5.9", "2.12.19"))
    assert(fits("4", "2.13.16", "4.0.5", "2.13.17") && fits("4", "2.13.16", "4.3.0-mine", "2.13.18"))
    assert(fits("4", "2.13.16", "", "2.13.17"))
    assert(
      fits(
        Facts.build("spark_line"),
        Facts.build("scala"),
        org.apache.spark.SPARK_VERSION,
        Properties.versionNumberString
      )
    )
  }

  test("another Spark or another Scala is refused with the jar to use") {
    assert(!fits("4", "2.13.16", "3.5.9", "2.13.17"))
    assert(!fits("3.5", "2.12.18", "3.5.9", "2.13.8"))
    assert(!fits("3.5", "2.12.18", "", "2.13.17"))
    val message = Main.mismatch("4", "2.13.16", "3.5.9", "2.12.18").get
    assert(message.contains("built for Spark 4.x with Scala 2.13, and Spark 3.5.9 with Scala 2.12.18 runs it"))
    assert(message.contains("Use sparkdl-bench-spark-3.5_2.12 with Spark 3.5"))
  }
}
