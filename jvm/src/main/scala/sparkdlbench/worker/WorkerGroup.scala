package sparkdlbench.worker

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.SparkEnv
import org.apache.spark.sparkdlbench.{ShuffleManagers, SparkFacts}
import sparkdlbench.codec.Fp32
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.topology.{Ps, Topology}
import sparkdlbench.train.SessionCheck
import sparkdlbench.transport.TransportVariant.Auto
import sparkdlbench.transport.push.BlockStream
import sparkdlbench.transport.{GroupContext, OneStageTransport, RunSecret, Transport, TransportVariant}
import sparkdlbench.config.Variants
import sparkdlbench.common.{ConfigurationException, Outcome, RunFailedException}

import java.util.Base64
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * Some ranks of a launch that exchange over a transport of their own.
 *
 * @param name
 *   the same on all of them, and never used twice in an attempt
 * @param ranks
 *   of the launch, in the order of the group
 * @param timeoutMillis
 *   longest wait for any of them
 */
private[worker] final case class GroupPlan(
    name: String,
    ranks: IndexedSeq[Int],
    settings: Settings,
    timeoutMillis: Long
) {

  /** Of fp32 vectors that come again; a ConfigurationException where the group cannot have it. */
  def topology: Topology = {
    val chosen = Topology.of(settings)
    val raw = new Fp32
    val refusal =
      if (!chosen.amongRanks) Some("It goes through the driver by Spark jobs.")
      else if (Ps.own(settings)) Some("ps.place = own has servers besides the ranks.")
      else chosen.refuses(ranks.size, raw, raw)
    refusal.foreach { reason =>
      throw new ConfigurationException(
        s"topology = ${chosen.name} does not fit the ${ranks.size} ranks of the group $name. $reason Set topology = sliced, or leave it out."
      )
    }
    chosen
  }
}

private[worker] object GroupPlan {

  /** As the first request of a group's connection has it. */
  def of(words: JsonNode, session: WorkerSession): GroupPlan = {
    val ranks = words.path("ranks").asScala.map(_.asInt(-1)).toIndexedSeq
    if (
      ranks.distinct != ranks || !ranks.contains(session.rank) || ranks.exists(rank => rank < 0 || rank >= session.size)
    )
      throw new ConfigurationException(
        s"The group ${words.path("name").asText} has the ranks ${ranks.mkString(", ")}, and rank ${session.rank} of ${session.size} opens it. Valid are ranks from 0 to " +
          s"${session.size - 1}, each once, with that rank among them."
      )
    val raw = words.path("settings").properties.asScala.map(each => each.getKey -> each.getValue.asText).toMap
    GroupPlan(
      WorkerConnection.text(words, "name"),
      ranks,
      checked(RunKeys.resolve(raw + ("workers" -> ranks.size.toString))),
      WorkerConnection.whole(words, "timeout_ms", 1, Int.MaxValue).toLong
    )
  }

  /** With a transport that groups can have here: `auto` is the one that runs would get, where that has ranks that live as long as the group. */
  private def checked(settings: Settings): Settings = {
    val named =
      if (settings(RunKeys.transport) == Auto) settings.updated(RunKeys.transport, (new BlockStream).name) else settings
    Variants.find[TransportVariant]("transport", named(RunKeys.transport)) match {
      case _: OneStageTransport =>
        Option(SparkEnv.get).foreach(env => SessionCheck.encryption(SparkFacts.encrypts(env.conf), named))
      case other =>
        val valid = Variants.all[TransportVariant].collect { case one: OneStageTransport => one.name }.sorted
        throw new ConfigurationException(
          s"transport = ${other.name} exchanges by Spark jobs, so the ranks of a launch cannot use it. Valid: $Auto, ${valid.mkString(", ")}. Set transport to one of " +
            s"these.${if (SparkFacts.takesStreams) "" else s" $Auto needs this: ${ShuffleManagers.lacking}"}"
        )
    }
    named
  }
}

/** What a transport knows of the group. All of it is used by the thread of the group's connection. */
private[worker] final class WorkerGroupContext(session: WorkerSession, plan: GroupPlan, isClosed: () => Boolean)
    extends GroupContext {
  private var meetings = 0
  val rank: Int = plan.ranks.indexOf(session.rank)
  val size: Int = plan.ranks.size
  val attemptId: String = s"${session.launch}-${session.attempt}-${plan.name}"
  def settings: Settings = plan.settings
  def timeoutMillis: Long = plan.timeoutMillis
  def isKilled: Boolean = session.isClosed || isClosed()

  def allGather(text: String): IndexedSeq[String] = {
    meetings += 1
    session.allGather(plan.name, meetings, rank, size, text, timeoutMillis, isKilled)
  }

  private val variant = OneStageTransport.of(plan.settings)

  /** The group's first rank makes it; it goes through the driver, as secret as Spark's own messages are. */
  val secret: RunSecret =
    if (size == 1) variant.newSecret(settings)
    else {
      val words = if (rank == 0) WorkerGroupContext.print(variant.newSecret(settings)) else ""
      WorkerGroupContext.parse(allGather(words).head)
    }

  /** Connects to the other ranks, and closes the transport again where `open` fails. */
  def connect[T](open: Transport => T): (Transport, T) = {
    val transport = variant.connect(this)
    val opened = Outcome.of(open(transport))
    if (opened.isFailure) Outcome.after(opened)(() => transport.close())
    (transport, opened.get)
  }
}

private object WorkerGroupContext {
  def print(secret: RunSecret): String =
    (secret.key +: secret.certificate.toSeq).map(Base64.getEncoder.encodeToString).mkString(".")

  /** The message tells no text: it is a secret. */
  def parse(text: String): RunSecret = Try {
    val parts = text.split('.').map(Base64.getDecoder.decode)
    new RunSecret(parts.head, parts.lift(1))
  }.getOrElse(
    throw new RunFailedException(
      "The secret that the group's first rank announced cannot be read. Check that all executors run the same version of this package."
    )
  )
}
