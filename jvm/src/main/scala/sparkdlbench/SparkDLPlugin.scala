package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.{ExecutorAddress, ExecutorFolder, ShuffleManagers, TrainingTab}
import sparkdlbench.common.RunFailedException
import sparkdlbench.metrics.{ResourceGauges, ResourceLog, ResourceReport}
import sparkdlbench.train.{
  DriverChannel,
  LeaveQuestion,
  MeetingMessage,
  RankMeetings,
  RankReport,
  RankReports,
  RendezvousClient
}
import sparkdlbench.transport.mpi.MpiJob
import sparkdlbench.worker.{DriverLink, Launches, WorkerEndpoint, WorkerFlush, WorkerMessage}

import java.util.{Collections, Map => JMap}
import scala.util.control.NonFatal

/**
 * `spark.plugins=sparkdlbench.SparkDLPlugin`: prepares a session for the `block-stream` transport, lets ranks meet at the
 * driver, and carries their progress there. On Spark 4.x this alone is enough: the plugin runs before the shuffle manager
 * is made and wraps whichever one the session names. On Spark 3.5 the shuffle manager must be named beside it:
 * {{{
 * spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLShuffleManager
 * spark.driver.extraClassPath=<this jar>
 * spark.executor.extraClassPath=<this jar>
 * }}}
 * A manager of the user's own other than sort: `spark.shuffle.manager=org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager`
 * and `spark.sparkdl.shuffle.delegate=<its class>`. Without all this `block-stream` says what is missing when it connects.
 */
final class SparkDLPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    override def init(context: SparkContext, plugin: PluginContext): JMap[String, String] = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      TrainingTab.attach(context)
      // Of a run that ends before its first task no executor would.
      WorkerEndpoint.removeLeft()
      MpiJob.removeLeft()
      Collections.emptyMap()
    }

    override def receive(message: Any): AnyRef = message match {
      case meeting: MeetingMessage => RankMeetings.answer(meeting)
      case question: LeaveQuestion => java.lang.Boolean.valueOf(RankMeetings.answer(question))
      case report: RankReport =>
        RankReports.deliver(report)
        null
      case report: ResourceReport =>
        ResourceLog.deliver(report)
        null
      case message: WorkerMessage =>
        Launches.deliver(message)
        null
      // Messages of one executor come in their order, so what it told before has come.
      case flush: WorkerFlush => java.lang.Boolean.valueOf(Launches.isOpen(flush.launch))
      case other =>
        throw new IllegalArgumentException(
          s"The driver was sent a ${other.getClass.getName}, which it does not know."
        )
    }

    override def registerMetrics(appId: String, plugin: PluginContext): Unit =
      ResourceGauges.register(plugin.metricRegistry)
  }

  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(plugin: PluginContext, extra: JMap[String, String]): Unit = {
      ShuffleManagers.wrapBeforeItIsMade(plugin.conf)
      DriverChannel.begin(plugin)
      ExecutorEndpoint.begin()
      ResourceGauges.register(plugin.metricRegistry)
    }

    /** Not in `init`, where the executor has no folders yet. */
    override def onTaskStart(): Unit = ExecutorEndpoint.open()

    override def shutdown(): Unit = {
      ExecutorEndpoint.close()
      DriverChannel.end()
    }
  }
}

/** This executor's endpoint for Python workers, from its first task to its end. */
private object ExecutorEndpoint extends Logging {
  private val tries = new OpeningTries(() => System.nanoTime())
  @volatile private var wasOpened = false
  @volatile private var isEnding = false
  private var endpoint: Option[WorkerEndpoint] = None

  /** With a local master one JVM has the executors of one session after the other. */
  def begin(): Unit = synchronized { isEnding = false }

  /** Who needs it finds out that it is not there; a task that does not must not fail. */
  def open(): Unit = if (!wasOpened && tries.isDue) synchronized {
    if (!wasOpened && !isEnding && tries.isDue)
      try {
        endpoint = Some(WorkerEndpoint.open(ExecutorFolder.blocks, ExecutorAddress.here.host, link))
        wasOpened = true
      } catch {
        case NonFatal(cause) =>
          val pause = tries.failed()
          logWarning(
            s"Python workers of this executor cannot use sparkdl_bench.launch yet: their way to it was not opened. The first task that begins $pause s " +
              "from now or later tries again.",
            cause
          )
      }
  }

  def close(): Unit = synchronized {
    endpoint.foreach(_.close())
    endpoint = None
    wasOpened = false
    tries.begin()
    isEnding = true // a task that begins meanwhile must not open another one
  }

  /** The way of Python workers to the driver. */
  private def link: DriverLink = new DriverLink {
    override def rendezvous: RendezvousClient = DriverChannel.rendezvous.getOrElse(
      throw new RunFailedException("This executor is ending: its way to the driver is closed.")
    )
    override def tell(message: WorkerMessage): Unit = DriverChannel.send(message)
    override def flush(request: WorkerFlush): Boolean = DriverChannel.ask(request) != java.lang.Boolean.FALSE
  }
}

/** When what could not be opened is tried again: a second later, and twice as long after each failure, up to ten minutes. Tasks come by the thousand. */
private[sparkdlbench] final class OpeningTries(nanos: () => Long) {
  private var pauseSeconds = OpeningTries.FirstSeconds
  @volatile private var notBefore = Option.empty[Long]

  def isDue: Boolean = notBefore.forall(nanos() - _ >= 0)

  /** @return seconds until the next try is due */
  def failed(): Long = synchronized {
    val pause = pauseSeconds
    notBefore = Some(nanos() + pause * 1000000000L)
    pauseSeconds = math.min(2 * pause, OpeningTries.MostSeconds)
    pause
  }

  /** Anew, as if none had failed. */
  def begin(): Unit = synchronized {
    pauseSeconds = OpeningTries.FirstSeconds
    notBefore = None
  }
}

private object OpeningTries {
  val FirstSeconds = 1L
  val MostSeconds = 600L
}
