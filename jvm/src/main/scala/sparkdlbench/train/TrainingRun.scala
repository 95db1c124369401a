package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.{ShuffleManagers, SparkFacts}
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.algorithm.Algorithm
import sparkdlbench.common.{ConfigurationException, Facts, Failures, Json, Outcome, RunFailedException}
import sparkdlbench.config.{CheckpointKeys, Redaction, RunKeys, Settings, Variants, WorkerRange}
import sparkdlbench.data.{DataFacts, DataSource, RowInput}
import sparkdlbench.engine.EngineVariant
import sparkdlbench.metrics.{ResourceLog, ResourceReport, ResourceSampler, SessionStart, SparkLayers}
import sparkdlbench.model.{ModelFamily, ModelSpec}
import sparkdlbench.optimizer.{CosineSchedule, OptimizerVariant}
import sparkdlbench.rank.DataPosition
import sparkdlbench.results.{MlFlow, ModelFolder, Page, RunFolder, RunLogger, SavedModel, TensorBoard}
import sparkdlbench.topology.JobTransport
import sparkdlbench.transport.{OneStageTransport, RunSecret, TransportVariant}

import java.io.IOException
import java.nio.file.{Files, Path, Paths}
import java.util.UUID
import scala.collection.immutable.ListMap
import scala.util.control.NonFatal

/**
 * A finished run. `weights` and `statistics` are flat, in the layouts of `spec`.
 *
 * @param best
 *   the weights of the best evaluation, in one part, where they are kept (`keep_best`)
 * @param warning
 *   where the results are in place of their folder, or that they are lost; None where all is well
 * @param input
 *   how stored rows become rows of the model
 */
final case class RunResult(
    folder: String,
    summary: String,
    spec: ModelSpec,
    weights: Array[Float],
    statistics: Array[Float],
    best: Option[Best] = None,
    warning: Option[String] = None,
    input: RowInput = RowInput(Nil)
) {

  /** What predicts on new rows. */
  def model: SavedModel = SavedModel(spec, weights, statistics, input)

  /** Writes the trained model to `model` in the results folder, and the best one to `best`, where it was kept. */
  def saveModels(): Path = {
    val own = Paths.get(folder)
    try saveModels(own)
    catch {
      case _: IOException => saveModels(Files.createTempDirectory("sparkdl-bench-model-"))
    }
  }

  private def saveModels(folder: Path): Path = {
    best.foreach { each =>
      val kept = SavedModel(spec, each.weights.head._2, each.statistics, input)
      ModelFolder.write(folder.resolve("best"), kept)
    }
    ModelFolder.write(folder.resolve("model"), model)
    folder.resolve("model")
  }
}

/**
 * One run, from checked settings to the results folder. `prepare` finds whatever a user can correct, before any Spark job;
 * `train` does the work; what fails there leaves a summary that says so.
 */
