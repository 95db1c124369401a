package sparkdlbench.engine.libtorch

import sparkdlbench.common.Json
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.model.{ParityModel, ParityModels, RunKeysForTests}

import scala.util.Try

/**
 * What a JVM of its own computes for `ParitySuite`, with the settings given as `key=value` arguments: one line of JSON for each model,
 * `{"name", "loss", "gradient", "losses", "test_loss"}`, after one with the engine's facts.
 */
object ParityProbe {
  def main(arguments: Array[String]): Unit = {
    val settings = arguments.toSeq.map(argument => argument.takeWhile(_ != '=') -> argument.dropWhile(_ != '=').drop(1))
    println(Json.line(scala.collection.immutable.ListMap(facts(settings).toSeq: _*)))
    modelsOf(settings).foreach(model => println(Json.line(measure(model, settings))))
  }

  /** Those that the engine can compute. */
  def modelsOf(settings: Seq[(String, String)]): Seq[ParityModel] = {
    val chosen = RunKeysForTests.settings(settings: _*)
    val engine = Variants.find[EngineVariant]("engine", chosen(RunKeys.engine))
    ParityModels.all.filter(model => Try(engine.check(model.spec, 1, chosen)).isSuccess)
  }

  private def facts(settings: Seq[(String, String)]): Map[String, String] = {
    val engine = EngineFixture.load(ParityModels.all.head.spec, 1, settings = settings)
    try engine.facts
    finally engine.close()
  }

  def measure(model: ParityModel, settings: Seq[(String, String)]): Map[String, Any] = {
    val engine = EngineFixture.load(model.spec, model.rows, settings = settings, seed = ParityModels.seed)
    try {
      val loss = step(engine, model, 0)
      val gradient = ParityModels.fingerprint(model.spec, engine.gradients)
      val losses = loss +: (1 until ParityModels.steps).map { number =>
        descend(engine, model.learningRate.toFloat)
        step(engine, model, number)
      }
      val test = engine.evaluate(ParityModels.batch(model.spec, model.rows, ParityModels.test)).lossSum / model.rows
      Json.fields(
        "name" -> model.name,
        "loss" -> loss,
        "gradient" -> gradient,
        "losses" -> losses,
        "test_loss" -> test
      )
    } finally engine.close()
  }

  /** Mean loss of the rows. */
  private def step(engine: Engine, model: ParityModel, number: Int): Double = engine.step(
    ParityModels.batch(model.spec, model.rows, number),
    1f / model.rows,
    (_, _) => ()
  ) / model.rows

  /** A plain loop: the large nets have 80 million parameters together. */
  private def descend(engine: Engine, rate: Float): Unit = {
    val (parameters, gradients) = (engine.parameters.floats, engine.gradients.floats)
    var i = 0
    while (i < parameters.capacity) {
      parameters.put(i, parameters.get(i) - rate * gradients.get(i))
      i += 1
    }
  }
}
