package sparkdlbench.transport

import sparkdlbench.config.{Key, Settings}

/**
 * Which ranks of a group sum their values in memory before anything is sent: those of one executor process.
 *
 * @param members
 *   every rank in exactly one group; ranks of a group in ascending order, groups in the order of their lowest ranks
 */
final case class RankGroups(members: IndexedSeq[IndexedSeq[Int]]) {
  private val sorted = members.flatten.sorted
  require(
    sorted == sorted.indices && members.forall(group => group.nonEmpty && group == group.sorted) &&
      members.map(_.head) == members.map(_.head).sorted,
    s"$members are no groups of ranks"
  )
  def size: Int = sorted.length
  def count: Int = members.length

  /** True where no rank shares its process with another. */
  def alone: Boolean = count == size
}

object RankGroups {

  /** Whether ranks of one executor sum in memory first. */
  val inMemoryFirst: Key[String] = Key.choice(
    "in_memory_first",
    "on",
    Seq("on", "off"),
    "Ranks of one executor sum their gradients in memory and send the sum once (on), or each rank exchanges for itself (off)"
  )

  def alone(size: Int): RankGroups = RankGroups((0 until size).map(IndexedSeq(_)))

  /** Ranks with equal keys are one group; `keys` by rank. */
  def by[K](keys: IndexedSeq[K]): RankGroups =
    RankGroups(keys.indices.groupBy(rank => keys(rank)).values.map(_.toIndexedSeq.sorted).toIndexedSeq.sortBy(_.head))

  /** The groups that a run uses, where `processes` says in which process each rank lives. */
  def chosen[K](settings: Settings, processes: IndexedSeq[K]): RankGroups =
    // A server of its own is nobody's partner, whichever executor it is in.
    if (settings(inMemoryFirst) == "on" && !OwnServers.chosen(settings)) by(processes) else alone(processes.length)
}