final class TrainingRun private (
    sc: SparkContext,
    private[train] val setup: RunSetup,
    val transport: TransportChoice,
    private[train] val memoryEstimate: ListMap[String, Any],
    folder: RunFolder,
    loggers: Seq[RunLogger],
    val progress: RunProgress,
    startNanos: Long,
    startMillis: Long
) {
  private val layers = new SparkLayers(setup.runId)
  private val isFirst = LiveRuns.of(sc.applicationId).isEmpty

  /** Of the driver, while it trains. */
  private var sampler: Option[ResourceSampler] = None

  /** Why the run is to end, once it is. */
  @volatile private var cancelled: Option[String] = None

  def runId: String = setup.runId
  def spec: ModelSpec = setup.spec
  def folderPath: String = folder.path.toString

  /** How far it is and what it uses, as a JSON object. */
  def progressJson: String = progress.json(ResourceLog.latest(runId))

  /** @param why for the run's summary, as what happened */
  def cancel(why: String = "the user cancelled the run"): Unit = {
    if (cancelled.isEmpty) cancelled = Some(why)
    sc.cancelJobGroup(runId)
  }

  def train(): RunResult = EndOfJvm.watching(this)(watched())

  private def watched(): RunResult = {
    val live = LiveRuns.open(sc.applicationId, setup, progress)
    val recorder = new Recorder(setup, folder, live, startNanos, loggers)
    sampler = sampleDriver()
    sc.addSparkListener(layers)
    Outcome.after(Outcome.of(trained(recorder, live)))(
      () => sc.removeSparkListener(layers),
      () => sampler.foreach(_.close()),
      () => ResourceLog.close(runId),
      () => sc.clearJobGroup(),
      () => Checkpointing.release(setup),
      () => setup.initial.foreach(_.destroy()),
      () => recorder.close(),
      () => folder.close()
    )
  }

  private def trained(recorder: Recorder, live: LiveRun): RunResult =
    try {
      folder.write("run.json", Json.text(Redaction.map(description)))
      folder.event("run_start", None, "name" -> setup.settings(RunKeys.name), "clock_started_ms" -> startMillis)
      folder.event("global_batch_size", setup.batch)
      folder.event("seed", setup.settings(RunKeys.seed))
      largeBatch.foreach(recorder.noticed)
      sc.setJobGroup(runId, s"sparkdl-bench ${setup.settings(RunKeys.name)}", interruptOnCancel = false)
      val trained = loop.train(setup, recorder, () => cancelled.nonEmpty)
      folder.write("run.json", Json.text(Redaction.map(trainedDescription(trained, recorder))))
      live.sent(trained.bytes)
      val bad = notFinite(recorder)
      val status = if (bad.isEmpty) "success" else "diverged"
      val summary = finish(recorder, status, trained.bytes, bad, best = trained.best, ranToEnd = true)
      progress.resultsAt(folder.path.toString)
      progress.ended("done", None)
      val path = folder.path.toString
      val input = setup.data.input.copy(change = trained.change)
      RunResult(path, summary, setup.spec, trained.weights, trained.statistics, trained.best, folder.warning, input)
    } catch {
      case e: Throwable => fail(recorder, e)
    }

  private def largeBatch: Option[Notice] = if (setup.batch <= setup.data.trainRows) None
  else
    Some(
      Notice(
        "batch_of_all_rows",
        s"the batch of ${setup.batch} is larger than the training set, so each step takes all ${setup.data.trainRows} rows"
      )
    )

  /** Of a run that went on all the same (`on_nonfinite = continue`). */
  private def notFinite(recorder: Recorder): Option[String] = recorder.history
    .find(each => !(each.trainLoss +: each.test.map(_.loss).toSeq).forall(NonFinite.isFinite))
    .map(each =>
      s"The loss is not finite from epoch ${each.epoch} on; on_nonfinite = continue trained to the end all the same."
    )

  private def sampleDriver(): Option[ResourceSampler] = {
    val host = sc.getConf.get("spark.driver.host", "")
    Option(setup.settings(ResourceSampler.hertz)).filter(_ > 0).map { hertz =>
      val log = ResourceLog.open(runId, hertz)
      new ResourceSampler(
        hertz,
        ResourceSampler.BatchMillis,
        batch => log.add(ResourceReport(runId, "driver", host, batch.samples, batch.cost))
      )
    }
  }

  /** Ends the driver's sampling: its last samples belong there. A run is what it is, with this file or without. */
  private def writeResources(): Unit = {
    sampler.foreach(_.close())
    val hertz = setup.settings(ResourceSampler.hertz)
    if (hertz > 0)
      try folder.write("resources.json", Json.line(ResourceLog.open(runId, hertz).toMap(startMillis)))
      catch { case _: java.io.IOException => () }
  }

  private def loop: TrainingLoop =
    Variants.find[TransportVariant]("transport", setup.settings(RunKeys.transport)) match {
      case jobs: JobTransport => new JobLoop(sc, jobs)
      case _: OneStageTransport => new StageLoop(sc)
      case other => throw new IllegalStateException(s"transport ${other.name} has no execution shape")
    }

  private def fail(recorder: Recorder, cause: Throwable): Nothing = {
    val ended = cancelled
    val reason = Redaction.text(ended.getOrElse(Failures.reason(cause)))
    val diverged = if (ended.nonEmpty) None else Failures.diverged(cause)
    val state = if (ended.nonEmpty) "cancelled" else if (diverged.nonEmpty) "diverged" else "failed"
    val usersToMend = ended.isEmpty && Failures.isUsers(cause)
    try finish(recorder, state, Map.empty, Some(reason), diverged.flatMap(_.step))
    catch { case NonFatal(unwritten) => cause.addSuppressed(unwritten) } // nobody must wait for the end because of that
    finally progress.ended(state, Some(reason), usersToMend)
    cause match {
      case e: VirtualMachineError => throw e
      case e: ConfigurationException => throw e
      case _ if diverged.nonEmpty => throw diverged.get
      case e if usersToMend => throw new ConfigurationException(reason, e)
      case e => throw new RunFailedException(reason, e)
    }
  }

  /**
   * @param diverged
   *   the step, from 1
   * @param ranToEnd
   *   whether all of the training was done
   */
  private def finish(
      recorder: Recorder,
      status: String,
      bytes: Map[String, Long],
      error: Option[String],
      diverged: Option[Long] = None,
      best: Option[Best] = None,
      ranToEnd: Boolean = false
  ): String = {
    val (recorded, wallMillis) = (recorder.summary(status, bytes, error), recorder.millis)
    if (ranToEnd) SparkFacts.awaitListeners(sc, TrainingRun.ListenersMillis)
    val firstStep = recorder.secondsPrepared.map(seconds => startMillis + (seconds * 1000).toLong)
    val started = if (ranToEnd) Some(sessionStart.toMap) else None // of a failed run the session may be gone
    val summary = Redaction.map(
      recorded ++ Json.fields(
        "diverged_at_step" -> diverged,
        "best" -> best.map(described(_, recorder)),
        "spark" -> (layers.seconds(wallMillis, firstStep) + ("start" -> started))
      )
    )
    recorder.ended(status)
    folder.event("run_stop", None, "status" -> status, "error" -> error)
    val text = Json.text(summary)
    try {
      writeResources()
      recorder.phaseSteps.foreach(steps => folder.write("phases.json", Json.line(steps)))
      folder.write("steps.json", Json.line(recorder.stepMillis))
      folder.write("page.html", Page.render(Redaction.map(description), summary))
    } finally folder.write("summary.json", text) // last: who finds it, such as a comparison after a kill, finds all
    text
  }

  /** Ranks sum losses and counts alone to find the best; the other metrics are in its epoch's record. */
  private def described(best: Best, recorder: Recorder): ListMap[String, Any] = {
    val measures =
      recorder.history.find(_.epoch == best.epoch + 1).flatMap(_.test).toSeq.flatMap(_.measures("test_"))
    val accuracy = if (setup.loss.isRegression) None else Some(best.test.accuracy)
    ListMap[String, Any](
      "epoch" -> (best.epoch + 1),
      "test_accuracy" -> accuracy,
      "test_loss" -> best.test.loss
    ) ++ measures
  }

  private def sessionStart: SessionStart = {
    val executors = SessionStart.registered(SparkFacts.known(sc), setup.ranks, startMillis)
    SessionStart(sc.startTime, executors, isFirst)
  }

  private def trainedDescription(trained: Trained, recorder: Recorder): ListMap[String, Any] =
    description ++ Json.fields(
      "engine" -> ListMap(trained.engine.toSeq.sorted: _*),
      "channels" -> Some(trained.channels.map(facts => ListMap(facts.toSeq.sorted: _*))).filter(_.nonEmpty),
      "rank_groups" -> recorder.rankGroups.map(_.members),
      "worker_changes" -> Some(recorder.workerChanges).filter(_.nonEmpty)
    )

  private def description: ListMap[String, Any] = Json.fields(
    "schema" -> RunFolder.Schema,
    "name" -> setup.settings(RunKeys.name),
    "run_id" -> setup.runId,
    "configuration" -> ListMap(
      (setup.settings.shown ++ setup.range.map(RunKeys.workers.name -> _.toString)).toSeq.sorted: _*
    ),
    "workers_at_start" -> setup.workers,
    "transport" -> transport.name,
    "transport_asked" -> transport.asked,
    "transport_reason" -> transport.reason,
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
      "description" -> setup.data.description,
      "skipped" -> setup.data.skipped.toMap
    ),
    "memory_estimate" -> memoryEstimate,
    "spark" -> ListMap(SparkFacts.redacted(sc.getConf): _*)
  )
}

