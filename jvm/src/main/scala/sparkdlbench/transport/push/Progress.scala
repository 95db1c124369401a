package sparkdlbench.transport
package push

import io.netty.channel.Channel
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Key

/**
 * Whose thread reads and writes a rank's connections: the question of asynchronous progress in MPI (Hoefler and Lumsdaine 2008,
 * "Message progression in parallel computing - to thread or not to thread?").
 *
 * Threads of Netty's own move messages while the rank computes, but where no core is free for them each message costs a switch
 * to them and one back. Without them a rank's connections move when it sends and while it waits.
 */
object Progress {
  val key: Key[String] = Key.choice(
    "progress",
    "auto",
    Seq("auto", "rank", "network"),
    "Whose thread serves a rank's connections: network (threads of their own), rank (the rank's, when it sends and while it waits; needs Netty 4.2, so Spark 4.1), auto (rank where it can and a host has fewer than two cores a rank)"
  )

  /**
   * The loop for the calling thread to run, or None where threads of the network's do it.
   *
   * @param ranksHere
   *   ranks of the group on this host
   */
  def choose(network: PushNetwork, progress: String, ranksHere: Int): Option[RankLoop] = progress match {
    case "network" => None
    case "auto" if Runtime.getRuntime.availableProcessors >= 2 * ranksHere => None
    case "auto" => network.rankLoop()
    case _ => Some(network.rankLoop().getOrElse(throw cannotServe(network)))
  }

  private def cannotServe(network: PushNetwork) = new ConfigurationException(
    s"progress is 'rank', but '${network.channel}' cannot be served by a thread of ours here: that needs Netty 4.2, which Spark brings " +
      s"from 4.1 on, and this is Netty $netty. Set spark.sparkdl.progress=auto or network."
  )

  private def netty: String =
    Option(classOf[Channel].getPackage.getImplementationVersion).getOrElse("of another version")
}

/** An event loop of Netty's that one rank's thread runs: its owner, which made it. */
trait RankLoop extends AutoCloseable {

  /** Takes a connection over from the loop that serves it. By its owner: when it returns that has been done. */
  def adopt(channel: Channel): Unit

  /** Serves what there is to serve, and waits for something at most so long; not at all if `waitNanos` is 0. By its owner alone. */
  def serve(waitNanos: Long): Unit

  /** Ends the wait of `serve`. By anybody. */
  def wakeUp(): Unit

  /** Gives each connection back to the loop it came from. By its owner. */
  override def close(): Unit
}
