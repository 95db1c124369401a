package sparkdlbench.config

/** The keys that every run has. A variant's own keys are declared beside the variant. */
object RunKeys {
  val name: Key[String] = Key.text("name", "run", "Name of the run; part of its results folder")
  val seed: Key[Long] = Key.long("seed", "0", 0, "Seed of the initial weights and of the order of the rows")
  val results: Key[String] = Key.text("results", "results", "Folder under which each run makes a folder of its own")
  val workers: Key[Int] = Key.workers(
    "workers",
    "2",
    "Number of ranks, each one Spark task; 2..8: as many as there are slots, within these bounds, while the run goes on"
  )
  val batch: Key[Int] =
    Key.int("batch", "128", 1, "Global batch: rows per step over all workers; any number >= workers")
  val batchPerWorker: Key[Int] =
    Key.int("batch_per_worker", "0", 0, "Rows per step and worker; when above 0 the global batch is workers times this")
  val epochs: Key[Int] = Key.int("epochs", "5", 0, "Passes over the training rows")
  val maxSteps: Key[Long] = Key.long("max_steps", "0", 0, "Stop after this many steps; 0: no such limit")
  val algorithm: Key[String] = Key.text("algorithm", "sync-sgd", "When workers exchange, and what")
  val topology: Key[String] = Key.text("topology", "sliced", "Along which edges values travel")
  val transport: Key[String] = Key.text(
    "transport",
    "auto",
    "Over which channel values travel; auto: the fastest in-band one that the session and the other settings allow"
  )
  val codec: Key[String] = Key.text("codec", "fp32", "In which bytes values travel")
  val optimizer: Key[String] = Key.text("optimizer.name", "sgd", "How an owner turns a gradient into new weights")
  val learningRate: Key[Double] = Key.number("optimizer.learning_rate", "0.1", 0, "Step size")
  val loss: Key[String] =
    Key.text(
      "loss.name",
      "cross-entropy",
      "What training makes small: cross-entropy tells classes apart, binary-cross-entropy no from yes; the others are for regression"
    )
  val model: Key[String] = Key.text("model.name", "mlp", "Model family")
  val data: Key[String] = Key.text("data.source", "digits", "Where rows come from")
  val engine: Key[String] = Key.text("engine.name", "libtorch", "What computes loss and gradients")
  val threads: Key[Int] =
    Key.int("engine.threads", "0", 0, "Compute threads of a worker; 0: as many as spark.task.cpus")
  val timeoutSeconds: Key[Int] = Key.int("timeout", "60", 1, "Longest wait for any other rank, seconds")
  val slotsWaitSeconds: Key[Int] =
    Key.int("slots_wait", "60", 0, "Longest wait for executors to register, seconds")
  val allowPlaintext: Key[Boolean] = Key.flag(
    "allow_plaintext",
    "false",
    "Train over a transport that cannot encrypt in a session that does"
  )
  val sliceLimit: Key[Int] =
    Key.int("slice_limit", "1073741824", 64, "Largest block in bytes; larger slices travel cut up")
  val evaluateEvery: Key[Int] =
    Key.int("evaluate_every", "1", 0, "Epochs between evaluations on the test rows; 0: only at the end")

  val shuffleDelegate: Key[String] =
    Key.text(
      "shuffle.delegate",
      "sort",
      "The session's own shuffle manager, which block-stream's wraps; read when the session starts"
    )

  val own: Seq[Key[_]] = Seq(
    shuffleDelegate,
    name,
    seed,
    results,
    workers,
    batch,
    batchPerWorker,
    epochs,
    maxSteps,
    algorithm,
    topology,
    transport,
    codec,
    optimizer,
    learningRate,
    loss,
    model,
    data,
    engine,
    threads,
    timeoutSeconds,
    slotsWaitSeconds,
    allowPlaintext,
    sliceLimit,
    evaluateEvery
  )

  /** Every key there is: the run's own and those that the variants declare (the same key may serve several variants). */
  def all: Seq[Key[_]] = {
    val axes = Axis.all
    val shared = KeyGroup.all.flatMap(_.keys) ++ axes.flatMap(_.keys)
    (own ++ CheckpointKeys.all ++ shared ++ axes.flatMap(_.variants).flatMap(_.keys))
      .groupBy(_.name)
      .map(_._2.head)
      .toSeq
      .sortBy(_.name)
  }

  /** Checks names and values, and that every variant named exists. */
  def resolve(raw: Map[String, String]): Settings = {
    val settings = Settings.resolve(raw, all)
    Axis.all.foreach(_.check(settings))
    settings
  }

  /** Of a run whose number of workers may change while it goes on. */
  def workerRange(settings: Settings): Option[WorkerRange] =
    WorkerRange.read(settings.entries.getOrElse(workers.name, "")).filter(range => range.least < range.most)

  /** The most workers that the run may ever have. */
  def mostWorkers(settings: Settings): Int = workerRange(settings).fold(settings(workers))(_.most)

  def globalBatch(settings: Settings): Int =
    if (settings(batchPerWorker) > 0) Math.multiplyExact(settings(batchPerWorker), settings(workers))
    else settings(batch)
}
