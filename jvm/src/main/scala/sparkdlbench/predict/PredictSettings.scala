package sparkdlbench.predict

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.EngineVariant
import sparkdlbench.results.SavedModel
import sparkdlbench.train.TrainingRun

/**
 * How a model is applied to a DataFrame. A model of a regression gives the column `prediction` alone, the number it predicts.
 *
 * @param features
 *   columns of a row's values: one with an array or a vector, or numeric ones in the order of training; empty: those of training
 * @param rawPrediction
 *   column of the class scores before the softmax, a vector; empty: none
 * @param probability
 *   column of the classes' probabilities, a vector; empty: none
 * @param prediction
 *   column of the most likely class's number, a double; empty: none
 * @param label
 *   column of that class's name, where classes have names, else its number as text; empty: none
 * @param batch
 *   most rows that are computed at once
 * @param handleInvalid
 *   what a row does whose values are null, not finite or of the wrong number: `error` ends the job, `skip` leaves the row out, `keep` keeps it
 *   with null in each of the columns above
 */
final case class PredictSettings(
    features: Seq[String] = Nil,
    rawPrediction: String = "rawPrediction",
    probability: String = "probability",
    prediction: String = "prediction",
    label: String = "",
    batch: Int = PredictSettings.Batch,
    handleInvalid: String = "error"
) {
  if (batch < 1) throw new ConfigurationException(s"batch is $batch; it must be 1 or more: the rows computed at once.")
  if (!PredictSettings.Invalid.contains(handleInvalid))
    throw new ConfigurationException(
      s"handle_invalid is '$handleInvalid'; valid are ${PredictSettings.Invalid.mkString(", ")}: end the job at a row that has no valid values, leave it " +
        "out, or keep it with null predictions."
    )

  /** What such a model gives of it. */
  private[predict] def of(model: SavedModel): PredictSettings =
    if (model.isRegression) copy(rawPrediction = "", probability = "", label = "") else this

  /** The columns that are added, in this order. */
  def added: Seq[String] = Seq(rawPrediction, probability, prediction, label).filter(_.nonEmpty)
}

object PredictSettings {
  val Batch = 256
  val Invalid: Seq[String] = Seq("error", "skip", "keep")

  /**
   * The engine's keys of what the session and the caller say, checked for the model; a ConfigurationException where the engine cannot
   * compute it.
   */
  private[sparkdlbench] def engine(
      model: SavedModel,
      properties: Map[String, String],
      raw: Map[String, String]
  ): (Settings, Int) = {
    val asked = TrainingRun.asked(properties, raw).filter(_._1.startsWith("engine."))
    val settings = RunKeys.resolve(asked + (RunKeys.workers.name -> "1"))
    val threads = TrainingRun.threadsOf(settings, properties.get)
    Variants.find[EngineVariant]("engine", settings(RunKeys.engine)).check(model.spec, threads, settings)
    (settings, threads)
  }
}
