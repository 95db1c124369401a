package sparkdlbench.algorithm

import sparkdlbench.metrics.Phase
import sparkdlbench.optimizer.Optimizer
import sparkdlbench.rank.{RankContext, Snapshot, StateRange}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

/**
 * What the algorithms share whose ranks have weights of their own: a step of the rank's own optimiser on its own share of the
 * batch, and both through a checkpoint. A share's gradient counts `ranks` times, so that it is as long as the whole batch's.
 *
 * The weights that are evaluated and kept may be others than the rank's own: `show` puts them in the engine's place, and the
 * next step takes the own ones back.
 */
private[algorithm] final class LocalSteps(rank: RankContext, ranks: Int) {
  private val optimizer = rank.setup.newOptimizer(0, rank.parameters.length)
  private lazy val aside = new FlatBuffer(rank.parameters.length)
  private var away = false

  /** The rank's own weights, wherever they are. */
  def own: FlatBuffer = if (away) aside else rank.parameters

  def step(step: Long): Double = {
    if (away) {
      FloatOps.copy(aside.floats, rank.parameters.floats)
      away = false
    }
    val loss = rank.computeGradient(step, (_, _) => ())
    rank.timer.switch(Phase.Update)
    FloatOps.scale(rank.gradients.floats, ranks.toFloat)
    val tensors = rank.setup.spec.layout.size
    Optimizer.updateWhole(optimizer, rank.parameters.floats, rank.gradients.floats, tensors, step)
    loss
  }

  /** Puts the rank's own weights aside; then `fill` may write those to evaluate into the engine's. */
  def show(fill: FlatBuffer => Unit): Unit = {
    if (!away) FloatOps.copy(rank.parameters.floats, aside.floats)
    away = true
    fill(rank.parameters)
  }

  def state: Seq[StateRange] = StateRange(LocalSteps.weightsName(rank.rank), 0, own.toArray) +:
    optimizer.state.toSeq.map { case (name, vector) =>
      StateRange(LocalSteps.stateName(name, rank.rank), 0, vector.clone())
    }

  /**
   * As many ranks go on as they were, bit for bit. Another number of ranks begins with the mean of the old ranks' weights and of
   * their optimisers' vectors.
   */
  def restore(snapshot: Snapshot): Unit = {
    away = false
    rank.parameters.floats.put(0, ofRank(snapshot, LocalSteps.weightsName))
    optimizer.state.foreach { case (name, vector) =>
      System.arraycopy(ofRank(snapshot, LocalSteps.stateName(name, _)), 0, vector, 0, vector.length)
    }
  }

  /** Whether as many ranks wrote the checkpoint, and the own weights of each are these, bit for bit: the same answer at every rank. */
  def allAre(snapshot: Snapshot, weights: FlatBuffer): Boolean = {
    val values = weights.toArray
    snapshot.parts.size == ranks && snapshot.parts.forall { part =>
      val name = LocalSteps.weightsName(part.rank)
      part.ranges.exists(range => range.name == name && java.util.Arrays.equals(range.values, values))
    }
  }

  /** The vector `name` of a checkpoint. */
  def vector(snapshot: Snapshot, name: String): Array[Float] =
    snapshot.required(name, rank.parameters.length)

  private def ofRank(snapshot: Snapshot, name: Int => String): Array[Float] =
    if (snapshot.parts.size == ranks) vector(snapshot, name(rank.rank))
    else {
      val sum = vector(snapshot, name(0))
      for (old <- 1 until snapshot.parts.size; values = vector(snapshot, name(old)))
        sum.indices.foreach(i => sum(i) += values(i))
      sum.map(_ / snapshot.parts.size)
    }
}

private[algorithm] object LocalSteps {

  /** What `Algorithm.kept` says; of the ranks' vectors the first rank's. */
  def kept(optimizer: Seq[String]): Seq[String] = Seq("weights", weightsName(0)) ++ optimizer.map(stateName(_, 0))

  def weightsName(rank: Int): String = s"local.$rank"
  def stateName(name: String, rank: Int): String = s"optimizer.$name.$rank"
}
