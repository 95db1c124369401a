package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.config.Variants
import sparkdlbench.transport.{RankGroups, Transport, TransportVariant}
import sparkdlbench.vector.FlatBuffer

/**
 * A topology that goes through the driver: a few Spark jobs per step, so only a transport of the job-per-step shape
 * (`JobTransport.topologies`) can carry it. There are no collectives among the ranks.
 */
trait JobTopology { self: Topology =>
  override def amongRanks: Boolean = false

  override def refuses(size: Int, gradientCodec: Codec, parameterCodec: Codec): Option[String] = {
    val carriers =
      Variants.all[TransportVariant].collect { case job: JobTransport if job.topologies.contains(name) => job.name }
    Some(
      s"Topology $name goes through the driver, a Spark job per step, and the transport of this run keeps the ranks in one stage " +
        s"for the whole training. Use transport = ${carriers.mkString(" or ")} with it, or a topology among the ranks, such as sliced."
    )
  }

  def bind(
      transport: Transport,
      gradient: FlatBuffer,
      parameters: FlatBuffer,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): Collective = {
    Topology.check(this, transport.size, gradient, parameters, gradientCodec, parameterCodec)
    throw new IllegalStateException(s"topology $name has no collectives")
  }

  /** There are no collectives; what the jobs need is the transport's. */
  def memory(
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): CollectiveMemory = CollectiveMemory(Nil, 0, 0, 0)
}
