package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.LocalRuns

/** How the kind of a failure reaches whoever waits for the run. */
class FailedRunSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("workers" -> "2", "epochs" -> "1", "transport" -> "tcp")

  private def kind(progress: String): String = Json.read(progress).path("error_kind").asText

  test("what a rank finds that the user can correct is a wrong configuration, for whoever polls as well") {
    val run = prepared("tcp.interface" -> "nosuch0")
    val message = intercept[ConfigurationException](run.train()).getMessage
    assert(message.contains("tcp.interface = nosuch0 fits no address"), message)
    assert(Json.read(run.progressJson).path("state").asText == "failed")
    assert(kind(run.progressJson) == "configuration")
  }

  test("any other failure is the run's, and there is no kind without one") {
    val progress = new RunProgress
    assert(Json.read(progress.json(None)).path("error_kind").isNull)
    progress.ended("failed", Some("Rank 1 did not answer."))
    assert(kind(progress.json(None)) == "run")
    progress.ended("done", None)
    assert(Json.read(progress.json(None)).path("error_kind").isNull)
  }
}
