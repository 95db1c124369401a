package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.algorithm.SyncSgd
import sparkdlbench.bench.{DataBench, NetBench, NetEffort}
import sparkdlbench.common.{ConfigurationException, Facts, Json, RunFailedException, SparkDLException}
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.model.ModelFamily
import sparkdlbench.predict.Predictions
import sparkdlbench.train.{Catalogue, RunResult, TrainingRun}

import java.nio.channels.FileChannel
import java.nio.file.{Path, Paths, StandardOpenOption}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.ConcurrentHashMap
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * All that Python sees of the JVM side: static methods, JDK types. A run goes on in a thread of its own, so that Python can
 * look at it, show it and cancel it.
 */
object PythonApi {
  private final class Handle(val run: TrainingRun) {
    @volatile var seen: Long = -1
    @volatile var result: Option[RunResult] = None
    var thread: Thread = _
  }
  private val runs = new ConcurrentHashMap[String, Handle]()

  def version(): String = Facts.build.getOrElse("version", "unknown")

  /** JSON object: version, spark_line, scala, commit. */
  def buildFacts(): String = Json.line(Facts.build)

  /** JSON list of the axis's variants, each with name, doc and keys. */
  def variants(axis: String): String = Json.line(Catalogue.variants(axis))

  /** JSON list of the axes. */
  def axes(): String = Json.line(Catalogue.axes)

  /** JSON list of all configuration keys. */
  def keys(): String = Json.line(RunKeys.all.map(Catalogue.describe))

  /** Checks names and values; throws ConfigurationException. Needs no session. */
  def check(raw: java.util.Map[String, String]): Unit =
    train.Combination.check(RunKeys.resolve(raw.asScala.toMap))

  /**
   * Checks the Spark properties of a session that is not started yet: whether its shuffle manager can be there. Throws
   * ConfigurationException.
   */
  def checkSpark(properties: java.util.Map[String, String]): Unit =
    train.ShuffleManagerCheck.check(properties.asScala.toMap)

  /** JSON list of what would go wrong with a run in a session with these Spark properties, which is not started yet. */
  def doctorBeforeStart(properties: java.util.Map[String, String], raw: java.util.Map[String, String]): String =
    Json.line(doctor.Doctor.beforeStart(properties.asScala.toMap, Settings.named(raw.asScala.toMap)).map(_.toMap))

  /** JSON list of what would go wrong with a run in the session that is there. */
  def doctorSession(raw: java.util.Map[String, String]): String =
    Json.line(doctor.Doctor.session(context, Settings.named(raw.asScala.toMap)).map(_.toMap))

  /**
   * JSON: what `start` waits for: how far the decoding of a set is (source, done, parts, rows), or something else in words (waiting); `{}`
   * where it waits for nothing.
   */
  def decoding(): String = Json.line(data.Decoding.now.fold(waiting) { now =>
    ListMap("source" -> now.source, "done" -> now.done, "parts" -> now.parts, "rows" -> now.rows)
  })

  private def waiting: ListMap[String, Any] =
    train.Waiting.now.fold(ListMap.empty[String, Any])(text => ListMap("waiting" -> text))

  /** Ends what `start` waits for. */
  def cancelDecoding(): Unit = {
    train.Waiting.cancel()
    data.Decoding.cancel(context)
  }

  /** Checks session and data, then starts training; returns the run's id. */
  def start(raw: java.util.Map[String, String]): String = {
    val run = TrainingRun.prepare(context, raw.asScala.toMap)
    val handle = new Handle(run)
    runs.put(run.runId, handle)
    handle.thread = new Thread(() => finish(handle), s"sparkdl-run-${run.runId}")
    handle.thread.setDaemon(true)
    handle.thread.start()
    run.runId
  }

  /** Why the run has the transport that it has, as one line; empty where the user named it. */
  def transportLine(runId: String): String = handle(runId).run.transport.line.getOrElse("")

  /** JSON object: state, epoch, step, loss, … */
  def poll(runId: String): String = handle(runId).run.progressJson

