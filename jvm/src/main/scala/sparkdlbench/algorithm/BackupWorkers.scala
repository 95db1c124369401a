package sparkdlbench.algorithm

import sparkdlbench.config.{CheckpointKeys, Key, RunKeys, Settings, Variants}
import sparkdlbench.optimizer.{Clipping, OptimizerVariant}
import sparkdlbench.rank.{OwnedShard, RankContext}
import sparkdlbench.transport.Transport

/**
 * Backup workers of sync-sgd (Chen et al., "Revisiting distributed synchronous SGD", ICLR 2016 workshop): a step is over at a shard of the
 * parameter server when all but `backup_workers` of the gradients are there; their sum is scaled up to the whole batch's rows, and
 * what comes later is dropped and counted. As in TensorFlow's SyncReplicasOptimizer, each shard takes those that reach it first. A worker
 * for which a step is over at some shard before it has begun it leaves it out, so that it catches up.
 *
 * Staleness 0: what is summed was computed on the step's own weights, those of all shards. Which gradients are summed depends on their
 * arrival, so the same seed need not give the same bits.
 */
object BackupWorkers {
  val count: Key[Int] = Key.int(
    "backup_workers",
    "0",
    0,
    "Workers whose gradients a step of sync-sgd does not wait for, with topology ps: the slowest are dropped and counted"
  )

  private[algorithm] def refuses(settings: Settings): Option[String] = {
    val (backups, workers) = (settings(count), settings(RunKeys.workers))
    def refused(why: String, remedy: String) = Some(
      s"backup_workers = $backups drops the slowest gradients of a step, and $why. $remedy"
    )
    if (backups == 0) None
    else if (settings(RunKeys.topology) != "ps")
      refused(
        s"with topology ${settings(RunKeys.topology)} every worker's values pass through other workers, which wait for all",
        "Set topology = ps over a transport of the one-stage shape, such as block-stream, or backup_workers = 0."
      )
    else if (backups >= workers)
      refused(
        s"there are $workers workers, of which at least one must count",
        s"Set backup_workers to ${workers - 1} or less."
      )
    else if (settings(Clipping.norm) > 0)
      refused("clip_norm needs the length of all shards' sums, which may be of different workers", "Set clip_norm = 0.")
    else if (Variants.find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer)).layerwise)
      refused(
        s"optimizer ${settings(RunKeys.optimizer)} needs the lengths of whole layers, where each server updates its shard alone",
        "Use another optimizer, such as sgd."
      )
    else if (settings(CheckpointKeys.folder).nonEmpty && settings(CheckpointKeys.everySeconds) > 0)
      refused(
        "checkpoint.every_seconds has all workers wait for the first one's clock, and for each other's shards meanwhile",
        "Set checkpoint.every alone."
      )
    else None
  }
}

private[algorithm] final class BackupRank(rank: RankContext, transport: Transport)
    extends ShardRank(rank, transport.size) {
  private val workers = setup.workers
  private val quorum = workers - settings(BackupWorkers.count)
  private var rule: Option[FirstOf] = None
  protected val exchange: ShardExchange = new ShardExchange(
    transport,
    rank.parameters,
    servers,
    ShardPace(push = 1, fetch = 1, bound = Some(0)),
    setup.codec,
    setup.parameterCodec,
    (weights, from, until) => {
      val shard = OwnedShard.apart(from, weights, setup.newOptimizer(from, until))
      rule = Some(new FirstOf(shard, workers, quorum, rows))
      rule.get
    },
    rank.timer,
    setup.timeoutMillis
  )
  private var skipped = 0L
  private var rowLoss = 0.0

  private def rows(step: Long, of: Int): Int = {
    val (from, until) = setup.plan.share(setup.plan.stepInEpoch(step), of)
    until - from
  }

  /** Rows that are left out count with the mean loss of the last ones that were not. */
  protected def compute(step: Long): Double = {
    exchange.beforeStep(step)
    exchange.awaitReplies()
    val own = rows(step, rank.rank)
    if (exchange.isOver(step)) {
      skipped += 1
      exchange.skip(step + 1)
      rowLoss * own
    } else {
      val loss = rank.computeGradient(step, (_, _) => exchange.serve())
      exchange.afterStep(step + 1, rank.gradients, 1f)
      if (own > 0) rowLoss = loss / own
      loss
    }
  }

  override def counts: Map[String, Seq[Long]] =
    Map("left_out" -> Seq(skipped)) ++ rule.map(each => "dropped" -> Seq(each.dropped))
}