object TrainingRun extends Logging {

  /** Longest wait for Spark's listeners at a run's end. */
  private val ListenersMillis = 20000L

  /**
   * Everything up to the first Spark job.
   *
   * @param raw
   *   the run's settings by TOML or Spark name; what the Spark session's own configuration says under `spark.sparkdl.` holds
   *   where `raw` says nothing
   */
  def prepare(sc: SparkContext, raw: Map[String, String]): TrainingRun = {
    SessionCheck.running(sc)
    val wanted = RunKeys.resolve(asked(sc.getConf.getAll.toMap, raw))
    Combination.check(wanted)
    val choice = TransportChoice.in(sc, wanted)
    val checked = choice.settings
    SessionCheck.check(sc, checked)
    if (choice.isSlower)
      logWarning(s"Each step takes Spark jobs, many times as long as without them; ${choice.line.get}.")
    val (startNanos, startMillis) = (System.nanoTime(), System.currentTimeMillis()) // before the data are touched
    val range = RunKeys.workerRange(checked)
    val (setup, memory) = plan(sc, SessionCheck.numbered(sc, checked), range)
    Checkpointing.own(setup, sc.applicationId)
    try opened(sc, setup, choice, memory, startNanos, startMillis)
    catch { case cause: Throwable => Checkpointing.release(setup); throw cause }
  }

