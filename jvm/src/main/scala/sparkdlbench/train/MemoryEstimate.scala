package sparkdlbench.train

import sparkdlbench.algorithm.AlgorithmMemory
import sparkdlbench.collective.VectorGather
import sparkdlbench.common.{MemoryKind, MemoryPart}
import sparkdlbench.config.{CheckpointKeys, RunKeys, Variants}
import sparkdlbench.rank.ExchangeMemory
import sparkdlbench.topology.{JobTransport, Topology}
import sparkdlbench.transport.{OneStageTransport, RankGroups, TransportVariant}
import sparkdlbench.vector.Slices

import scala.collection.immutable.ListMap

/**
 * What a run will need, from its settings alone. Weights, gradients, exchange buffers, residuals, batches and optimiser state are
 * exact up to alignment; activations are an upper bound; what Spark, the JVM and the native libraries take for themselves
 * are rules of thumb, named as such.
 *
 * @param workersPerExecutor
 *   most workers that one executor is taken to run, if they are spread evenly
 * @param result
 *   bytes of the largest result of a Spark job
 */
final case class MemoryEstimate(
    workersPerExecutor: Int,
    worker: Seq[MemoryPart],
    executor: Seq[MemoryPart],
    driver: Seq[MemoryPart],
    result: Long
) {
  import MemoryKind._

  def executorHeap: Long = executorBytes(Heap) + executorParts(HeapAtTimes).map(_.bytes).foldLeft(0L)(math.max)
  def executorDirect: Long = executorBytes(Direct)

  /** All that the operating system sees beside the heap. */
  def executorOffHeap: Long = executorBytes(Direct) + executorBytes(Native) + executorBytes(Mapped)
  def driverHeap: Long = driver.filter(_.kind == Heap).map(_.bytes).sum
  def driverDirect: Long = driver.filter(_.kind == Direct).map(_.bytes).sum

  def executorBytes(kind: MemoryKind): Long = executorParts(kind).map(_.bytes).sum

  /** What the workers of one executor take together, and what it takes once. */
  def executorParts(kind: MemoryKind): Seq[MemoryPart] =
    worker.filter(_.kind == kind).map(part => part.copy(bytes = part.bytes * workersPerExecutor)) ++
      executor.filter(_.kind == kind)

  def toMap: ListMap[String, Any] = {
    def described(parts: Seq[MemoryPart]) = parts.filter(_.bytes > 0).map { part =>
      ListMap[String, Any]("name" -> part.name, "kind" -> part.kind.name, "bytes" -> part.bytes)
    }
    ListMap(
      "workers_per_executor" -> workersPerExecutor,
      "executor_heap_bytes" -> executorHeap,
      "executor_direct_bytes" -> executorDirect,
      "executor_off_heap_bytes" -> executorOffHeap,
      "driver_heap_bytes" -> driverHeap,
      "driver_direct_bytes" -> driverDirect,
      "result_bytes" -> result,
      "each_worker" -> described(worker),
      "each_executor" -> described(executor),
      "driver" -> described(driver)
    )
  }
}

object MemoryEstimate {
  import MemoryKind._

  /** Spark's own objects on the heap of an executor or driver that does nothing else; a rule of thumb. */
  val SparkHeapBytes: Long = 128L << 20

  /** The part that is the decoded rows. */
  val DataSet = "data set"

  /** Class data, compiled code, stacks, and the buffers of Spark's network; a rule of thumb. */
  val JvmBytes: Long = 192L << 20

  def of(setup: RunSetup, workersPerExecutor: Int): MemoryEstimate = {
    val parameters = setup.spec.parameterCount.toLong
    // The ranks of a stage bring the best weights back beside the last ones; of a job per step the driver has them already.
    val (kept, inOneStage) = (Best.kept(setup.settings), isOneStage(setup))
    val best = if (!kept) 0L else if (inOneStage) 12 * parameters else 4 * parameters
    val returned = if (kept && inOneStage) 8 * parameters else 4 * parameters
    val gathered = Seq(
      MemoryPart("trained weights, three times: as they arrive, read, and put together", Heap, 12 * parameters),
      MemoryPart("weights of the best evaluation beside them", Heap, best),
      MemoryPart("Spark itself (rule of thumb)", Heap, SparkHeapBytes)
    )
    val exchange = exchangeMemory(setup, workersPerExecutor)
    MemoryEstimate(
      workersPerExecutor,
      modelParts(setup) ++ exchange.worker,
      executorParts(setup) ++ exchange.executor,
      gathered ++ exchange.driver,
      math.max(returned, exchange.result)
    )
  }

  private def isOneStage(setup: RunSetup): Boolean =
    Variants
      .find[TransportVariant]("transport", setup.settings(RunKeys.transport))
      .isInstanceOf[OneStageTransport]

  private def modelParts(setup: RunSetup): Seq[MemoryPart] = {
    val parameters = setup.spec.parameterCount.toLong
    val share = setup.rowsAtOnce.toLong
    val evaluated = RankState.evaluationRows(setup).toLong
    val rows = math.max(evaluated, share)
    val width = setup.data.shape.map(_.toLong).product
    val engine = setup.engine.memory(setup.spec, rows.toInt)
    Seq(
      MemoryPart("weights", Direct, 4 * parameters),
      MemoryPart("gradient", Direct, 4 * parameters),
      MemoryPart(
        "gradients of parts of a step's rows, added up",
        Direct,
        if (setup.rowsAtOnce < setup.plan.maxShare) 4 * parameters else 0
      ),
      MemoryPart("engine's buffers", Direct, engine.direct),
      MemoryPart("activations (upper bound)", Native, engine.native),
      MemoryPart("engine's objects", Heap, engine.heap),
      MemoryPart("batches", Direct, (share + evaluated) * (4 * width + 8)),
      MemoryPart("order of the rows", Heap, 4L * setup.data.trainRows)
    )
  }

