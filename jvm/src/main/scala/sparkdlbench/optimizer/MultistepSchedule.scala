package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}

/** gamma^(number of milestones that lie behind): Caffe's `multistep`, PyTorch's `MultiStepLR`. */
final class MultistepSchedule extends ScheduleVariant {
  def name = "multistep"
  def doc = "Times schedule.gamma at each of schedule.milestones"
  override def keys: Seq[Key[_]] = Seq(LearningRateSchedule.gamma, MultistepSchedule.milestones)
  def create(settings: Settings): LearningRateSchedule = {
    val (gamma, milestones) = (settings(LearningRateSchedule.gamma), settings(MultistepSchedule.milestones))
    (step: Long) => StrictMath.pow(gamma, milestones.count(_ <= step).toDouble)
  }
}

object MultistepSchedule {
  val milestones: Key[Seq[Int]] =
    Key.ints("schedule.milestones", "", "Steps at which the learning rate changes, such as 4000,4500")
}