  /** As `poll`, when something has changed since the last `await`, at most `millis` later. */
  def await(runId: String, millis: Long): String = {
    val waiting = handle(runId)
    waiting.run.progress.awaitChange(waiting.seen, millis)
    waiting.seen = waiting.run.progress.currentVersion
    if (!waiting.run.progress.isRunning) waiting.thread.join()
    waiting.run.progressJson
  }

  def cancel(runId: String): Unit = handle(runId).run.cancel()

  /** The summary of a finished run, as in summary.json. */
  def summary(runId: String): String = finished(runId).summary

  /**
   * The specification of the model that a run with these settings trains on rows of a shape, as JSON; needs no session.
   *
   * @param shape
   *   of one row, such as `3,32,32`
   */
  def model(raw: java.util.Map[String, String], shape: String, classes: Int): String = {
    val settings = RunKeys.resolve(raw.asScala.toMap)
    val sizes = shape.split(',').map(_.trim.toInt).toList
    val spec = ModelFamily.of(settings, sizes, classes)
    spec.shapes // throws where layers do not fit together
    spec.toJson
  }

  def modelSpec(runId: String): String = handle(runId).run.spec.toJson

  /** How a finished run's rows became the model's: `input.json` of its saved model. */
  def modelInput(runId: String): String = results.ModelFolder.inputJson(finished(runId).input)

  /**
   * Applies the model in a folder of this host to a view of the session, whose rows may be a stream's, and makes the result a global
   * temporary view.
   *
   * @param columns
   *   names of the features' columns; empty: those of the training
   * @param raw
   *   `raw_prediction`, `probability`, `prediction`, `label` (names of columns), `batch`, `handle_invalid`, as in PredictSettings, and the
   *   engine's keys
   */
  def transform(
      folder: String,
      view: String,
      result: String,
      columns: java.util.List[String],
      raw: java.util.Map[String, String]
  ): Unit = Predictions.transform(folder, view, result, columns.asScala.toList, raw.asScala.toMap)

  /**
   * Class scores of rows in a file, flat little-endian fp32 as they are stored before the model's own preprocessing, written to another in
   * the same way; needs no session.
   */
  def scores(folder: String, rows: String, scores: String): Unit =
    Predictions.scores(Paths.get(folder), Paths.get(rows), Paths.get(scores))

  /** Writes the trained weights, then the running statistics, to `path` as flat little-endian fp32; returns the layout as JSON. */
  def weights(runId: String, path: String): String = {
    val result = finished(runId)
    write(result.weights, result.statistics, Paths.get(path))
    Trainer.layoutJson(result)
  }

  /** The same of the best evaluation, where it was kept (`keep_best`); false and no file where not. */
  def bestWeights(runId: String, path: String): Boolean = {
    val best = finished(runId).best
    best.foreach(each => write(each.weights.head._2, each.statistics, Paths.get(path)))
    best.nonEmpty
  }

  /** Writes the trained model, and the best one where it was kept, into the results folder; returns where the model is. */
  def saveModels(runId: String): String = finished(runId).saveModels().toString

  /** Where a finished run's results are in place of their folder; empty where all is well. */
  def warning(runId: String): String = finished(runId).warning.getOrElse("")

  /**
   * The collective microbenchmark of one transport, topology and codec.
   *
   * @param raw
   *   the run's keys, and `net.elements` (numbers of values, separated by commas), `net.warmup` and `net.iterations` (0: by size)
   * @return
   *   a JSON list with one object a size, samples included
   */
  def net(raw: java.util.Map[String, String]): String = {
    val (own, run) = raw.asScala.toMap.partition(_._1.startsWith("net."))
    val settings = train.TransportChoice.beforeStart(RunKeys.resolve(run))
    train.Combination.check(settings)
    val elements = own.getOrElse("net.elements", "814090").split(',').map(_.trim.toInt).toSeq
    val effort = NetEffort(
      warmupCount = own.getOrElse("net.warmup", "0").toInt,
      sampleCount = own.getOrElse("net.iterations", "0").toInt
    )
    NetBench.run(context, settings, elements, settings(SyncSgd.bucketBytes), effort).map(_.json).mkString("[", ",", "]")
  }