  private def executorParts(setup: RunSetup): Seq[MemoryPart] = {
    val engine = setup.engine.memory(setup.spec, 1)
    val copies = if (Best.kept(setup.settings)) 2 else 1 // the last ones, and the best
    Seq(
      MemoryPart(DataSet, Heap, setup.data.heldBytes),
      MemoryPart("Spark itself (rule of thumb)", Heap, SparkHeapBytes),
      MemoryPart("native libraries (rule of thumb)", Native, engine.library),
      MemoryPart("JVM itself (rule of thumb)", Native, JvmBytes),
      // The values, the bytes that Spark makes of them, and those within the task's result.
      MemoryPart("trained weights on their way to the driver", HeapAtTimes, copies * 12L * setup.spec.parameterCount)
    )
  }

  private def exchangeMemory(setup: RunSetup, workersPerExecutor: Int): ExchangeMemory =
    Variants.find[TransportVariant]("transport", setup.settings(RunKeys.transport)) match {
      case transport: OneStageTransport => ExchangeMemory(oneStageParts(setup, transport, workersPerExecutor))
      case transport: JobTransport => withCheckpoints(setup, transport)
      case other => throw new IllegalStateException(s"transport ${other.name} has no execution shape")
    }

  /** Of a job per step: the copies that checkpoints are written from and read to, at the ranks and in the driver, which looks for the newest. */
  private def withCheckpoints(setup: RunSetup, transport: JobTransport): ExchangeMemory = {
    val exchange = transport.memory(setup, Topology.of(setup.settings))
    val (writes, resumes) =
      (setup.settings(CheckpointKeys.folder).nonEmpty, setup.settings(CheckpointKeys.resume).nonEmpty)
    if (!writes && !resumes) exchange
    else {
      val parameters = setup.spec.parameterCount
      val values = 4L * (1 + setup.optimizerValues)
      val residual = ExchangeMemory.residual(setup).bytes
      val owned = if (transport.updatesWhole(setup.settings)) parameters else Slices(parameters, setup.workers).maxSize
      val copied = if (writes) values * owned + residual else 0L
      val read = values * parameters + setup.workers * residual
      val parts = Seq(
        MemoryPart("copy for a checkpoint", HeapAtTimes, copied),
        MemoryPart("a checkpoint that is read", HeapAtTimes, read + values * parameters + 2 * residual)
      )
      val driver = MemoryPart("a checkpoint that is read", Heap, read)
      exchange.copy(worker = exchange.worker ++ parts, driver = exchange.driver :+ driver)
    }
  }

  private def oneStageParts(setup: RunSetup, transport: OneStageTransport, workersPerExecutor: Int): Seq[MemoryPart] = {
    val topology = Topology.of(setup.settings)
    val algorithm = setup.algorithm
    // Which ranks share an executor is Spark's to decide; their numbers decide the memory.
    val processes = (0 until setup.ranks).map(_ / workersPerExecutor)
    val needs = algorithm.memory(setup, topology, RankGroups.chosen(setup.settings, processes))
    val inboxes = needs.collective.inboxes
    val direct = inboxes.map(box => box.count * transport.inboxBytes(box.capacity, box.destination)).sum
    val mapped = inboxes
      .filter(!_.withinGroup)
      .map(box => box.count * transport.mappedInboxBytes(setup.settings, box.capacity).getOrElse(0L))
      .sum
    val (shown, showing) =
      VectorGather.memory(setup.ranks, setup.spec.exchanges, transport.inboxBytes(_, destination = false))
    Seq(
      MemoryPart("what layers show each other", Direct, shown + showing),
      MemoryPart("inboxes for other ranks' messages", Direct, direct),
      MemoryPart("the same as mapped files, where executors share a host", Mapped, mapped),
      MemoryPart("encoded values", Direct, needs.collective.images),
      MemoryPart("what the codec left out", Direct, needs.collective.residual),
      MemoryPart("further copies of weights", Direct, needs.weightCopies),
      MemoryPart("the algorithm's vectors", Heap, needs.heap),
      MemoryPart("weights of the best evaluation", Heap, if (Best.kept(setup.settings)) 4 * needs.optimized else 0L)
    ) ++ stateParts(setup, needs)
  }

  /** Optimiser state, and the copies that checkpoints are written from and read to. */
  private def stateParts(setup: RunSetup, needs: AlgorithmMemory): Seq[MemoryPart] = {
    val parameters = setup.spec.parameterCount.toLong
    val state = setup.optimizerValues
    val (writes, resumes) =
      (setup.settings(CheckpointKeys.folder).nonEmpty, setup.settings(CheckpointKeys.resume).nonEmpty)
    val copied = if (writes) 4 * needs.written + needs.collective.residual else 0
    // Vectors are put together from what all ranks wrote; of residuals one whole, and this rank's own.
    val whole = 4 * parameters * (1 + state)
    val residuals = if (needs.collective.residual > 0) setup.ranks + 2 else 0
    val read = 4 * needs.read + whole + 4 * parameters * residuals
    Seq(
      MemoryPart("optimiser's state", Heap, 4 * needs.optimized * state),
      MemoryPart("copy for a checkpoint", HeapAtTimes, copied),
      MemoryPart("a checkpoint that is read", HeapAtTimes, if (writes || resumes) read else 0)
    )
  }
}
