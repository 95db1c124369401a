package sparkdlbench.predict

import org.apache.spark.sql.SparkSession
import sparkdlbench.common.ConfigurationException
import sparkdlbench.results.SavedModel

import java.nio.file.{Files, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder}
import scala.util.Try

/** What Python asks for: names, texts and files in place of frames and arrays. */
private[sparkdlbench] object Predictions {

  /** As `PythonApi.transform`. */
  def transform(folder: String, view: String, result: String, columns: Seq[String], raw: Map[String, String]): Unit = {
    val (own, engine) = raw.partition { case (name, _) => !name.startsWith("engine.") }
    val settings = own.foldLeft(PredictSettings(features = columns)) { case (sofar, (name, text)) =>
      name match {
        case "raw_prediction" => sofar.copy(rawPrediction = text)
        case "probability" => sofar.copy(probability = text)
        case "prediction" => sofar.copy(prediction = text)
        case "label" => sofar.copy(label = text)
        case "handle_invalid" => sofar.copy(handleInvalid = text)
        case "batch" => sofar.copy(batch = rows(text))
        case _ =>
          throw new ConfigurationException(
            s"'$name' is no setting of a prediction. Valid: raw_prediction, probability, prediction, label, batch, handle_invalid, and the engine's keys " +
              "(engine.name, engine.blas, …)."
          )
      }
    }
    val frame = SparkSession.builder().getOrCreate().table(view)
    Transform(frame, SavedModel.read(Paths.get(folder)), settings, engine)
      .createOrReplaceGlobalTempView(result.split('.').last)
  }

  /** As `PythonApi.scores`. */
  def scores(folder: Path, rows: Path, target: Path): Unit = {
    val model = SavedModel.read(folder)
    val values = ByteBuffer.wrap(Files.readAllBytes(rows)).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer()
    val count = values.remaining / model.input.width
    val out = ByteBuffer.allocate(4 * count * model.spec.classes).order(ByteOrder.LITTLE_ENDIAN)
    val (settings, threads) = PredictSettings.engine(model, Map.empty, Map.empty)
    val predictor = new Predictor(model, math.max(1, math.min(PredictSettings.Batch, count)), threads, settings)
    val row = new Array[Float](model.input.width)
    try
      for (from <- 0 until count by PredictSettings.Batch) {
        val some = math.min(PredictSettings.Batch, count - from)
        for (at <- 0 until some) {
          values.get(row)
          predictor.put(at, row)
        }
        predictor.scores(some).foreach(_.foreach(score => out.putFloat(score.toFloat)))
      }
    finally predictor.close()
    Files.write(target, out.array)
    ()
  }

  private def rows(text: String): Int = Try(text.toInt).getOrElse(
    throw new ConfigurationException(
      s"batch is '$text'; it must be a whole number, 1 or more: the rows computed at once."
    )
  )
}
