package sparkdlbench.transport

import org.apache.spark.SparkContext
import sparkdlbench.config.{Settings, Variants}
import sparkdlbench.topology.{CollectiveCheck, TestCodecs, Topology}
import sparkdlbench.transport.push.Congestion

import scala.util.Try

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

  /** What two executors' connections say that they are controlled by, where reno is asked for; a name that there is none of is refused. */
  def congestion(sc: SparkContext, variant: TransportVariant): Set[String] = {
    val (name, keys) = (variant.name, variant.keys.filter(_.name == Congestion.key.name))
    def ask(control: String) = LocalCluster.ranks(sc, 2, Settings.resolve(Map("congestion" -> control), keys))(group =>
      Try(facts(name, Numbered(group, control)).toSeq).toEither.left.map(_.getMessage)
    )
    // The other rank may hear of this one's end before it has got as far itself.
    val wrong = ask("nosuch").map(_.left.getOrElse(""))
    require(wrong.exists(_.contains("congestion is 'nosuch'")), wrong)
    val found = ask("reno").map(_.fold(why => throw new IllegalStateException(why), _.toMap))
    found.map(_(s"$name.congestion")).toSet
  }

  private def facts(name: String, group: GroupContext): Map[String, String] = {
    val transport = Variants.find[TransportVariant]("transport", name) match {
      case stage: OneStageTransport => stage.connect(group)
      case other => throw new IllegalArgumentException(other.name)
    }
    try {
      // The connections are made when lanes are opened; without shared memory, so that there are some.
      CollectiveCheck(
        Variants.find[Topology]("topology", "sliced"),
        TestCodecs.plain.head,
        TestCodecs.plain.head,
        1000,
        65536,
        1
      )
        .run(transport)
      transport.facts
    } finally transport.close()
  }

  /** What every transport says after 1500 ms of `silence`: what the message was to carry, and which it is. */
  val silent = "waited 1500 ms in phase 'receive gradient of bucket 3 (message 0 of lane 0)'"

  /** What rank 0 is told that waits for `millis` for rank 1, which says nothing; nothing at rank 1. */
  def silence(connect: GroupContext => Transport, group: GroupContext, millis: Long): String = {
    val lanes = Seq(Lane(0, 1, 0, 64, "gradient of bucket 3"), Lane(1, 0, 1, 64))
    val patience = new Patience(group)
    val transport = connect(patience)
    try {
      transport.open(lanes, _ => None)
      patience.timeoutMillis = millis
      val told = if (group.rank == 0) Try(transport.receive(lanes.head, 0)).failed.get.getMessage else ""
      group.allGather("told") // rank 1 is there until then
      told
    } finally transport.close()
  }
}

/**
 * The end of rank 1's executor, once rank 0 has left their last meeting: word of that lies in a folder that goes with the job,
 * which is lost together with the executor.
 */
private[transport] object LostExecutor {

  /** @param sign a file that is not there yet */
  def halt(group: GroupContext, sign: String, status: Int): Unit = {
    val place = java.nio.file.Paths.get(sign)
    if (group.rank == 0) java.nio.file.Files.createFile(place): Unit
    else {
      val end = System.nanoTime() + 60000000000L
      while (!java.nio.file.Files.exists(place) && System.nanoTime() < end) Thread.sleep(20)
      Runtime.getRuntime.halt(status)
    }
  }
}

/** A rank whose bound can be lowered once it is connected, which takes long on a busy machine. */
private[transport] final class Patience(group: GroupContext) extends GroupContext {
  @volatile var timeoutMillis: Long = group.timeoutMillis
  def rank: Int = group.rank
  def size: Int = group.size
  def attemptId: String = group.attemptId
  def secret: RunSecret = group.secret
  def settings: sparkdlbench.config.Settings = group.settings
  def allGather(text: String): IndexedSeq[String] = group.allGather(text)
  def isKilled: Boolean = group.isKilled
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
