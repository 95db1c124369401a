package sparkdlbench.bench

/** Times of a step that is repeated: what the benchmarks of this JVM take their samples by. */
private[bench] object Timing {

  /**
   * Nanoseconds of each of `samples` steps, one value a step, after `warmup` steps that nothing times.
   *
   * @param now
   *   a monotonic clock, nanoseconds
   * @param step
   *   is given its number, from 0 at the first step of the warm-up
   */
  def nanos(warmup: Int, samples: Int, now: () => Long = () => System.nanoTime())(step: Long => Unit): Array[Long] = {
    (0L until warmup.toLong).foreach(step)
    val taken = new Array[Long](samples)
    var sample = 0
    while (sample < samples) {
      val start = now()
      step(warmup.toLong + sample)
      taken(sample) = now() - start
      sample += 1
    }
    taken
  }
}
