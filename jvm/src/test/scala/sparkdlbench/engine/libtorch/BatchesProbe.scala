package sparkdlbench.engine.libtorch

import sparkdlbench.common.Json
import sparkdlbench.data.{Batch, RowIds}
import sparkdlbench.model.{LayerSpec, ModelSpec, ParityModels}

import scala.collection.mutable.ArrayBuffer

/**
 * What an engine makes of batches of changing sizes, of one row too, whose rows have ids: losses, gradients and the ranges
 * in which they came, running statistics, evaluations. Printed as a line of JSON for each model, for engines that need a
 * JVM of their own.
 */
object BatchesProbe {
  private val rows = Seq(6, 4, 6, 1, 5)

  /** The lists of numbers of a line. */
  val numbers: Seq[String] = Seq("losses", "gradients", "buckets", "statistics", "evaluations")

  def main(arguments: Array[String]): Unit = {
    val settings = arguments.toSeq.map(argument => argument.takeWhile(_ != '=') -> argument.dropWhile(_ != '=').drop(1))
    measure(settings).foreach(result => println(Json.line(result)))
  }

  def measure(settings: Seq[(String, String)]): Seq[Map[String, Any]] =
    Seq(ParityModels.everyLayer, flatRows).map(measure(_, settings))

  private def measure(spec: ModelSpec, settings: Seq[(String, String)]): Map[String, Any] = {
    val engine = EngineFixture.load(spec, rows.max, settings = settings, seed = ParityModels.seed)
    try {
      val steps = rows.zipWithIndex.map { case (count, step) =>
        val buckets = ArrayBuffer.empty[(Int, Int, Seq[Float])]
        def part(from: Int, until: Int) = engine.gradients.toArray.slice(from, until).toSeq
        val loss = engine.step(
          batch(spec, count, step),
          1f / count,
          (from, until) => { buckets += ((from, until, part(from, until))); () }
        )
        buckets.foreach { case (from, until, values) =>
          require(part(from, until) == values, s"gradients $from until $until of ${spec.name} changed after their call")
        }
        val ranges = buckets.toSeq.flatMap { case (from, until, _) => Seq(from, until) }
        (loss, ParityModels.fingerprint(spec, engine.gradients).flatten, ranges)
      }
      val evaluations = Seq(3, 6).map(count => engine.evaluate(batch(spec, count, ParityModels.test)).lossSum)
      Json.fields(
        "name" -> spec.name,
        "losses" -> steps.map(_._1),
        "gradients" -> steps.flatMap(_._2),
        "buckets" -> steps.flatMap(_._3),
        "statistics" -> engine.statistics.toArray.toSeq.map(_.toDouble),
        "evaluations" -> evaluations
      )
    } finally engine.close()
  }

  private def batch(spec: ModelSpec, count: Int, step: Int): Batch = ParityModels
    .batch(spec, count, step)
    .copy(ids = new RowIds(Array.tabulate(count)(row => 1000 * step + 7 * row), 0))

  /** Batch normalisation of rows of two dimensions, below which nothing needs a gradient, and values read by several. */
  private def flatRows: ModelSpec = ModelSpec(
    "flat-rows",
    Seq(3, 8),
    10,
    Seq(
      LayerSpec("tanh", "tanh"),
      LayerSpec("norm", "batch-norm", Map("channels" -> 3.0, "momentum" -> 0.3), "one"),
      LayerSpec("flat1", "flatten"),
      LayerSpec("flat2", "flatten"),
      LayerSpec("sum", "add", inputs = Seq("flat1", "flat2")),
      LayerSpec("wide", "concat", inputs = Seq("sum", "flat1", "flat2")),
      LayerSpec("fc", "linear", Map("in" -> 72.0, "out" -> 10.0, "bias" -> 0.0), "he-normal")
    )
  )
}