  private def opened(
      sc: SparkContext,
      setup: RunSetup,
      choice: TransportChoice,
      memory: ListMap[String, Any],
      startNanos: Long,
      startMillis: Long
  ): TrainingRun = EndOfJvm.preparing {
    val folder = RunFolder.create(setup.settings(RunKeys.results), setup.settings(RunKeys.name))
    val progress = new RunProgress
    progress.planned(setup.settings(RunKeys.epochs), setup.totalSteps)
    progress.resultsAt(folder.path.toString)
    val loggers =
      try openLoggers(setup.settings, folder.path.getFileName.toString)
      catch { case error: Throwable => folder.discard(); throw error }
    new TrainingRun(sc, setup, choice, memory, folder, loggers, progress, startNanos, startMillis)
  }

  private def openLoggers(settings: Settings, run: String): Seq[RunLogger] = {
    val board =
      if (settings(TensorBoard.folder).isEmpty) None else Some(TensorBoard.create(settings(TensorBoard.folder), run))
    val server =
      try if (settings(MlFlow.uri).isEmpty) None else Some(MlFlow.start(settings, run))
      catch { case error: Throwable => board.foreach(_.close()); throw error }
    board.toSeq ++ server
  }

  /** Reads the data's facts, builds the model's specification and holds the memory estimate against the session. */
  private[sparkdlbench] def plan(
      sc: SparkContext,
      checked: Settings,
      range: Option[WorkerRange] = None
  ): (RunSetup, ListMap[String, Any]) = {
    val source = Variants.find[DataSource]("data source", checked(RunKeys.data))
    val settings = source.prepare(source.qualified(checked, sc.hadoopConfiguration), sc)
    val setup = planned(sc, settings, source.inspect(settings, sc.hadoopConfiguration)).copy(range = range)
    range.foreach { each =>
      // With fewer workers each owns more, and with more some layers may exchange.
      Seq(each.least, each.most).map(Resubmission.withWorkers(setup, _)).foreach(Combination.check(_, setup.spec))
      val fewest = setup.copy(settings = Resubmission.withWorkers(setup, each.least))
      if (each.least < setup.workers) MemoryCheck.estimated(sc, fewest): Unit
    }
    (setup, MemoryCheck.estimated(sc, setup))
  }

