package sparkdlbench.train

import org.apache.spark.api.plugin.PluginContext
import sparkdlbench.metrics.ResourceReport

/** An executor's way to the driver, in a session that has the plugin; what it sends there, the plugin hands on. */
private[sparkdlbench] object DriverChannel {
  @volatile private var executor: PluginContext = _

  /** The plugin calls it when its executor begins. */
  def begin(plugin: PluginContext): Unit = executor = plugin

  /** And when it ends. */
  def end(): Unit = executor = null

  /**
   * Sends a report from a task to the driver, one way. Reports only feed the progress display (what they hold comes back
   * with the task's result too) and `start_timeout`, so in a session without the plugin they are not sent. With a local master the
   * driver is here.
   */
  def report(report: RankReport): Unit = if (executor != null) send(report) else RankReports.deliver(report): Unit

  /** The same, and returns once the driver has it. */
  def reportAwaited(report: RankReport): Unit =
    if (executor != null) ask(report): Unit else RankReports.deliver(report): Unit

  /**
   * Sends what this executor used, likewise; without the plugin only the driver's own use is recorded.
   *
   * @param awaited
   *   returns once the driver has it, and throws where it does not answer within `spark.rpc.askTimeout`. The last report of a run
   *   is: a message one way may reach the driver after the end of the task that sent it, when the run's file is written already
   */
  def reportResources(report: ResourceReport, awaited: Boolean): Unit = if (awaited) ask(report): Unit else send(report)

  /** The way to the driver's rendezvous, where the ranks of all executors meet; None in a session without the plugin, which has no way there. */
  def rendezvous: Option[RendezvousClient] = Option(executor).map { plugin =>
    new RendezvousClient {
      override def ask(message: MeetingMessage): Array[String] = plugin.ask(message).asInstanceOf[Array[String]]
      override def tell(message: MeetingLeft): Unit = plugin.send(message)
    }
  }

  /** Whether the driver wants this attempt to end at a checkpoint. With a local master the driver is here. */
  def leaves(question: LeaveQuestion): Boolean =
    if (executor == null) RankMeetings.answer(question) else ask(question) == java.lang.Boolean.TRUE

  /** One way; nothing where there is no plugin. */
  def send(message: AnyRef): Unit = {
    val context = executor
    if (context != null) context.send(message)
  }

  /** Returns once the driver has answered; at once, with null, where there is no plugin. */
  def ask(message: AnyRef): AnyRef = {
    val context = executor
    if (context == null) null else context.ask(message)
  }
}
