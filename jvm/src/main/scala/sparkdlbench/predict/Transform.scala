package sparkdlbench.predict

import org.apache.spark.TaskContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.ml.linalg.SQLDataTypes
import org.apache.spark.sparkdlbench.{HeldRow, KeptRows}
import org.apache.spark.sql.types._
import org.apache.spark.sql.{DataFrame, SparkSession}
import sparkdlbench.config.Settings
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.results.SavedModel

import java.util.Locale
import scala.collection.mutable.ArrayBuffer

/**
 * Adds a model's predictions to a DataFrame, of rows at rest or of a stream. Each partition has an engine of its own from its first row
 * to its last, or to the task's end where not all rows are asked for; tasks need nothing of each other.
 */
object Transform {

  /**
   * @param asked
   *   columns that a regression does not have are left out
   * @param raw
   *   the engine's keys (`engine.name`, …), beside what the session's configuration says
   * @return
   *   the frame's columns, then those that `asked` names; nothing is computed before it is asked for
   */
  def apply(
      frame: DataFrame,
      model: SavedModel,
      asked: PredictSettings = PredictSettings(),
      raw: Map[String, String] = Map.empty
  ): DataFrame = {
    val settings = asked.of(model)
    checkMllib(getClass.getClassLoader)
    val schema = frame.schema
    checkNames(schema.fieldNames.toSeq, settings.added, frame.sparkSession)
    checkBatch(settings.batch, model)
    val columns = FeatureColumns.of(schema, settings.features, model.input)
    val context = frame.sparkSession.sparkContext
    val (engine, threads) = PredictSettings.engine(model, context.getConf.getAll.toMap, raw)
    val rows = new PredictingRows(context.broadcast(model), schema.map(_.dataType), columns, settings, engine, threads)
    HeldRow.mapped(frame, added(settings, model), rows)
  }

  /** The columns that `apply` would give, told by names and types alone. */
  def schema(before: StructType, model: SavedModel, asked: PredictSettings): StructType = {
    FeatureColumns.of(before, asked.features, model.input)
    StructType(before.fields ++ added(asked.of(model), model))
  }

  /** Vectors are Spark ML's; an application of the JVM may have Spark SQL alone. */
  private[predict] def checkMllib(loader: ClassLoader): Unit =
    try { Class.forName("org.apache.spark.ml.linalg.SQLDataTypes", false, loader); () }
    catch {
      case cause @ (_: ClassNotFoundException | _: NoClassDefFoundError) =>
        throw new ConfigurationException(
          "Predictions are columns with vectors of Spark ML, and this application's class path has no spark-mllib. Add the module spark-mllib of the same " +
            "version as spark-sql; a complete Spark distribution, and so every cluster, has it.",
          cause
        )
    }

  private def checkNames(own: Seq[String], added: Seq[String], spark: SparkSession): Unit = {
    val exact = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    def known(name: String) = if (exact) name else name.toLowerCase(Locale.ROOT)
    val before = own.groupBy(known)
    added.find(name => before.contains(known(name))).foreach { name =>
      throw new ConfigurationException(
        s"The DataFrame has a column '${before(known(name)).head}' already, and the predictions would get the same name. Drop or rename it, or name another " +
          "column for them."
      )
    }
    if (added.map(known).distinct.size != added.size)
      throw new ConfigurationException(
        s"Two columns of the predictions would have the same name: ${added.mkString(", ")}. Name each otherwise."
      )
  }

  /** An array of the JVM has a batch's values. */
  private def checkBatch(batch: Int, model: SavedModel): Unit = {
    val most = MostBatchBytes / math.max(8L, 4L * math.max(model.input.width, model.spec.classes))
    if (batch > most)
      throw new ConfigurationException(
        s"batch is $batch; for a model with rows of ${FeatureColumns.values(model.input)} it must be from 1 to $most: the rows computed at once, which " +
          "a task holds in memory."
      )
  }

  private val MostBatchBytes = 1L << 30

