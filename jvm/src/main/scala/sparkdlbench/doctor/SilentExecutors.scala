package sparkdlbench.doctor

import org.apache.spark.sparkdlbench.KnownExecutor

/** Executors that are registered, and take no task. */
private[doctor] object SilentExecutors {

  /** Those of which no task has told. */
  def of(there: Seq[KnownExecutor], facts: Seq[ExecutorFacts]): Seq[KnownExecutor] = {
    val told = facts.map(_.executorId).toSet
    there.filterNot(executor => told.contains(executor.id))
  }

  /**
   * @param before
   *   executors when the tasks were given out, one for each slot
   * @param after
   *   executors when all tasks had ended: where some came or went meanwhile, these may have had the tasks of others
   * @param facts
   *   what the tasks told
   */
  def findings(before: Seq[KnownExecutor], after: Seq[KnownExecutor], facts: Seq[ExecutorFacts]): Seq[Finding] = {
    val silent = of(before, facts)
    if (silent.isEmpty || before.map(_.id).toSet != after.map(_.id).toSet) Nil
    else
      Seq(
        Finding(
          "executors",
          s"${before.size} executors are registered, and no task came to ${silent.map(named).mkString(", ")}, twice: other jobs hold the cores there, or " +
            "Spark gives them nothing after failures (spark.excludeOnFailure.enabled). All ranks of a run start at once and would wait for them. Look at " +
            "the tab Executors of Spark's pages, end what runs there, or give the session executors of its own."
        )
      )
  }

  private def named(executor: KnownExecutor): String = s"executor ${executor.id} at ${executor.address}"
}
