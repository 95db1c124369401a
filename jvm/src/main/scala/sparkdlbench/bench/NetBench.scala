package sparkdlbench.bench

import org.apache.spark.{BarrierTaskContext, SparkContext, SparkException}
import sparkdlbench.codec.{ChosenCodecs, Codec, Fp32}
import sparkdlbench.common.{ConfigurationException, Failures, Json, RunFailedException}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.topology.{Collective, Ps, Topology}
import sparkdlbench.train.{Combination, TransportChoice}
import sparkdlbench.transport.push.HostLocal
import sparkdlbench.transport.{GroupContext, OneStageTransport, RunSecret, Transport, TransportVariant}
import sparkdlbench.vector.FlatBuffer

import java.util.UUID
import scala.jdk.CollectionConverters._

/**
 * One all-reduce (sum) of `elements` fp32 values among `workers` ranks, timed many times.
 *
 * @param nanos
 *   one value an iteration, in order: the mean over the ranks of what each measured
 * @param warmup
 *   iterations before the timed ones
 * @param correct
 *   every value was right on every rank, before the timed iterations and after them; with a codec that leaves values out
 *   for later, together with what the ranks still hold of it
 * @param bytes
 *   bytes sent by rank 0 in all, by channel
 * @param facts
 *   what really carried them, as rank 0's transport says
 */
final case class NetSample(
    transport: String,
    topology: String,
    codec: String,
    hostLocal: String,
    workers: Int,
    elements: Int,
    bucketBytes: Int,
    warmup: Int,
    nanos: Array[Long],
    correct: Boolean,
    bytes: Map[String, Long],
    facts: Map[String, String]
) {
  private lazy val sorted = nanos.sorted

  /** Milliseconds below which `share` of the iterations stayed, 0 to 1. */
  def quantile(share: Double): Double = sorted(math.min(sorted.length - 1, (sorted.length * share).toInt)) / 1e6

  /** Median of the second half over the median of the first: far from 1 where the warm-up was too short. */
  def drift: Double = {
    def median(part: Array[Long]): Double = part.sorted.apply(part.length / 2).toDouble
    val (first, second) = nanos.splitAt(nanos.length / 2)
    if (first.isEmpty) 1.0 else median(second) / median(first)
  }

  /** S/t, GB a second (10^9 bytes), at the median. */
  def algorithmBandwidth: Double = elements * 4.0 / (quantile(0.5) * 1e6)

  /** What each link carried: S/t · 2(N−1)/N (all-reduce), as in NCCL's tests. */
  def busBandwidth: Double = algorithmBandwidth * 2 * (workers - 1) / workers

  /** One line of JSON; with the samples themselves. */
  def json: String = Json.line(
    Json.fields(
      "transport" -> transport,
      "topology" -> topology,
      "codec" -> codec,
      "host_local" -> hostLocal,
      "workers" -> workers,
      "elements" -> elements,
      "bucket_bytes" -> bucketBytes,
      "warmup" -> warmup,
      "iterations" -> nanos.length,
      "median_ms" -> quantile(0.5),
      "p10_ms" -> quantile(0.1),
      "p90_ms" -> quantile(0.9),
      "p99_ms" -> quantile(0.99),
      "min_ms" -> quantile(0),
      "drift" -> drift,
      "algbw_gbps" -> algorithmBandwidth,
      "busbw_gbps" -> busBandwidth,
      "correct" -> correct,
      "bytes" -> bytes,
      "facts" -> facts,
      "samples_ms" -> nanos.map(_ / 1e6).toSeq
    )
  )
}

/**
 * How often an all-reduce is done.
 *
 * @param warmupSeconds
 *   roughly how long to warm up at a size; the JIT compilers need some thousand iterations
 * @param sampleSeconds
 *   roughly how long to measure at a size
 * @param warmupCount
 *   iterations of warm-up whatever the size; 0: by the seconds
 * @param sampleCount
 *   timed iterations whatever the size; 0: by the seconds
 */
final case class NetEffort(
    warmupSeconds: Double = 6,
    sampleSeconds: Double = 3,
    warmupCount: Int = 0,
    sampleCount: Int = 0
) {

  /** Iterations that take about `seconds`, guessed from the size so that all ranks agree without asking each other. */
  private def iterations(seconds: Double, elements: Int, atLeast: Int): Int =
    math.max(atLeast.toDouble, math.min(seconds * 4000, seconds * 1e9 / (150e3 + elements * 2.0))).toInt
  def warmup(elements: Int): Int = if (warmupCount > 0) warmupCount else iterations(warmupSeconds, elements, 100)
  def samples(elements: Int): Int = if (sampleCount > 0) sampleCount else iterations(sampleSeconds, elements, 50)
}

