package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{ShuffleManagers, SparkFacts}
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.{ConfigurationException, RunFailedException}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.DataSource
import sparkdlbench.model.{ModelFamily, ModelSpec}
import sparkdlbench.results.{Facts, Json, Page, Recorder, RunFolder}
import sparkdlbench.transport.{JobTransport, OneStageTransport, TransportVariant}

import java.util.UUID
import scala.collection.immutable.ListMap

/** A finished run. `weights` are flat, in the layout of `spec`. */
final case class RunResult(folder: String, summary: String, spec: ModelSpec, weights: Array[Float])

/**
 * One run, from checked settings to the results folder. `prepare` finds whatever a user can mend, before any Spark job;
 * `train` does the work; what fails there leaves a summary that says so.
 */
final class TrainingRun private (
    sc: SparkContext,
    private[train] val setup: RunSetup,
    private[train] val memoryEstimate: ListMap[String, Any],
    folder: RunFolder,
    val progress: Progress
) {
  private val startNanos = System.nanoTime()
  @volatile private var cancelRequested = false

  def runId: String = setup.runId
  def spec: ModelSpec = setup.spec

  def cancel(): Unit = {
    cancelRequested = true
    sc.cancelJobGroup(runId)
  }

  def train(): RunResult = {
    val recorder = new Recorder(setup, folder, progress, startNanos)
    try {
      folder.write("run.json", Json.text(description))
      folder.event("run_start", None, "name" -> setup.settings(RunKeys.name))
      folder.event("global_batch_size", setup.batch)
      folder.event("seed", setup.settings(RunKeys.seed))
      sc.setJobGroup(runId, s"sparkdl-bench ${setup.settings(RunKeys.name)}", interruptOnCancel = false)
      val trained = loop.train(setup, recorder, () => cancelRequested)
      folder.write("run.json", Json.text(trainedDescription(trained, recorder)))
      val summary = finish(recorder, "success", trained.bytes, None)
      progress.ended("done", None)
      RunResult(folder.path.toString, summary, setup.spec, trained.weights)
    } catch {
      case e: Throwable => fail(recorder, e)
    } finally {
      sc.clearJobGroup()
      folder.close()
    }
  }

  private def loop: TrainingLoop =
    Variants.find[TransportVariant]("transport", setup.settings(RunKeys.transport)) match {
      case transport: JobTransport => new JobLoop(sc, transport)
      case _: OneStageTransport => new StageLoop(sc)
      case other => throw new IllegalStateException(s"transport ${other.name} has no execution shape")
    }

  private def fail(recorder: Recorder, cause: Throwable): Nothing = {
    val cancelled = cancelRequested
    val reason = if (cancelled) "the user cancelled the run" else Failures.reason(cause)
    val state = if (cancelled) "cancelled" else "failed"
    finish(recorder, state, Map.empty, Some(reason))
    progress.ended(state, Some(reason))
    cause match {
      case e: VirtualMachineError => throw e
      case e: ConfigurationException => throw e
      case e => throw new RunFailedException(reason, e)
    }
  }

  private def finish(recorder: Recorder, status: String, bytes: Map[String, Long], error: Option[String]): String = {
    val summary = recorder.summary(status, bytes, error)
    folder.event("run_stop", None, "status" -> status, "error" -> error)
    folder.write("summary.json", Json.text(summary))
    folder.write("steps.json", Json.line(recorder.stepMillis))
    folder.write("page.html", Page.render(description, summary))
    Json.text(summary)
  }

  private def trainedDescription(trained: Trained, recorder: Recorder): ListMap[String, Any] =
    description ++ Json.fields(
      "engine" -> ListMap(trained.engine.toSeq.sorted: _*),
      "rank_groups" -> recorder.rankGroups.map(_.members)
    )

  private def description: ListMap[String, Any] = Json.fields(
    "schema" -> RunFolder.Schema,
    "name" -> setup.settings(RunKeys.name),
    "run_id" -> setup.runId,
    "configuration" -> ListMap(setup.settings.entries.toSeq.sorted: _*),
    "seeds" -> ListMap("seed" -> setup.settings(RunKeys.seed)),
    "commit" -> Facts.build.get("commit"),
    "versions" -> (ListMap("spark" -> sc.version) ++ Facts.build),
    "host" -> Facts.host,
    "master" -> sc.master,
    "threads_per_worker" -> setup.threads,
    "model" -> Json.fields("parameters" -> setup.spec.parameterCount, "layers" -> setup.spec.layers.map(_.name)),
    "data" -> Json.fields(
      "train_rows" -> setup.data.trainRows,
      "test_rows" -> setup.data.testRows,
      "shape" -> setup.data.shape,
      "classes" -> setup.data.classes,
      "description" -> setup.data.description
    ),
    "memory_estimate" -> memoryEstimate,
    "spark" -> ListMap(SparkFacts.redacted(sc.getConf): _*)
  )
}

