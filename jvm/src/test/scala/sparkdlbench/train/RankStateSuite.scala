package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.vector.{FlatBuffer, VectorFile}

/** What becomes of a rank's engine where its state cannot be made. */
class RankStateSuite extends AnyFunSuite {

  private final class Held extends IdleEngine {
    var (closed, released) = (0, 0)
    val gradients = new FlatBuffer(3)
    val parameters: FlatBuffer =
      FlatBuffer.over(new FlatBuffer(16).bytes, 16, Some(new VectorFile("", 64, "", () => released += 1)))
    val statistics = new FlatBuffer(0)
    override def close(): Unit = closed += 1
  }

  test("where a rank's weights cannot be filled its engine is closed, and its mapped vectors are released") {
    val engine = new Held
    val lost = new IllegalStateException("the broadcast is gone")
    assert(intercept[IllegalStateException](RankState.orClosed(engine)(throw lost)) eq lost)
    assert((engine.closed, engine.released) == ((1, 1)))
  }

  test("where they can the engine stays open") {
    val engine = new Held
    assert(RankState.orClosed(engine)(7) == 7)
    assert((engine.closed, engine.released) == ((0, 0)))
  }
}
