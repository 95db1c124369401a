package sparkdlbench.results

import com.fasterxml.jackson.databind.JsonNode
import com.sun.net.httpserver.{HttpExchange, HttpServer}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.TrainingRun
import sparkdlbench.LocalSpark

import java.net.InetSocketAddress
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue
import scala.jdk.CollectionConverters._

/** Against a server that answers as MLflow's REST API 2.0 documents it. */
class MlFlowSuite extends AnyFunSuite with LocalSpark {

  /**
   * Runs `body` with the server's address; what it was asked. `breaks`: requests that are answered with status 500; `stalls`: those whose
   * answers have a head and no body.
   */
  private def served(breaks: Set[String] = Set.empty, stalls: Set[String] = Set.empty)(
      body: String => Unit
  ): Seq[(String, JsonNode)] = {
    val asked = new ConcurrentLinkedQueue[(String, JsonNode)]()
    val server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0)
    server.createContext(
      "/",
      (exchange: HttpExchange) => {
        val what = exchange.getRequestURI.getPath.stripPrefix("/api/2.0/mlflow/")
        val text = new String(exchange.getRequestBody.readAllBytes(), UTF_8)
        asked.add(what -> Json.read(if (text.isEmpty) "{}" else text))
        val (status, answer) = what match {
          case broken if breaks(broken) => (500, "out of order")
          case "experiments/get-by-name" => (404, """{"error_code": "RESOURCE_DOES_NOT_EXIST"}""")
          case "experiments/create" => (200, """{"experiment_id": "7"}""")
          case "runs/create" => (200, """{"run": {"info": {"run_id": "abc"}}}""")
          case _ => (200, "{}")
        }
        val bytes = answer.getBytes(UTF_8)
        exchange.sendResponseHeaders(status, bytes.length.toLong)
        if (!stalls(what)) {
          exchange.getResponseBody.write(bytes)
          exchange.close()
        }
      }
    )
    server.start()
    try body(s"http://127.0.0.1:${server.getAddress.getPort}")
    finally server.stop(0)
    asked.asScala.toSeq
  }

  private def train(uri: String, more: (String, String)*): java.nio.file.Path = {
    val settings = Map(
      "mlflow.uri" -> uri,
      "data.source" -> "digits",
      "model.hidden" -> "16",
      "epochs" -> "2",
      "batch" -> "32",
      "workers" -> "1",
      "results" -> Files.createTempDirectory("results").toString
    )
    java.nio.file.Paths.get(TrainingRun.prepare(sc, settings ++ more).train().folder)
  }

  test("a run with its configuration, its scalars by epoch, and its end") {
    val asked = served() { uri => train(uri, "mlflow.experiment" -> "my nets"); () }
    assert(asked.map(_._1).take(3) == Seq("experiments/get-by-name", "experiments/create", "runs/create"))
    def of(what: String) = asked.filter(_._1 == what).map(_._2)
    assert(of("experiments/create").head.path("name").asText == "my nets")
    assert(of("runs/create").head.path("experiment_id").asText == "7")
    val parameters = of("runs/log-batch").flatMap(_.path("params").elements.asScala)
    assert(of("runs/log-batch").forall(_.path("params").size <= 100))
    assert(parameters.exists(one => one.path("key").asText == "model.hidden" && one.path("value").asText == "16"))
    val metrics = of("runs/log-metric")
    assert(metrics.forall(_.path("run_id").asText == "abc"))
    val outcomes = Seq("precision_macro/test", "recall_macro/test", "f1_macro/test")
    val tags = Seq("loss/train", "loss/test", "accuracy/test") ++ outcomes :+ "seconds"
    assert(
      metrics.map(one => (one.path("key").asText, one.path("step").asLong)) == Seq(1L, 2L).flatMap(e =>
        tags.map(_ -> e)
      )
    )
    assert(metrics.filter(_.path("key").asText == "accuracy/test").forall(_.path("value").asDouble > 0.1))
    assert(asked.last._1 == "runs/update" && asked.last._2.path("status").asText == "FINISHED")
  }

  test("a server that fails later costs the run nothing, and the events say so") {
    var events = ""
    served(Set("runs/log-metric")) { uri => events = Files.readString(train(uri).resolve("events.jsonl")) }
    val lost = events.linesIterator.map(Json.read(_)).filter(_.path("key").asText == "logging_failed").toSeq
    assert(lost.size == 2 && lost.head.path("value").asText == "MLflow")
    assert(lost.head.path("metadata").path("reason").asText.contains("status 500"))
  }

  test("a server that goes on failing is left alone, so that no training waits for it at each epoch") {
    var events = ""
    val asked = served(Set("runs/log-metric", "runs/update")) { uri =>
      events = Files.readString(train(uri, "epochs" -> "6").resolve("events.jsonl"))
    }
    assert(asked.count(_._1 == "runs/log-metric") == 3)
    val lost = events.linesIterator.map(Json.read(_)).filter(_.path("key").asText == "logging_failed").toSeq
    assert(lost.size == 3 && lost.last.path("metadata").path("reason").asText.endsWith("Nothing more is sent to it."))
  }

  test("an answer that stalls after its head ends the run before it starts, within the request's time") {
    served(stalls = Set("runs/create")) { uri =>
      val begun = System.nanoTime()
      val said = intercept[ConfigurationException](train(uri)).getMessage
      assert(said.contains("got no answer within 10 s"))
      assert(System.nanoTime() - begun < 60e9)
    }
  }

  test("a run that cannot begin leaves neither files nor a run on the server") {
    val (results, board) = (Files.createTempDirectory("results"), Files.createTempDirectory("board"))
    def open = Files
      .list(java.nio.file.Paths.get("/proc/self/fd"))
      .iterator
      .asScala
      .flatMap { each =>
        scala.util.Try(Files.readSymbolicLink(each).toString).toOption
      }
      .count(file => file.startsWith(results.toString) || file.startsWith(board.toString))
    val asked = served(Set("runs/log-batch")) { uri =>
      val more = Seq("results" -> results.toString, "tensorboard.dir" -> board.toString)
      intercept[ConfigurationException](train(uri, more: _*)): Unit
    }
    assert(results.toFile.list().isEmpty && open == 0)
    assert(asked.last._1 == "runs/update" && asked.last._2.path("status").asText == "FAILED")
  }

  test("a server that is not there, refuses, or is no address ends the run before it starts") {
    def said(uri: String) = intercept[ConfigurationException](train(uri)).getMessage
    assert(said("http://127.0.0.1:1").contains("got no answer"))
    assert(said("file:/tmp/mlruns").contains("no http or https address"))
    served(Set("runs/create"))(uri => assert(said(uri).contains("status 500: out of order")))
  }
}
