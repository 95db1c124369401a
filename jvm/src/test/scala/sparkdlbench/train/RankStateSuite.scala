package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.rank.{RankSide, Snapshot, StateRange}
import sparkdlbench.transport.LocalCluster
import sparkdlbench.vector.{FlatBuffer, VectorFile}

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

/** What becomes of a rank's engine where its state cannot be made, and of what an exchange keeps at a rank. */
class RankStateSuite extends AnyFunSuite {
  import RankStateSuite.Side

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

  test(
    "where Spark repeats the task that sets an exchange up the rank keeps the later side, and the earlier one is closed"
  ) {
    LocalCluster.run(1, 1) { sc =>
      val settings = Map("workers" -> "1", "batch" -> "50", "model.hidden" -> "32", "transport" -> "block-manager")
      val results = Files.createTempDirectory("results").toString
      val group = new RankGroup(sc, TrainingRun.prepare(sc, settings + ("results" -> results)).setup)
      try {
        for (number <- 1 to 2) group.run(_.keep(new Side(number)))
        assert(group.run(state => (state.side[Side].number, Side.closed.get)) == Seq((2, 1)))
      } finally group.close()
    }
  }
}

private object RankStateSuite {

  /** In an executor. */
  final class Side(val number: Int) extends RankSide {
    def state: Seq[StateRange] = Nil
    def restore(snapshot: Snapshot): Unit = ()
    override def close(): Unit = { Side.closed.incrementAndGet(); () }
  }

  object Side { val closed = new AtomicInteger }
}