/** The collective microbenchmark: all-reduces through a one-stage transport, a topology and a codec, in one barrier stage. */
object NetBench {

  /**
   * All-reduces of each of `elements` values with the variants and workers of `settings`, one after the other.
   *
   * @param bucketBytes
   *   the vector travels in buckets of this many bytes
   */
  def run(
      sc: SparkContext,
      settings: Settings,
      elements: Seq[Int],
      bucketBytes: Int,
      effort: NetEffort = NetEffort()
  ): Seq[NetSample] = {
    refused(settings).foreach(reason => throw new ConfigurationException(reason))
    val workers = settings(RunKeys.workers)
    val run = UUID.randomUUID().toString
    val secret = transport(settings).newSecret(settings)
    def measured() = sc
      .parallelize(0 until workers, workers)
      .barrier()
      .mapPartitions { _ =>
        val context = BarrierTaskContext.get()
        elements.zipWithIndex.map { case (count, index) =>
          def connect(part: String) = {
            val attemptId = s"$run-${context.stageAttemptNumber()}-$index-$part"
            transport(settings).connect(new NetGroup(settings, context, attemptId, secret))
          }
          new NetRank(settings, count, math.max(1, bucketBytes / 4), connect).measure(effort)
        }.iterator
      }
      .collect()
    val results =
      try measured()
      catch {
        case cause: SparkException if Failures.isUsers(cause) =>
          throw new ConfigurationException(Failures.reason(cause), cause)
        case cause: SparkException => throw new RunFailedException(Failures.reason(cause), cause)
      }
    elements.map(count => combine(settings, bucketBytes, results.filter(_.elements == count).toSeq, effort))
  }

  /**
   * Why nothing can be measured with these settings; empty where it can. For Python, which asks for every combination of a
   * sweep before the first one runs. Throws a ConfigurationException where a name or a value is none.
   */
  def refusal(raw: java.util.Map[String, String]): String =
    refused(TransportChoice.beforeStart(RunKeys.resolve(raw.asScala.toMap))).getOrElse("")

  private def refused(settings: Settings): Option[String] =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case _: OneStageTransport => Combination.refusal(settings).orElse(ownServers(settings))
      case other =>
        val valid = Variants.all[TransportVariant].collect { case one: OneStageTransport => one.name }
        Some(
          s"transport = ${other.name} trains by Spark jobs and has no collectives of its own to measure. Valid here: ${valid.mkString(", ")}."
        )
    }

  private def ownServers(settings: Settings): Option[String] =
    if (Ps.own(settings))
      Some(
        "ps.place = own has servers that bring no values of their own to a sum, and what is measured here is a sum over all ranks. Set ps.place = workers."
      )
    else None

  private def transport(settings: Settings): OneStageTransport = OneStageTransport.of(settings)

  private def combine(settings: Settings, bucketBytes: Int, ranks: Seq[NetRankResult], effort: NetEffort): NetSample = {
    val elements = ranks.head.elements
    NetSample(
      settings(RunKeys.transport),
      settings(RunKeys.topology),
      settings(RunKeys.codec),
      if (transport(settings).keys.contains(HostLocal.mode)) settings(HostLocal.mode) else "off",
      ranks.size,
      elements,
      bucketBytes,
      effort.warmup(elements),
      ranks.map(_.nanos).transpose.map(_.sum / ranks.size).toArray,
      ranks.forall(_.correct),
      ranks.minBy(_.rank).bytes,
      ranks.minBy(_.rank).facts
    )
  }
}

private[bench] final case class NetRankResult(
    rank: Int,
    elements: Int,
    nanos: Array[Long],
    correct: Boolean,
    bytes: Map[String, Long],
    facts: Map[String, String]
)

/** What a rank of the benchmark knows of its group. */
private final class NetGroup(
    val settings: Settings,
    context: BarrierTaskContext,
    val attemptId: String,
    val secret: RunSecret
) extends GroupContext {
  def rank: Int = context.partitionId()
  def size: Int = settings(RunKeys.workers)
  def timeoutMillis: Long = settings(RunKeys.timeoutSeconds) * 1000L
  def allGather(text: String): IndexedSeq[String] = context.allGather(text).toIndexedSeq
  def isKilled: Boolean = context.isInterrupted()
}

