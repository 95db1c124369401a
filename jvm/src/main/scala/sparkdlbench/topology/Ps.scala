package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.transport.OwnServers

/**
 * Parameter server: the vector lies in `ps.shards` shards, each with one rank that alone writes it. All workers send their part
 * of a shard straight to its server, which sums in the order of ranks, updates, and sends the new shard to all workers. The servers
 * are workers, spread evenly over the ranks (with as many shards as workers this is `sliced`), or, with `ps.place = own`, tasks of their own: the
 * ranks after the last worker's, which compute nothing.
 *
 * Messages a rank and bucket: P, at a server N − 1 more, in 2 rounds. Bytes of all ranks a step: 2(N−1) · S, of which a server sends (N−1)/P · S
 * more than a rank that is none; with servers of their own, N being the workers, 2N · S, of which each server sends N/P · S. Li et al.,
 * "Scaling distributed machine learning with the parameter server", OSDI 2014.
 */
final class Ps extends Topology with ShardServers {
  def shards = 1
  def own = false
  override def configured(settings: Settings): Topology = new ChosenPs(settings(Ps.shards), Ps.own(settings))
}

object Ps {
  val shards: Key[Int] = Key.int(
    "ps.shards",
    "1",
    1,
    "Shards of topology ps, each at a rank of its own: 1 is the one server of the books, as many as workers is sliced"
  )

  /** Whether the run has servers besides its workers. */
  def own(settings: Settings): Boolean = OwnServers.chosen(settings)

  /** The ranks that a run has besides its workers. */
  def ownServers(settings: Settings): Int = if (own(settings)) settings(shards) else 0

  /** The ranks of `size` that serve the shards, in the order of the shards; fewer where there are fewer ranks. */
  def servers(size: Int, shards: Int, own: Boolean = false): IndexedSeq[Int] = {
    val count = math.min(size, shards)
    if (own) size - count until size else (0 until count).map(shard => (shard.toLong * size / count).toInt)
  }

  /**
   * Why servers of their own cannot serve a vector in these buckets, and what to do; None where they can. One whose shard were empty would be
   * sent nothing and wait for nobody: it would be through with the run while the others train.
   *
   * @param length
   *   values of the vector
   * @param bucketLength
   *   values a bucket
   */
  private[sparkdlbench] def refusesBuckets(settings: Settings, length: Int, bucketLength: Int): Option[String] = {
    val (count, largest) = (ownServers(settings), math.min(length, bucketLength))
    if (count <= largest) None
    else
      Some(
        s"ps.place = own gives each of $count shards (ps.shards) a task of its own, and no bucket of the model's $length weights has more than " +
          s"$largest values (bucket_bytes), so that some would have nothing to serve. Set ps.shards to $largest or less, or raise bucket_bytes."
      )
  }

  /** Those of a run with these settings. */
  def servers(size: Int, settings: Settings): IndexedSeq[Int] = servers(size, settings(shards), own(settings))
}

private[topology] final class ChosenPs(val shards: Int, val own: Boolean = false) extends Topology with ShardServers

private[topology] trait ShardServers extends Scheduled { self: Topology =>
  def shards: Int

  /** The servers are ranks of their own, whose gradients are zeros. */
  def own: Boolean

  def name = "ps"
  def doc = "Parameter server: P shards, each at one rank that sums, updates and sends it; ps.shards, ps.place"
  override def keys: Seq[Key[_]] = Seq(Ps.shards, OwnServers.place)

  override def refuses(size: Int, gradientCodec: Codec, parameterCodec: Codec): Option[String] =
    if (shards > size && !own)
      Some(
        s"Topology ps has ps.shards = $shards, each of which needs a worker of its own, and there are $size workers. Set ps.shards to " +
          s"$size or less, workers to $shards or more, or ps.place = own."
      )
    else super.refuses(size, gradientCodec, parameterCodec)

  /** Between groups of ranks there may be fewer than there are shards. */
  def schedule(size: Int): Schedule = {
    val servers = Ps.servers(size, shards, own)
    val owned = servers.zipWithIndex.toMap
    val ranks = 0 until size
    val workers = if (own) 0 until size - servers.size else ranks
    Schedule(
      slices = servers.size,
      ownedSlice = ranks.map(owned.get),
      // Ranks begin with different shards, so that not everybody sends to the same server first.
      reduce = Seq(for {
        from <- workers
        step <- servers.indices
        shard = (from + step) % servers.size if servers(shard) != from
      } yield Hop(from, servers(shard), shard, shard + 1)),
      // A server of its own needs no other shard than its own. Nor could it be sent any: it has no part in their sums, so the workers may be through with
      // the next step's before it has seen this one's.
      gather = Seq(for {
        (server, shard) <- servers.zipWithIndex
        step <- 1 to workers.size
        to = workers((server + step) % workers.size) if to != server
      } yield Hop(server, to, shard, shard + 1))
    )
  }
}
