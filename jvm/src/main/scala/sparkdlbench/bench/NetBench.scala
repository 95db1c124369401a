package sparkdlbench.bench

import org.apache.spark.{BarrierTaskContext, SparkContext, SparkException}
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.FlatBuffer
import sparkdlbench.results.Json
import sparkdlbench.topology.{Collective, Ps, Topology}
import sparkdlbench.train.Failures
import sparkdlbench.transport.push.HostLocal
import sparkdlbench.transport.{GroupContext, OneStageTransport, RunSecret, Transport, TransportVariant}
import sparkdlbench.{ConfigurationException, RunFailedException}

import java.util.UUID

/**
 * One all-reduce (sum) of `elements` fp32 values among `workers` ranks, timed many times.
 *
 * @param nanos
 *   one value an iteration, in order: the mean over the ranks of what each measured
 * @param warmup
 *   iterations before the timed ones
 * @param correct
 *   every value was right on every rank, before the timed iterations and after them
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
    if (Ps.own(settings))
      throw new ConfigurationException(
        "ps.place = own has servers that bring no values of their own to a sum, and what is measured here is a sum over all ranks. Set ps.place = workers."
      )
    val workers = settings(RunKeys.workers)
    val run = UUID.randomUUID().toString
    val secret = transport(settings).newSecret(settings)
    def measured() = sc
      .parallelize(0 until workers, workers)
      .barrier()
      .mapPartitions { _ =>
        val context = BarrierTaskContext.get()
        elements.zipWithIndex.map { case (count, index) =>
          new NetRank(settings, context, s"$run-${context.stageAttemptNumber()}-$index", secret)
            .measure(count, bucketBytes, effort)
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

  private[bench] def transport(settings: Settings): OneStageTransport =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: OneStageTransport => transport
      case other =>
        val valid = Variants.all[TransportVariant].collect { case one: OneStageTransport => one.name }
        throw new ConfigurationException(
          s"transport = ${other.name} trains by Spark jobs and has no collectives of its own to measure. Valid here: ${valid.mkString(", ")}."
        )
    }

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

private final case class NetRankResult(
    rank: Int,
    elements: Int,
    nanos: Array[Long],
    correct: Boolean,
    bytes: Map[String, Long],
    facts: Map[String, String]
)

/** One rank of the benchmark. */
private final class NetRank(
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

  def measure(elements: Int, bucketBytes: Int, effort: NetEffort): NetRankResult = {
    val transport = NetBench.transport(settings).connect(this)
    try measure(elements, bucketBytes, effort, transport)
    finally transport.close()
  }

  private def measure(elements: Int, bucketBytes: Int, effort: NetEffort, transport: Transport): NetRankResult = {
    val values = new FlatBuffer(elements)
    val collective = Topology
      .of(settings)
      .bind(
        transport,
        values,
        values,
        math.max(1, bucketBytes / 4),
        ChosenCodecs.gradient(settings),
        ChosenCodecs.parameters(settings)
      )
    var sequence = 0L
    def step(): Unit = { allReduce(collective, sequence); sequence += 1 }
    val before = isCorrect(values, step _)
    // Zeros stay zeros when summed in place, so nothing has to be refilled between the timed steps.
    (0 until elements).foreach(values.floats.put(_, 0f))
    (0 until effort.warmup(elements)).foreach(_ => step())
    val nanos = new Array[Long](effort.samples(elements))
    var sample = 0
    while (sample < nanos.length) {
      val start = System.nanoTime()
      step()
      nanos(sample) = System.nanoTime() - start
      sample += 1
    }
    val after = isCorrect(values, step _)
    NetRankResult(rank, elements, nanos, before && after, transport.bytesSent, transport.facts)
  }

  private def allReduce(collective: Collective, sequence: Long): Unit = {
    val buckets = collective.buckets
    var bucket = 0
    while (bucket < buckets) { collective.contribute(bucket, sequence); bucket += 1 }
    bucket = 0
    while (bucket < buckets) {
      collective.reduce(bucket, sequence)
      collective.publish(bucket, sequence)
      bucket += 1
    }
    bucket = 0
    while (bucket < buckets) { collective.collect(bucket, sequence); bucket += 1 }
    collective.flush()
  }

  /** Small whole numbers: their sums are exact in any order and in 16 bits. */
  private def isCorrect(values: FlatBuffer, step: () => Unit): Boolean = {
    def input(rank: Int, index: Int): Int = (index * 31 + rank * 17) % 13 - 6
    (0 until values.length).foreach(i => values.floats.put(i, input(rank, i).toFloat))
    step()
    (0 until values.length).forall(i => values.floats.get(i) == (0 until size).map(input(_, i)).sum.toFloat)
  }
}
