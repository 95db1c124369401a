package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.results.Json

class ProgressSuite extends AnyFunSuite {

  test("the time left is that of steps this attempt has made, wherever it began") {
    var seconds = 0L
    val progress = new Progress(() => seconds * 1000000000L)
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
}
