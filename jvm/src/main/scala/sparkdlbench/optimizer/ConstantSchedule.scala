package sparkdlbench.optimizer

import sparkdlbench.config.Settings

final class ConstantSchedule extends ScheduleVariant {
  def name = "constant"
  def doc = "The same learning rate in every step"
  def create(settings: Settings): LearningRateSchedule = (_: Long) => 1.0
}
