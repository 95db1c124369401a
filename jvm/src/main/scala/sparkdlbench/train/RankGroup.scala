package sparkdlbench.train

/** The ranks of a job-a-step run, seen from the driver. */
trait RankGroup
