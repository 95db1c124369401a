package sparkdlbench.common

import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite

class FailuresSuite extends AnyFunSuite {
  test("our own sentence is found in the chain of causes") {
    val wrapped =
      new SparkException("Job aborted", new RuntimeException("x", new ConfigurationException("The sentence.")))
    assert(Failures.reason(wrapped) === "The sentence.")
  }

  test("our own sentence is found in the text that Spark makes of a task's failure") {
    val text =
      "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in stage 3.0 " +
        "(TID 9) (host executor 0): sparkdlbench.common.RunFailedException: Rank 1 on host did not find the slice.\n\tat sparkdlbench.X.y(X.scala:1)\n\n" +
        "Driver stacktrace:"
    assert(Failures.reason(new SparkException(text)) === "Rank 1 on host did not find the slice.")
  }

  test("anything else keeps its kind and its first words, and a cycle of causes ends") {
    assert(Failures.reason(new IllegalStateException("odd\n\tat a.b")) === "IllegalStateException: odd")
    val first = new RuntimeException("first")
    val second = new RuntimeException("second", first)
    first.initCause(second)
    assert(Failures.reason(second).startsWith("RuntimeException"))
    assert(Failures.reason(new RunFailedException("plain")) === "plain")
  }
}
