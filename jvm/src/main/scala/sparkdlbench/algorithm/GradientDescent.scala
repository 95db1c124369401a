package sparkdlbench.algorithm

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.data.BatchPlan
import sparkdlbench.optimizer.Clipping
import sparkdlbench.rank.{OwnedShard, RankContext, RunContext}
import sparkdlbench.topology.{Ps, Topology}
import sparkdlbench.transport.{RankGroups, Transport}

/**
 * Gradient descent on the whole training set, as MLlib's MultilayerPerceptronClassifier has it by `solver = "gd"`: each step is a pass over all
 * rows, whose gradients are summed as those of `sync-sgd` are. Optimiser and schedule are whichever are chosen; MLlib's are `sgd` and `constant`.
 *
 * A rank computes `gd.rows` rows at a time, whose gradients it adds up before it sends anything: 4 bytes of memory more a weight.
 */
final class GradientDescent extends Algorithm {
  def name = "gd"
  def doc = "Gradient descent on the whole training set: a step is a pass over all rows"
  def staleness = "0"
  override def keys: Seq[Key[_]] = Seq(GradientDescent.rows, SyncSgd.bucketBytes, Clipping.norm)
  override def fullBatch: Boolean = true
  override def ranksMayIdle: Boolean = true
  override def sumsEveryStep: Boolean = true
  override def rowsAtOnce(settings: Settings, plan: BatchPlan): Int =
    math.min(plan.maxShare, settings(GradientDescent.rows))

  override def refuses(settings: Settings): Option[String] =
    if (settings(BackupWorkers.count) > 0)
      Some(
        s"Algorithm gd sums the gradients of all rows, and backup_workers = ${settings(BackupWorkers.count)} leaves out those of the slowest workers. Set " +
          "backup_workers = 0, or use algorithm sync-sgd."
      )
    else if (BatchShares.bySpeed(settings))
      Some(
        "Algorithm gd deals out the training rows once, and batch_shares.by = speed changes the workers' shares between steps. Set batch_shares.by = even, or " +
          "use algorithm sync-sgd."
      )
    else None

  override def refusesModel(setup: RunContext): Option[String] =
    Ps.refusesBuckets(setup.settings, setup.spec.parameterCount, SyncSgd.bucketLength(setup.settings))

  def kept(optimizer: Seq[String]): Seq[String] = OwnedShard.kept(optimizer)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    SyncSgd.together(rank, transport, topology)

  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory =
    SyncSgd.ownedMemory(setup, topology, groups)
}

object GradientDescent {
  val rows: Key[Int] =
    Key.int("gd.rows", "1024", 1, "Rows that a worker computes at once in a step of gd; they bound its memory")
}
