package sparkdlbench.results

import com.fasterxml.jackson.databind.JsonNode
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{Key, KeyGroup, Settings}

import java.io.IOException
import java.net.URI
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse.BodyHandlers
import java.net.http.{HttpClient, HttpRequest}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.Base64
import java.util.concurrent.{ExecutionException, TimeUnit, TimeoutException}
import scala.collection.immutable.ListMap
import scala.util.Try

/**
 * A run on an MLflow tracking server, by its REST API 2.0: the configuration as parameters, losses and accuracy by epoch as
 * metrics. MLflow's Java client would bring 20 jars for six requests.
 */
final class MlFlow private (server: MlFlow.Server, run: String) extends RunLogger {
  def name: String = "MLflow"

  def scalar(tag: String, step: Long, value: Double): Unit = if (!value.isNaN && !value.isInfinite) {
    server.post(
      "runs/log-metric",
      "run_id" -> run,
      "key" -> tag,
      "value" -> value,
      "timestamp" -> System.currentTimeMillis(),
      "step" -> step
    )
    ()
  }

  def ended(status: String): Unit = {
    val word = status match {
      case "success" => "FINISHED"
      case "cancelled" => "KILLED"
      case _ => "FAILED"
    }
    server.post("runs/update", "run_id" -> run, "status" -> word, "end_time" -> System.currentTimeMillis())
    ()
  }

  override def close(): Unit = ()
}

object MlFlow {
  val uri: Key[String] = Key.text(
    "mlflow.uri",
    "",
    "MLflow tracking server, http://… or https://…, that each run is logged to; empty: none. The environment variables " +
      "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, say who we are"
  )
  val experiment: Key[String] =
    Key.text("mlflow.experiment", "sparkdl-bench", "MLflow experiment; made where there is none")
  val keys: Seq[Key[_]] = Seq(uri, experiment)

  /** Older servers keep no more of a parameter's value. */
  private val LongestParameter = 500
  private val MostParameters = 100 // a request
  private val TimeoutSeconds = 10L

  /** Begins a run on the server that the settings name. */
  def start(settings: Settings, folder: String): MlFlow =
    try {
      val server = new Server(settings(uri))
      val begun = server.post(
        "runs/create",
        "experiment_id" -> experimentId(server, settings(experiment)),
        "run_name" -> folder,
        "start_time" -> System.currentTimeMillis(),
        "tags" -> Seq(ListMap("key" -> "mlflow.source.name", "value" -> "sparkdl-bench"))
      )
      val id = begun.path("run").path("info").path("run_id").asText
      val parameters = settings.shown.toSeq.sorted.map { case (key, value) =>
        ListMap("key" -> key, "value" -> value.take(LongestParameter))
      }
      val run = new MlFlow(server, id)
      try
        parameters
          .grouped(MostParameters)
          .foreach(some => server.post("runs/log-batch", "run_id" -> id, "params" -> some))
      catch { case error: IOException => Try(run.ended("failed")); throw error }
      run
    } catch {
      case error: IOException =>
        throw new ConfigurationException(
          s"The MLflow server of mlflow.uri = ${settings.shown(uri.name)} cannot be used: ${error.getMessage} Name a tracking server that runs and lets us in " +
            "(see mlflow.uri in `sparkdl-bench list`), or leave mlflow.uri empty.",
          error
        )
    }

  private def experimentId(server: Server, name: String): String =
    server
      .get("experiments/get-by-name", "experiment_name" -> name)
      .map(_.path("experiment").path("experiment_id").asText)
      .getOrElse(server.post("experiments/create", "name" -> name).path("experiment_id").asText)

  /** The requests. What goes wrong is an IOException with the reason. */
  private final class Server(uri: String) {
    private val base = {
      val parsed =
        try URI.create(uri)
        catch { case error: IllegalArgumentException => throw new IOException(error.getMessage, error) }
      if (parsed.getHost == null || !Seq("http", "https").contains(parsed.getScheme))
        throw new IOException("it is no http or https address.")
      uri.stripSuffix("/") + "/api/2.0/mlflow/"
    }
    // Over plain http the client would ask in each request to go on in HTTP/2, which MLflow's servers do not do and warn of.
    private val client = HttpClient
      .newBuilder()
      .version(HttpClient.Version.HTTP_1_1)
      .connectTimeout(Duration.ofSeconds(TimeoutSeconds))
      .build()

    def post(what: String, fields: (String, Any)*): JsonNode = {
      val body = BodyPublishers.ofString(Json.line(Json.fields(fields: _*)))
      val (status, answer) = send(what, request(what).header("Content-Type", "application/json").POST(body))
      if (status != 200) throw refused(what, status, answer)
      Json.read(answer)
    }

    /** None where there is no such thing. */
    def get(what: String, query: (String, String)): Option[JsonNode] = {
      val asked = s"$what?${query._1}=${java.net.URLEncoder.encode(query._2, UTF_8)}"
      val (status, answer) = send(what, request(asked).GET())
      if (status == 404) None
      else if (status != 200) throw refused(what, status, answer)
      else Some(Json.read(answer))
    }

    private def request(what: String): HttpRequest.Builder = {
      val made = HttpRequest.newBuilder(URI.create(base + what)).timeout(Duration.ofSeconds(TimeoutSeconds))
      authorization.foreach(made.header("Authorization", _))
      made
    }

    private def authorization: Option[String] =
      sys.env.get("MLFLOW_TRACKING_TOKEN").map("Bearer " + _).orElse {
        for {
          user <- sys.env.get("MLFLOW_TRACKING_USERNAME")
          password <- sys.env.get("MLFLOW_TRACKING_PASSWORD")
        } yield "Basic " + Base64.getEncoder.encodeToString(s"$user:$password".getBytes(UTF_8))
      }

    private def send(what: String, request: HttpRequest.Builder): (Int, String) =
      try {
        // The request's own bound ends where the answer's body begins.
        val sent = client.sendAsync(request.build(), BodyHandlers.ofString(UTF_8))
        try {
          val answer = sent.get(TimeoutSeconds, TimeUnit.SECONDS)
          (answer.statusCode, answer.body)
        } finally sent.cancel(true): Unit
      } catch {
        case error: ExecutionException =>
          val cause = Option(error.getCause).getOrElse(error)
          throw new IOException(s"$what got no answer (${cause.getClass.getSimpleName}).", cause)
        case error: TimeoutException =>
          throw new IOException(s"$what got no answer within $TimeoutSeconds s.", error)
      }

    private def refused(what: String, status: Int, answer: String) =
      new IOException(s"$what was answered with status $status: ${answer.take(300).replace('\n', ' ')}.")
  }
}

final class MlFlowKeys extends KeyGroup {
  def keys: Seq[Key[_]] = MlFlow.keys
}
