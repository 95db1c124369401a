package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.transport.Transport
import sparkdlbench.vector.{FlatBuffer, VectorMemory}

/**
 * One rank's side of the laws: goes through whole training steps and checks every value. Runs on any transport, in
 * threads as in Spark tasks.
 *
 * @param inPlace
 *   gradient and parameters are one buffer (a plain all-reduce)
 * @param servers
 *   ranks, the last ones, whose gradients are zeros and which get nothing but sums
 * @param memory
 *   where each rank's vectors lie
 */
final case class CollectiveCheck(
    topology: Topology,
    gradientCodec: Codec,
    parameterCodec: Codec,
    length: Int,
    bucketLength: Int,
    steps: Int,
    inPlace: Boolean = false,
    servers: Int = 0,
    memory: VectorMemory = VectorMemory.Own
) {
  import CollectiveCheck._

  def label: String = s"${topology.name} ${gradientCodec.name}/${parameterCodec.name} $length values in buckets of " +
    s"$bucketLength${if (inPlace) " in place" else ""}"

  /** @return the owned ranges of this rank */
  def run(transport: Transport): Seq[(Int, Int)] = {
    val gradient = memory.vector(length)
    val parameters = if (inPlace) gradient else memory.vector(length)
    val collective = topology.bind(transport, gradient, parameters, bucketLength, gradientCodec, parameterCodec)
    val owned = (0 until collective.buckets).map(collective.owned)
    val workers = transport.size - servers
    val computes = transport.rank < workers
    val held = if (computes) (0 until collective.buckets).map(collective.range) else owned
    checkRanges(collective)
    for (sequence <- 0L until steps.toLong) {
      for (bucket <- 0 until collective.buckets) {
        if (!inPlace && sequence > 0) {
          val (from, until) = held(bucket)
          expect(parameters, from, until, s"before step $sequence", transport)(finished(workers, sequence - 1))
        }
        val (from, until) = collective.range(bucket)
        (from until until).foreach(i =>
          gradient.floats.put(i, if (computes) input(transport.rank, i, sequence) else 0f)
        )
        collective.contribute(bucket, sequence)
      }
      for (bucket <- 0 until collective.buckets) {
        collective.reduce(bucket, sequence)
        val (from, until) = owned(bucket)
        expect(gradient, from, until, s"reduced in step $sequence", transport)(sumOfInputs(workers, sequence))
        if (!inPlace) for (i <- from until until) parameters.floats.put(i, finished(workers, sequence)(i))
        collective.publish(bucket, sequence)
      }
      (0 until collective.buckets).foreach(collective.collect(_, sequence))
      collective.flush()
      val expected = if (inPlace) sumOfInputs(workers, sequence) _ else finished(workers, sequence) _
      for ((from, until) <- held) expect(parameters, from, until, s"collected in step $sequence", transport)(expected)
    }
    checkBytes(transport)
    owned
  }

  private def checkRanges(collective: Collective): Unit = {
    val ranges = (0 until collective.buckets).map(collective.range)
    val ends = ranges.map(_._1)
    assert(ranges.map(_._2) == (if (length == 0) Nil else length +: ends.dropRight(1)), s"$label: buckets $ranges")
    assert(ends.lastOption.forall(_ == 0) && ranges.forall(range => range._1 < range._2), s"$label: buckets $ranges")
  }

  private def checkBytes(transport: Transport): Unit = {
    val sent = transport.bytesSent.filter { case (channel, _) => !channel.endsWith(".framing") }
    val stated =
      topology.bytesPerStep(transport.rank, transport.groups, length, bucketLength, gradientCodec, parameterCodec)
    stated.total.foreach(bytes =>
      assert(
        sent.values.sum == bytes * steps,
        s"$label: rank ${transport.rank} sent $sent bytes, stated $stated a step"
      )
    )
    if (!transport.groups.alone)
      assert(
        sent.getOrElse("in-process", 0L) == stated.withinGroup * steps,
        s"$label: rank ${transport.rank} sent $sent bytes, stated $stated a step"
      )
  }

  private def expect(buffer: FlatBuffer, from: Int, until: Int, when: String, transport: Transport)(
      expected: Int => Float
  ): Unit = {
    // Sums over the ranks for each of a million values took longer than the exchange that is checked.
    val repeated = Array.tabulate(Period)(expected)
    val found = new Array[Float](until - from)
    buffer.floats.get(from, found)
    var i = from
    while (i < until) {
      if (found(i - from) != repeated(i % Period))
        throw new AssertionError(
          s"$label, rank ${transport.rank} of ${transport.size}: value $i $when is " +
            s"${found(i - from)}, not ${repeated(i % Period)}"
        )
      i += 1
    }
  }
}

object CollectiveCheck {

  /** Inputs, and with them all that is expected, are the same again after so many values. */
  private val Period = 13

  /** Small whole numbers: sums are exact in whatever order, and in bf16 too. */
  def input(rank: Int, index: Int, sequence: Long): Float =
    (Math.floorMod(index * 31L + rank * 17 + sequence * 7, Period.toLong) - 6).toFloat

  def sumOfInputs(size: Int, sequence: Long)(index: Int): Float = {
    var sum = 0f
    var rank = 0
    while (rank < size) { sum += input(rank, index, sequence); rank += 1 }
    sum
  }

  /** What owners make of the sum. */
  def finished(size: Int, sequence: Long)(index: Int): Float =
    2 * sumOfInputs(size, sequence)(index) + (sequence % 5).toFloat
}
