package sparkdlbench.results

/** Something that keeps the scalars of a run besides the results folder. Used by one thread. */
trait RunLogger extends AutoCloseable {

  /** What it is, in messages. */
  def name: String

  /** @param step number of the epoch */
  def scalar(tag: String, step: Long, value: Double): Unit

  /** The run is over. @param status `success`, `failed` or `cancelled` */
  def ended(status: String): Unit
}