  /** The data's facts, as far as they can be had without decoding it, which takes a job. */
  private[sparkdlbench] def preview(sc: SparkContext, checked: Settings): RunPreview = {
    val source = Variants.find[DataSource]("data source", checked(RunKeys.data))
    val found = source.preview(source.qualified(checked, sc.hadoopConfiguration), sc)
    val facts = found.undecoded.getOrElse(source.inspect(found.settings, sc.hadoopConfiguration))
    RunPreview(found.settings, facts, found.undecoded.isEmpty)
  }

  /** @param counted whether the rows of `facts` are those that there are */
  private[sparkdlbench] final case class RunPreview(settings: Settings, facts: DataFacts, counted: Boolean)

  /**
   * Builds the model's specification, and checks what depends on it.
   *
   * @param counted
   *   false where nobody has counted the rows, nor knows which they are: then they are not held against those of a checkpoint
   */
  private[sparkdlbench] def planned(
      sc: SparkContext,
      settings: Settings,
      facts: DataFacts,
      counted: Boolean = true
  ): RunSetup = {
    val sized = wholeBatch(namedFolders(settings, sc), facts.trainRows)
    val spec = ModelFamily.of(settings, facts.shape, facts.classes)
    Combination.check(settings, spec)
    val threads = threadsOf(settings, sc.getConf.getOption)
    Variants.find[EngineVariant]("engine", settings(RunKeys.engine)).check(spec, threads, settings)
    val position =
      DataPosition(RunKeys.globalBatch(sized), sized(RunKeys.seed), facts.trainRows, facts.rowsIdentity)
    checkResume(sized, spec, position, counted, sc)
    val initial = InitialWeights.of(sized, spec, sc)
    val hadoop = new SerializableConfiguration(sc.hadoopConfiguration)
    val runId = UUID.randomUUID().toString.take(8)
    val setup = scheduled(RunSetup(runId, sized, spec, facts, threads, hadoop, secret(settings), initial = initial))
    setup.algorithm.refusesModel(setup).foreach(reason => throw new ConfigurationException(reason))
    setup
  }

  /**
   * Of each worker.
   *
   * @param property
   *   a Spark property's value by its name
   */
  private[sparkdlbench] def threadsOf(settings: Settings, property: String => Option[String]): Int =
    settings(RunKeys.threads) match {
      case 0 => property("spark.task.cpus").fold(1)(_.trim.toInt)
      case chosen => chosen
    }

  /** Executors have other working folders than the driver. */
  private def namedFolders(settings: Settings, sc: SparkContext): Settings =
    Seq(CheckpointKeys.folder, CheckpointKeys.resume).filter(settings(_).nonEmpty).foldLeft(settings) { (sofar, key) =>
      sofar.updated(key, CheckpointStore.named(settings(key), sc.hadoopConfiguration))
    }

