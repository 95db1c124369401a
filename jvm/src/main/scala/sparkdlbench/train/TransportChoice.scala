package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{ShuffleManagers, SparkFacts}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.topology.Ps
import sparkdlbench.transport.TransportVariant.Auto

/**
 * The transport of a run: the one that was asked for, or with `auto` the fastest in-band one that carries these settings in this session.
 *
 * @param settings
 *   with that transport's name
 * @param asked
 *   `auto`, or the name that the user gave
 * @param reason
 *   why this one; None where the user named it
 */
final case class TransportChoice(settings: Settings, asked: String, reason: Option[String]) {
  def name: String = settings(RunKeys.transport)

  /** Whether each step takes Spark jobs, and nobody has asked for that. */
  def isSlower: Boolean = asked == Auto && TransportChoice.isOfJobs(name)

  /** For a terminal; None where the user named it. */
  def line: Option[String] = reason.map(why => s"transport $name: $why")
}

object TransportChoice {

  private val (streams, jobs) = ("block-stream", Seq("block-manager", "shuffle"))

  /** The fastest first. */
  private[train] val candidates: Seq[String] = streams +: jobs

  private def isOfJobs(name: String): Boolean = jobs.contains(name)

  /** In a session that runs. */
  def in(sc: SparkContext, settings: Settings): TransportChoice =
    choose(settings, obstacle(sc, settings), whyStreams(sc, settings))

  /** Before there is a session: the settings alone decide. Where none carries them, the check of the combination says so. */
  def beforeStart(settings: Settings): Settings =
    if (settings(RunKeys.transport) != Auto) settings
    else {
      val each = candidates.map(named(settings, _))
      each.find(Combination.refusal(_).isEmpty).getOrElse(each.head)
    }

  /**
   * @param obstacle
   *   why the session cannot carry streams between its executors; None where it can
   * @param why
   *   what to say of streams where they are chosen
   */
  private[train] def choose(settings: Settings, obstacle: Option[String], why: String): TransportChoice =
    settings(RunKeys.transport) match {
      case Auto =>
        val refusals = candidates.map { name =>
          name -> Some(name)
            .filter(_ == streams)
            .flatMap(_ => obstacle)
            .orElse(Combination.refusal(named(settings, name)))
        }
        refusals
          .collectFirst { case (name, None) =>
            val passedOver = refusals.takeWhile(_._1 != name).flatMap(_._2)
            TransportChoice(named(settings, name), Auto, Some(passedOver.headOption.getOrElse(why)))
          }
          .getOrElse(throw new ConfigurationException(none(refusals.flatMap(_._2), obstacle)))
      case chosen => TransportChoice(settings, chosen, None)
    }

  /** Why no transport carries these settings; the fastest one's reason is what to change. */
  private def none(reasons: Seq[String], obstacle: Option[String]): String =
    obstacle.fold(reasons.head)(_ =>
      s"transport = auto found none that carries these settings in this session. ${reasons.distinct.take(2).mkString(" ")}"
    )

  private def named(settings: Settings, transport: String): Settings = settings.updated(RunKeys.transport, transport)

  private def alone(sc: SparkContext, settings: Settings): Boolean =
    sc.isLocal || RunKeys.mostWorkers(settings) + Ps.ownServers(settings) == 1

  private def obstacle(sc: SparkContext, settings: Settings): Option[String] =
    if (alone(sc, settings) || SparkFacts.takesStreams) None else Some(ShuffleManagers.lacking)

  private def whyStreams(sc: SparkContext, settings: Settings): String =
    if (sc.isLocal) "all workers are in the driver's process and exchange in memory"
    else if (alone(sc, settings)) "there is one worker"
    else "this session's executors can push to each other, which is fastest"
}
