package org.apache.spark.sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.ui.{SparkUI, SparkUITab, UIUtils, WebUIPage}
import org.apache.spark.util.Utils
import sparkdlbench.metrics.Phase
import sparkdlbench.train.{LiveRun, LiveRuns}

import scala.xml.Node

/** A tab of Spark's own pages: the application's trainings, how far each is, where its steps' time goes, who is waited for. */
final class TrainingTab(ui: SparkUI, application: () => String) extends SparkUITab(ui, "sparkdl") {
  override val name: String = "Training"
  attachPage(new TrainingPage(this, application))
}

object TrainingTab {

  /** Where the session has pages. */
  def attach(sc: SparkContext): Unit = sc.ui.foreach(ui => ui.attachTab(new TrainingTab(ui, () => sc.applicationId)))
}

private final class TrainingPage(tab: TrainingTab, application: () => String) extends WebUIPage("") {

  def render(request: SparkLine.Request): Seq[Node] =
    UIUtils.headerSparkPage(request, "Training", content, tab)

  private def content: Seq[Node] = {
    val runs = LiveRuns.of(application())
    if (runs.isEmpty) <p>No training has been started in this application.</p> else runs.flatMap(describe)
  }

  private def describe(run: LiveRun): Seq[Node] = {
    val now = run.progress.moment
    val share = if (now.steps == 0) 0L else 100 * now.step / now.steps
    <div id={s"run-${run.runId}"} class="sparkdl-run">
      <h4>{s"${run.setup.settings(sparkdlbench.config.RunKeys.name)} (${run.runId}): ${now.state}"}</h4>
      <div class="progress"><div class="progress-bar" role="progressbar" aria-valuenow={share.toString}
        aria-valuemin="0" aria-valuemax="100" style={s"width: $share%"}>{s"$share %"}</div></div>
      <p>{now.line}</p>
      <p>{
      (run.variant.toSeq ++ Seq("workers" -> workers(run), "batch" -> run.setup.batch))
        .map { case (k, v) =>
          s"$k $v"
        }
        .mkString(", ")
    }{
      run.use
        .map(use =>
          f"; ${use.cores}%.1f cores and ${Utils.bytesToString(use.residentBytes)} in ${use.processes} processes"
        )
        .getOrElse("")
    }</p>
      {now.error.map(text => <p class="sparkdl-error"><strong>{text}</strong></p>).toSeq}
      {run.workerChanges.map(line => <p class="sparkdl-workers">{line}</p>)}
      {phases(run)}
      {stragglers(run)}
      {channels(run)}
    </div>
  }

  private def workers(run: LiveRun): String =
    run.workers.toString + run.setup.range.fold("")(range => s" (of $range)")

  private def phases(run: LiveRun): Seq[Node] = {
    val ranks = run.rankStatuses.map(rank =>
      (s"rank ${rank.rank} on ${rank.host}, executor ${rank.executorId}", rank.steps.toString, rank.phasesMillis)
    )
    val rows = (("mean", run.progress.moment.step.toString, run.phasesMillis)) +: ranks
    table(
      "Milliseconds per step, by phase",
      Seq("", "steps") ++ Phase.names :+ "sum",
      rows.map { case (name, steps, millis) =>
        Seq(name, steps) ++ millis.map(value => f"$value%.3f") :+ f"${millis.sum}%.3f"
      }
    )
  }

  private def stragglers(run: LiveRun): Seq[Node] = run.straggler match {
    case Some(rank) =>
      val others = run.rankStatuses.filter(_.rank != rank.rank)
      val waited = others.map(_.phasesMillis(Phase.Wait)).sum / others.size
      <p class="sparkdl-straggler">{
        f"The others wait for rank ${rank.rank} on ${rank.host}: it works ${rank.ownMillis}%.3f ms per step, and they wait $waited%.3f ms of each."
      }</p>
    case None => Nil
  }

  private def channels(run: LiveRun): Seq[Node] =
    if (run.bytes.isEmpty) Nil
    else
      table(
        "Payload sent, by channel",
        Seq("channel", "bytes", ""),
        run.bytes.map { case (channel, count) => Seq(channel, count.toString, Utils.bytesToString(count)) }
      )

  private def table(title: String, head: Seq[String], rows: Seq[Seq[String]]): Seq[Node] =
    <h5>{title}</h5>
    <table class="table table-bordered table-sm table-striped">
      <thead><tr>{head.map(name => <th>{name}</th>)}</tr></thead>
      <tbody>{rows.map(row => <tr>{row.map(cell => <td>{cell}</td>)}</tr>)}</tbody>
    </table>
}
