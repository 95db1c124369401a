package sparkdlbench.optimizer

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

/** The learning rate over the steps of a run: `optimizer.learning_rate` times a factor. */
trait LearningRateSchedule {

  /** @param step number of the step, from 0 */
  def factor(step: Long): Double
}

/** One way to change the learning rate; one file each. `StrictMath` throughout, so that all ranks use the same bits. */
trait ScheduleVariant extends Variant {
  def create(settings: Settings): LearningRateSchedule
}

object LearningRateSchedule {
  val name: Key[String] = Key.text("schedule.name", "constant", "How the learning rate changes over the steps")
  val gamma: Key[Double] = Key.number("schedule.gamma", "0.1", 0, "Factor of step and multistep; speed of inv")
  val warmupSteps: Key[Long] =
    Key.long(
      "schedule.warmup_steps",
      "0",
      0,
      "Steps over which the learning rate first grows linearly, under any schedule"
    )
  val keys: Seq[Key[_]] = Seq(name, warmupSteps)

  /** The learning rate by step that the settings ask for. */
  def learningRate(settings: Settings): Long => Float = {
    val (base, warmup) = (settings(RunKeys.learningRate), settings(warmupSteps))
    val chosen = Variants.find[ScheduleVariant]("schedule", settings(name)).create(settings)
    step => {
      val warm = if (step < warmup) (step + 1.0) / warmup else 1.0
      (base * warm * chosen.factor(step)).toFloat
    }
  }
}

final class ScheduleAxis extends Axis {
  def place = 9
  def name = "schedule"
  def key: Key[String] = LearningRateSchedule.name
  override def keys: Seq[Key[_]] = LearningRateSchedule.keys
  def variants: Seq[Variant] = Variants.all[ScheduleVariant]
}
