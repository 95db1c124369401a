package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.RunKeys

/** What a run takes from its session. (Whole runs: `TrainingSuite`.) */
class TrainingRunSuite extends AnyFunSuite {
  test("a worker has the threads of its task's cores, unless engine.threads names a number") {
    def threads(settings: Map[String, String], properties: Map[String, String]): Int =
      TrainingRun.threadsOf(RunKeys.resolve(settings), properties.get)
    val twoCores = Map("spark.task.cpus" -> "2")
    assert(threads(Map.empty, Map.empty) === 1)
    assert(threads(Map.empty, twoCores) === 2)
    assert(threads(Map("engine.threads" -> "3"), twoCores) === 3)
  }
}