/**
 * One rank of the benchmark.
 *
 * With a codec that keeps what it leaves out the sums are right together with what all ranks have kept. What is kept of a check would be
 * sent along in the timed iterations, so there these begin with a collective of their own.
 *
 * @param connect
 *   connects this rank to its group, by the name of what it is for; a collective call
 */
private[bench] final class NetRank(settings: Settings, elements: Int, bucketLength: Int, connect: String => Transport) {
  private val codec = ChosenCodecs.gradient(settings)
  private val keeps = codec.keepsResidual

  def measure(effort: NetEffort): NetRankResult = {
    val before = !keeps || isWhole(over("before", codec, ChosenCodecs.parameters(settings))(tried), "kept-before")
    val (timed, after) = over("timed", codec, ChosenCodecs.parameters(settings)) { all =>
      val first = keeps || isExact(all)
      // Zeros stay zeros when summed in place, so nothing has to be refilled between the timed steps.
      all.fill(_ => 0f)
      val nanos = Timing.nanos(effort.warmup(elements), effort.samples(elements))(_ => all.step())
      val last = keeps || isExact(all)
      val left = if (keeps) Some(tried(all)) else None
      val transport = all.transport
      val correct = before && first && last
      (NetRankResult(transport.rank, elements, nanos, correct, transport.bytesSent, transport.facts), left)
    }
    timed.copy(correct = after.forall(isWhole(_, "kept-after")) && timed.correct)
  }

  private def over[T](part: String, gradients: Codec, parameters: Codec)(use: AllReduce => T): T = {
    val transport = connect(part)
    try {
      val values = OneStageTransport.of(settings).vectors(settings, transport.size).vector(elements)
      use(new AllReduce(Topology.of(settings), transport, values, bucketLength, gradients, parameters))
    } finally transport.close()
  }

  /** Small whole numbers: their sums are exact in any order and in 16 bits. */
  private def input(rank: Int, index: Int): Float = ((index * 31L + rank * 17) % 13 - 6).toFloat

  private def expected(size: Int)(index: Int): Float = (0 until size).map(input(_, index)).sum

  private def sumInputs(all: AllReduce): Unit = {
    all.fill(input(all.transport.rank, _))
    all.step()
  }

  private def isExact(all: AllReduce): Boolean = {
    sumInputs(all)
    all.holds(expected(all.transport.size), 0f)
  }

  private def tried(all: AllReduce): Tried = {
    sumInputs(all)
    Tried(all.values.toArray, all.residual)
  }

  /** Whether the sums, and what all ranks have kept of their values, make the sums of the values. */
  private def isWhole(tried: Tried, part: String): Boolean = {
    val raw = new Fp32
    over(part, raw, raw) { all =>
      all.fill(index => tried.kept.fold(0f)(_(index)))
      all.step()
      all.fill(index => all.values.floats.get(index) + tried.sums(index))
      val size = all.transport.size
      // A value less a threshold is rounded, and so is each sum of such.
      all.holds(expected(size), 4 * size * math.ulp(6f * size))
    }
  }
}

/**
 * What came of an all-reduce of known values.
 *
 * @param kept
 *   what this rank's messages have left out of its values; None where it sends none in a codec
 */
private[bench] final case class Tried(sums: Array[Float], kept: Option[Array[Float]])

/** All-reduces of one vector, in place, over one connection. */
private[bench] final class AllReduce(
    topology: Topology,
    val transport: Transport,
    val values: FlatBuffer,
    bucketLength: Int,
    gradientCodec: Codec,
    parameterCodec: Codec
) {
  private val elements = values.length
  private val collective: Collective =
    topology.bind(transport, values, values, bucketLength, gradientCodec, parameterCodec)
  private var sequence = 0L

  def residual: Option[Array[Float]] = collective.residual.map(_.toArray)

  def fill(value: Int => Float): Unit = (0 until elements).foreach(index => values.floats.put(index, value(index)))

  /** Whether each value is what it should be, give or take `tolerance`. */
  def holds(expected: Int => Float, tolerance: Float): Boolean =
    (0 until elements).forall(index => math.abs(values.floats.get(index) - expected(index)) <= tolerance)

  def step(): Unit = {
    collective.step(sequence)(_ => ())
    sequence += 1
  }
}