object TrainingRun {

  /**
   * Everything up to the first Spark job.
   *
   * @param raw
   *   the run's settings by TOML or Spark name; what the Spark session's own configuration says under `spark.sparkdl.` holds
   *   where `raw` says nothing
   */
  def prepare(sc: SparkContext, raw: Map[String, String]): TrainingRun = {
    val checked = RunKeys.resolve(fromSpark(sc) ++ Settings.named(raw))
    Combination.check(checked)
    SessionCheck.check(sc, checked)
    val source = Variants.find[DataSource]("data source", checked(RunKeys.data))
    val settings = source.qualified(checked, sc.hadoopConfiguration)
    val facts = source.inspect(settings, sc.hadoopConfiguration)
    val spec = Variants.find[ModelFamily]("model", settings(RunKeys.model)).build(facts.shape, facts.classes, settings)
    val threads = settings(RunKeys.threads) match {
      case 0 => sc.getConf.getInt("spark.task.cpus", 1)
      case chosen => chosen
    }
    checkResume(settings, spec, sc)
    val hadoop = new SerializableConfiguration(sc.hadoopConfiguration)
    val runId = UUID.randomUUID().toString.take(8)
    val setup = RunSetup(runId, settings, spec, facts, threads, hadoop)
    val estimate = MemoryEstimate.of(setup, MemoryCheck.workersPerExecutor(sc, setup.workers))
    val limits = MemoryLimits.of(sc)
    MemoryCheck.check(setup, estimate, limits, sc.isLocal)
    val memory = estimate.toMap + ("limits" -> limits.toMap)
    val folder = RunFolder.create(settings(RunKeys.results), settings(RunKeys.name))
    val progress = new Progress
    progress.planned(settings(RunKeys.epochs), setup.totalSteps)
    progress.resultsAt(folder.path.toString)
    new TrainingRun(sc, setup, memory, folder, progress)
  }

  private def checkResume(settings: Settings, spec: ModelSpec, sc: SparkContext): Unit = {
    val folder = settings(Checkpointing.resume)
    if (folder.nonEmpty) {
      val snapshot = CheckpointStore.require(folder, sc.hadoopConfiguration)
      val length = snapshot.parts.flatMap(_.ranges).filter(_.name == "weights").map(_.values.length).sum
      if (length != spec.parameterCount)
        throw new ConfigurationException(
          s"The checkpoint after step ${snapshot.step} in '$folder' holds $length weights, and the model ${spec.name} has ${spec.parameterCount}. " +
            "Resume with the model settings of the run that wrote it."
        )
    }
  }

  private def fromSpark(sc: SparkContext): Map[String, String] = Settings.named(
    sc.getConf.getAll.toMap.filter { case (name, _) =>
      // The shuffle manager's own key is the session's, not a run's; the plugin sets it.
      name.startsWith(sparkdlbench.config.Key.SparkPrefix) && name != ShuffleManagers.DelegateKey
    }
  )
}
