package sparkdlbench.transport

import sparkdlbench.config.Variants
import sparkdlbench.topology.{CollectiveCheck, TestCodecs, Topology}

/** Whole steps on every rank, each value checked; bytes by channel. In an object, so that tasks need nothing of the suite. */
private[transport] object Collectives {
  def run(
      connect: GroupContext => Transport,
      group: GroupContext,
      lengths: Seq[Int],
      topologies: Seq[String]
  ): Map[String, Long] = {
    val each = for (name <- topologies; topology = Variants.find[Topology]("topology", name); length <- lengths) yield {
      val transport = connect(Numbered(group, s"${topology.name}-$length"))
      try {
        CollectiveCheck(topology, TestCodecs.plain.head, TestCodecs.plain.head, length, 65536, steps = 3).run(transport)
        transport.bytesSent.toSeq
      } finally transport.close()
    }
    each.flatten.groupBy(_._1).map { case (channel, bytes) => channel -> bytes.map(_._2).sum }
  }
}

/** A rank that goes on when Spark asks its task to end, as it does soon after another executor was lost. */
private[transport] final case class Undisturbed(group: GroupContext) extends GroupContext {
  def rank: Int = group.rank
  def size: Int = group.size
  def attemptId: String = group.attemptId
  def secret: RunSecret = group.secret
  def settings: sparkdlbench.config.Settings = group.settings
  def timeoutMillis: Long = group.timeoutMillis
  def allGather(text: String): IndexedSeq[String] = group.allGather(text)
  def isKilled: Boolean = false
}
