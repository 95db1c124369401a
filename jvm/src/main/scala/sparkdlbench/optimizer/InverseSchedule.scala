package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}

/** (1 + gamma · step)^−power: Caffe's `inv`. */
final class InverseSchedule extends ScheduleVariant {
  def name = "inv"
  def doc = "Times (1 + schedule.gamma × step) to the power of −schedule.power"
  override def keys: Seq[Key[_]] = Seq(LearningRateSchedule.gamma, InverseSchedule.power)
  def create(settings: Settings): LearningRateSchedule = {
    val (gamma, power) = (settings(LearningRateSchedule.gamma), settings(InverseSchedule.power))
    (step: Long) => StrictMath.pow(1 + gamma * step.toDouble, -power)
  }
}

object InverseSchedule {
  val power: Key[Double] = Key.number("schedule.power", "0.75", 0, "Power of the schedule inv")
}
