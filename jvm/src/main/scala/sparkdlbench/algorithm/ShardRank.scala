package sparkdlbench.algorithm

import sparkdlbench.config.Settings
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{OwnedShard, RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.{CollectiveMemory, EncodedRange, Inbox, Ps}
import sparkdlbench.vector.Slices

/** A rank of an algorithm whose weights lie in shards of a parameter server: what is kept, and how it comes back. */
private[algorithm] abstract class ShardRank(rank: RankContext, size: Int) extends RankAlgorithm {
  protected final val setup: RunContext = rank.setup
  protected final val settings: Settings = setup.settings
  protected final val servers: IndexedSeq[Int] = Ps.servers(size, settings)
  protected def exchange: ShardExchange

  /** A step of a rank that computes: its rows' loss. */
  protected def compute(step: Long): Double

  /** A rank that only serves does so until every worker is done with the step. */
  final def step(step: Long): Double = {
    rank.timer.switch(Phase.Send)
    if (rank.computes) compute(step)
    else {
      exchange.serveUntil(step + 1)
      0.0
    }
  }

  final def drain(): Unit = exchange.drain()

  /** After the last step servers may have left already. */
  final override def alive(): Unit = if (exchange.steps < setup.totalSteps) exchange.alive()

  /** A collective call: what is kept holds all ranks' steps. */
  final def state: Seq[StateRange] = {
    exchange.drain()
    owned.toSeq.flatMap(_.state) ++ exchange.residual.map(left =>
      StateRange(Residuals.name(rank.rank), 0, left.toArray)
    )
  }

  final def restore(snapshot: Snapshot): Unit = {
    val length = rank.parameters.length
    val vector = snapshot.vectors(length)
    rank.parameters.floats.put(0, vector(OwnedShard.Weights))
    owned.foreach(_.restore(vector))
    if (size > 1 && !setup.parameterCodec.lossless) Rounding.asSent(setup.parameterCodec, rank.parameters)
    exchange.residual.foreach { own =>
      val slices = Slices(length, servers.size)
      val ranges = servers.indices.filter(servers(_) != rank.rank).map { shard =>
        EncodedRange(slices.from(shard), slices.until(shard), (0 until setup.workers).filter(_ != servers(shard)))
      }
      own.floats.put(0, Residuals.restored(snapshot, rank.rank, size, length, ranges))
    }
    exchange.beginAt(snapshot.step)
  }

  final def weights: Seq[(Int, Array[Float])] =
    owned.toSeq.map(shard => (shard.from, shard.values))

  private def owned: Option[OwnedShard] = exchange.server.map(_.rule.shard)
}

private[algorithm] object ShardRank {
  private val MostBytes = 1L << 29

  def refusesModel(setup: RunContext): Option[String] = {
    val largest = Slices(setup.spec.parameterCount, setup.settings(Ps.shards)).maxSize
    val bytes = math.max(setup.codec.maxBytes(largest), setup.parameterCodec.maxBytes(largest))
    if (bytes <= MostBytes) None
    else
      Some(
        s"A shard of $largest of the model's ${setup.spec.parameterCount} weights takes up to $bytes bytes, and a message between a worker and a server that " +
          s"is asked at any time carries a shard whole, at most $MostBytes bytes. Raise ps.shards from ${setup.settings(Ps.shards)}, and workers where there are no more."
      )
  }

  /** Of the server with the largest shard: what others ask it and what it answers, and this rank's requests to the other servers. */
  def memory(setup: RunContext): AlgorithmMemory = {
    val (size, shards) = (setup.ranks, setup.settings(Ps.shards))
    val slices = Slices(setup.spec.parameterCount, shards)
    val lanes = ShardExchange.lanes(
      size,
      Ps.servers(size, setup.settings),
      slices,
      setup.codec,
      setup.parameterCodec
    )
    val others = lanes.drop(1).flatMap(_.headOption)
    def inbox(capacity: Int) = Inbox(1, capacity.toLong, destination = false, withinGroup = false)
    val inboxes = lanes.head.map(each => inbox(each.request.capacity)) ++ others.map(each => inbox(each.reply.capacity))
    val images = lanes.head.map(_.reply.capacity.toLong).sum + others.map(_.request.capacity.toLong).sum
    val residual = if (setup.codec.keepsResidual) 4L * setup.spec.parameterCount else 0L
    val owned = slices.maxSize.toLong
    // Accrued gradients; a shard's weights, a gradient as it arrives, and a sum of several.
    val collective = new CollectiveMemory(inboxes, images, residual, owned)
    AlgorithmMemory.owned(setup, collective, 4L * setup.spec.parameterCount + 12 * owned, owned)
  }
}