  /** Why these settings have no all-reduce to time; empty where they have. */
  def netRefusal(raw: java.util.Map[String, String]): String = NetBench.refusal(raw)

  /** One pass over a data set: its `statistics.json`, which is also written to a results folder. */
  def statistics(raw: java.util.Map[String, String]): String = bench.DataStatistics.run(context, raw.asScala.toMap)

  /** Loads a data set into all executors, `samples` times (see DataBench); JSON. */
  def loadData(raw: java.util.Map[String, String], samples: Int, memory: Boolean): String =
    DataBench.run(context, raw.asScala.toMap, samples, memory)

  /**
   * Decodes a set for a training loop of the user's own; JSON: the `settings` that its ranks open it with, `rows`, `shape`, `classes` (1: the
   * labels are numbers), `identity`.
   */
  def feed(raw: java.util.Map[String, String]): String = {
    val settings = data.RowFeeds.prepare(RunKeys.resolve(raw.asScala.toMap), context)
    val found = data.RowFeeds.open(settings, context.hadoopConfiguration)
    Json.line(
      ListMap[String, Any](
        "settings" -> settings.entries,
        "rows" -> found.rows.rows,
        "shape" -> found.shape,
        "classes" -> found.classes,
        "identity" -> found.identity
      )
    )
  }

  /** How many ranks of a launch can run at once on the executors that have registered. */
  def launchSlots(): Int = SparkFacts.slots(context)

  /** From now on the ranks of the launch of this id may meet and tell; ConfigurationException where there is one already. */
  def launchOpen(id: String): Unit = worker.Launches.open(id)

  /**
   * JSON list of what ranks have told since the last call: rank, host, attempt, kind, payload. Waits up to `millis` for the first. Kind
   * `dropped` with a `count`: so many of that rank's messages found no room.
   */
  def launchMessages(id: String, millis: Long): String = worker.Launches.messages(id, millis)

  /** Ends a launch: its ranks meet no more, and what they tell is dropped. */
  def launchClose(id: String): Unit = worker.Launches.close(id)

  /** Forgets a run and its weights. */
  def forget(runId: String): Unit = {
    runs.remove(runId)
    ()
  }

  private def finish(handle: Handle): Unit =
    try handle.result = Some(handle.run.train())
    catch {
      // The reason stands in the run's progress and summary, where Python reads it.
      case _: SparkDLException => ()
      case e: Throwable =>
        handle.run.progress.ended("failed", Some(common.Failures.reason(e))) // Python waits for an end
        throw e
    }

  /** The one context that runs in this JVM; never a new one, of which the user would not know. */
  private def context: SparkContext = SparkFacts.active.getOrElse(
    throw new ConfigurationException(train.SessionCheck.Stopped)
  )

  private def handle(runId: String): Handle = Option(runs.get(runId)).getOrElse(
    throw new ConfigurationException(
      s"There is no run '$runId' in this session. Valid: ${runs.keySet.asScala.toSeq.sorted.mkString(", ")}."
    )
  )

  private def finished(runId: String): RunResult = handle(runId).result.getOrElse(
    throw new RunFailedException(s"Run $runId has no result: it has not finished, or it failed (${poll(runId)}).")
  )

  private def write(weights: Array[Float], statistics: Array[Float], path: Path): Unit = {
    val channel =
      FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)
    try
      Iterator(weights, statistics).flatMap(_.grouped(1 << 20)).foreach { part =>
        val bytes = ByteBuffer.allocate(part.length * 4).order(ByteOrder.LITTLE_ENDIAN)
        bytes.asFloatBuffer().put(part)
        while (bytes.hasRemaining) channel.write(bytes)
      }
    finally channel.close()
  }
}
