package org.apache.spark.sparkdlbench

import org.apache.spark.BarrierTaskContext

/** Spark's wait until all tasks of a barrier stage have come. */
object BarrierMeeting {

  /**
   * Has a wait in which another thread of this task is end within a second: it looks for nothing but whether the task was killed, so the
   * context says that from now on. For a task that fails in any case.
   */
  def leave(context: BarrierTaskContext, why: String): Unit = context.markInterrupted(why)
}
