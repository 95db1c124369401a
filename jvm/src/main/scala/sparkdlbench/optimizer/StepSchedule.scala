package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}

/** gamma^⌊step / every⌋: Caffe's `step`. */
final class StepSchedule extends ScheduleVariant {
  def name = "step"
  def doc = "Times schedule.gamma after every schedule.every steps"
  override def keys: Seq[Key[_]] = Seq(LearningRateSchedule.gamma, StepSchedule.every)
  def create(settings: Settings): LearningRateSchedule = {
    val (gamma, every) = (settings(LearningRateSchedule.gamma), settings(StepSchedule.every))
    (step: Long) => StrictMath.pow(gamma, (step / every).toDouble)
  }
}

object StepSchedule {
  val every: Key[Long] = Key.long("schedule.every", "1000", 1, "Steps between two changes of the learning rate")
}