  /** An algorithm of whole passes has all rows as its batch. */
  private def wholeBatch(settings: Settings, rows: Int): Settings =
    if (!Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm)).fullBatch) settings
    else settings.updated(RunKeys.batch, rows.toString).updated(RunKeys.batchPerWorker, "0")

  private def secret(settings: Settings): RunSecret =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: OneStageTransport => transport.newSecret(settings)
      case _ => RunSecret.random()
    }

  /** A schedule over the whole run learns here how long that is. */
  private def scheduled(setup: RunSetup): RunSetup =
    if (setup.settings(CosineSchedule.steps) > 0) setup
    else setup.copy(settings = setup.settings.updated(CosineSchedule.steps, setup.totalSteps.toString))

  private def checkResume(
      settings: Settings,
      spec: ModelSpec,
      planned: DataPosition,
      counted: Boolean,
      sc: SparkContext
  ): Unit = {
    val folder = settings(CheckpointKeys.resume)
    checkUnused(settings(CheckpointKeys.folder), folder, sc.hadoopConfiguration)
    if (folder.nonEmpty) {
      val snapshot = CheckpointStore.require(folder, sc.hadoopConfiguration)
      val length = snapshot.parts.flatMap(_.ranges).filter(_.name == "weights").map(_.values.length).sum
      if (length != spec.parameterCount)
        throw new ConfigurationException(
          s"The checkpoint after step ${snapshot.step} in '$folder' holds $length weights, and the model ${spec.name} has ${spec.parameterCount}. " +
            "Resume with the model settings of the run that wrote it."
        )
      val optimizer =
        Variants.find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer)).create(1, settings).state.keys.toSeq
      val algorithm = Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm))
      val held = snapshot.parts.flatMap(_.ranges).map(_.name).toSet
      val lacking = algorithm.kept(optimizer).filterNot(held)
      if (lacking.nonEmpty)
        throw new ConfigurationException(
          s"The checkpoint after step ${snapshot.step} in '$folder' holds no '${lacking.mkString("', '")}': it was written with another algorithm " +
            s"or optimizer than ${algorithm.name} and ${settings(RunKeys.optimizer)} with these settings. Resume with those of the run that wrote it."
        )
      val written = snapshot.parts.head.data
      // An algorithm of whole passes has the rows, whose number is not known, as its batch.
      val batch = if (algorithm.fullBatch) written.batch else planned.batch
      val position = if (counted) planned else planned.copy(batch = batch, rows = written.rows, set = written.set)
      if (written.copy(set = position.set) != position) {
        def told(one: DataPosition) =
          s"batch ${one.batch}, seed ${one.seed}${if (counted) s", ${one.rows} training rows" else ""}"
        throw new ConfigurationException(
          s"The checkpoint after step ${snapshot.step} in '$folder' was written with ${told(written)}, and this run has ${told(position)}: it would go " +
            "on with other rows than those that come next. Resume with the batch, seed and data of the run that wrote it."
        )
      }
      if (written.set != position.set)
        throw new ConfigurationException(
          s"The rows that were decoded for this run are not those of the run that wrote the checkpoint after step ${snapshot.step} in '$folder', since a " +
            "table has no order that another look would repeat, and Parquet files have the order of the session that decodes them. Set data.decoded_dir to the folder that the run.json of that run names."
        )
    }
  }

  /** A retry goes on from the newest checkpoint of its folder, which must not be another run's. */
  private def checkUnused(folder: String, resumed: String, hadoop: Configuration): Unit =
    if (folder.nonEmpty && folder != resumed)
      new CheckpointStore(folder, hadoop).begun.headOption.foreach { step =>
        throw new ConfigurationException(
          s"checkpoint.dir is '$folder', which holds checkpoints of another run (the newest after step $step): after the loss of an executor " +
            s"this run would go on from those. Name an empty folder, remove what is there, or go on from it with --resume $folder."
        )
      }

  /** What a run's own settings and its session's properties ask for together, by TOML names. */
  private[sparkdlbench] def asked(properties: Map[String, String], raw: Map[String, String]): Map[String, String] =
    Settings.named(properties.filter { case (name, _) =>
      // The shuffle manager's own key is the session's, not a run's; the plugin sets it.
      name.startsWith(sparkdlbench.config.Key.SparkPrefix) && name != ShuffleManagers.DelegateKey
    }) ++ Settings.named(raw)
}