  private def added(settings: PredictSettings, model: SavedModel): Seq[StructField] = {
    val (vector, outcome) = (SQLDataTypes.VectorType, Outcome.of(model))
    // A vector's numbers are no classes.
    val metadata = if (outcome.kind == DoubleType) nominal(model.input.labels) else Metadata.empty
    Seq(
      StructField(settings.rawPrediction, vector),
      StructField(settings.probability, vector),
      StructField(settings.prediction, outcome.kind, nullable = true, metadata),
      StructField(settings.label, StringType)
    ).filter(_.name.nonEmpty)
  }

  /** What IndexToString of Spark ML reads the names of classes from. */
  private def nominal(labels: Seq[String]): Metadata =
    if (labels.isEmpty) Metadata.empty
    else Metadata.fromJson(Json.line(Json.fields("ml_attr" -> Json.fields("type" -> "nominal", "vals" -> labels))))
}

/**
 * The rows of a partition, with their predictions behind them.
 *
 * @param kinds
 *   of the rows' columns
 */
private[predict] class PredictingRows(
    model: Broadcast[SavedModel],
    kinds: Seq[DataType],
    columns: FeatureColumns,
    settings: PredictSettings,
    engine: Settings,
    threads: Int
) extends (Iterator[HeldRow] => Iterator[HeldRow])
    with Serializable {

  def apply(rows: Iterator[HeldRow]): Iterator[HeldRow] = if (rows.isEmpty) Iterator.empty
  else {
    val predictor = newPredictor()
    Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => predictor.close()))
    // A task has many partitions' engines after `coalesce`, so none waits for the task's end.
    new BatchedRows(rows, predictor).flatten
  }

  protected def newPredictor(): Predictor = new Predictor(model.value, settings.batch, threads, engine)

  /** Batch after batch. The engine is closed when more is asked for than there is. */
  private final class BatchedRows(rows: Iterator[HeldRow], predictor: Predictor) extends Iterator[Iterator[HeldRow]] {
    private val stored = new Array[Float](model.value.input.width)
    private val kept = new KeptRows(kinds, settings.batch)
    private var number = 0

    def hasNext: Boolean = rows.hasNext || { predictor.close(); false }

    def next(): Iterator[HeldRow] = {
      val held = new ArrayBuffer[HeldRow](settings.batch)
      // Of those that are computed, by their place in the batch; -1: it has no valid values.
      val places = new Array[Int](settings.batch)
      var computed = 0
      while (held.size < settings.batch && rows.hasNext) {
        val row = rows.next()
        val reason = columns.read(row, stored)
        reason.foreach(refuse(_, number))
        if (reason.isEmpty) { predictor.put(computed, stored); computed += 1 }
        if (reason.isEmpty || settings.handleInvalid != "skip") {
          places(held.size) = if (reason.isEmpty) computed - 1 else -1
          held += kept.keep(held.size, row)
        }
        number += 1
      }
      val scores = if (computed == 0) Array.empty[Array[Double]] else predictor.scores(computed)
      held.indices.iterator.map { at =>
        held(at).and(if (places(at) < 0) new Array[Any](written.length) else results(scores(places(at))))
      }
    }
  }

  private def refuse(reason: String, number: Int): Unit = if (settings.handleInvalid == "error")
    throw new ConfigurationException(
      s"Row $number of partition ${TaskContext.getPartitionId()} has no prediction: $reason. Leave such rows out first, or set handle_invalid (on the command " +
        "line --handle-invalid) to skip (they are left out) or keep (their predictions are null)."
    )

  /** As `settings.added` names them. */
  private def results(scores: Array[Double]): Array[Any] = {
    val found = new Array[Any](written.length)
    var at = 0
    while (at < found.length) { found(at) = written(at)(scores); at += 1 }
    found
  }

  @transient private lazy val written: Array[Array[Double] => Any] = {
    val (labels, outcome) = (model.value.input.labels, Outcome.of(model.value))
    Seq[(String, Array[Double] => Any)](
      settings.rawPrediction -> (scores => HeldRow.vector(outcome.raw(scores))),
      settings.probability -> (scores => HeldRow.vector(outcome.probability(scores))),
      settings.prediction -> (scores => outcome.prediction(scores)),
      settings.label -> (scores => Option(outcome.label(scores, labels)).map(HeldRow.text(_)).orNull)
    ).collect { case (name, value) if name.nonEmpty => value }.toArray
  }
}
