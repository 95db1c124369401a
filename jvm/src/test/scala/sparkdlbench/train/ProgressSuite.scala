package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json
import sparkdlbench.engine.Evaluation
import sparkdlbench.loss.ErrorSums

class ProgressSuite extends AnyFunSuite {

  test("the time left is that of steps this attempt has made, wherever it began") {
    var seconds = 0L
    val progress = new RunProgress(() => seconds * 1000000000L)
    def told = Json.read(progress.json(None)).path("seconds_left")
    def left: Option[Double] = Some(told).filterNot(_.isNull).map(_.asDouble)
    progress.planned(10, 2000)
    progress.stepDone(1000, 1.0, 1.0) // it goes on from a checkpoint
    assert(left.isEmpty)
    seconds = 10
    progress.stepDone(1100, 1.0, 1.0)
    assert(left.contains(90.0))
    seconds = 60
    progress.attemptBegan() // a loss, a wait for another executor, and back to a checkpoint
    assert(left.isEmpty)
    seconds = 100
    progress.stepDone(1050, 1.0, 1.0)
    assert(left.isEmpty)
    seconds = 105
    progress.stepDone(1150, 1.0, 1.0)
    assert(left.contains(42.5))
    progress.stepDone(2000, 1.0, 1.0)
    assert(left.isEmpty)
  }

  test("of a regression errors are told in place of the accuracy") {
    val progress = new RunProgress
    progress.evaluated(Evaluation(4, 2.0, 3))
    assert(progress.line.contains(" test accuracy 0.7500 "))
    progress.evaluated(Evaluation(4, 2.0, 0, Some(ErrorSums(4, 2.0, 4.0, 0.5, 16.0))))
    assert(progress.line.contains(" test RMSE 1.0000 R² 0.7500 "), progress.line)
    val told = Json.read(progress.json(None))
    assert(told.path("test_accuracy").isNull && told.path("test_rmse").asDouble == 1.0)
  }

  test("before a step the line says what is waited for, and no loss that nobody knows") {
    val progress = new RunProgress
    progress.planned(10, 2000)
    progress.does("waiting for 5 slots, 2 registered")
    assert(progress.line == "epoch 0/10 step 0/2000 (waiting for 5 slots, 2 registered)")
    progress.stepDone(7, 2.5285, 100)
    assert(progress.line == "epoch 0/10 step 7/2000 loss 2.5285 100 rows/s")
  }
}
