package sparkdlbench.metrics

import org.apache.spark.sparkdlbench.KnownExecutor
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json

class SessionStartSuite extends AnyFunSuite {
  private def executor(id: Int, registered: Long, slots: Int = 2, gone: Option[Long] = None) =
    KnownExecutor(id.toString, s"10.0.0.$id:7000", slots, registered, gone)

  test("the last executor that a run needs is the one that fills its ranks") {
    val executors = Seq(executor(1, 3000), executor(2, 1000), executor(3, 2000))
    assert(SessionStart.registered(executors, 1, 9000) === Some(1000))
    assert(SessionStart.registered(executors, 2, 9000) === Some(1000))
    assert(SessionStart.registered(executors, 3, 9000) === Some(2000))
    assert(SessionStart.registered(executors, 6, 9000) === Some(3000))
  }

  test("one that was gone before the run counts for nothing, one that was lost in it does") {
    val executors = Seq(executor(1, 1000, gone = Some(2000)), executor(2, 1500, gone = Some(8000)), executor(3, 5000))
    assert(SessionStart.registered(executors, 4, 7000) === Some(5000))
    assert(SessionStart.registered(executors, 2, 7000) === Some(1500))
  }

  test("nobody is waited for after the run's clock has started, or where there is none") {
    assert(SessionStart.registered(Seq(executor(1, 1000), executor(2, 7005)), 4, 7000) === Some(7000))
    assert(SessionStart.registered(Seq(executor(1, 1000)), 4, 7000) === Some(1000))
    assert(SessionStart.registered(Nil, 4, 7000) === None)
  }

  test("as the summary has it") {
    val told = Json.read(Json.line(SessionStart(1000, Some(3500), isFirst = true).toMap))
    assert(told.path("context_started_ms").asLong === 1000 && told.path("executors_registered_ms").asLong === 3500)
    assert(told.path("cluster_manager_s").asDouble === 2.5 && told.path("first_run").asBoolean)
    val local = Json.read(Json.line(SessionStart(1000, None, isFirst = false).toMap))
    assert(local.path("executors_registered_ms").isNull && local.path("cluster_manager_s").isNull)
  }
}
