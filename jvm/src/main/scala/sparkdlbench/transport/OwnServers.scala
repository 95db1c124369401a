package sparkdlbench.transport

import sparkdlbench.config.{Key, RunKeys, Settings}

/** Servers of topology `ps` that are ranks of their own, behind the workers: whoever forms groups of ranks has to know of them. */
object OwnServers {
  val place: Key[String] = Key.choice(
    "ps.place",
    "workers",
    Seq("workers", "own"),
    "Where topology ps has its shards: at workers, or each at a task of its own, which computes nothing (sync-sgd, downpour)"
  )

  /** Whether the run has servers besides its workers. */
  def chosen(settings: Settings): Boolean = settings(RunKeys.topology) == "ps" && settings(place) == "own"
}
