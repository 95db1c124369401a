package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}

/** (1 + cos(π · step / steps)) / 2, then 0: one half wave down (Loshchilov and Hutter, ICLR 2017, without restarts). */
final class CosineSchedule extends ScheduleVariant {
  def name = "cosine"
  def doc = "Half a cosine wave from the whole learning rate down to 0"
  override def keys: Seq[Key[_]] = Seq(CosineSchedule.steps)
  def create(settings: Settings): LearningRateSchedule = {
    val steps = math.max(1L, settings(CosineSchedule.steps))
    (step: Long) => if (step >= steps) 0.0 else (1 + StrictMath.cos(math.Pi * step.toDouble / steps.toDouble)) / 2
  }
}

object CosineSchedule {
  val steps: Key[Long] = Key.long("schedule.steps", "0", 0, "Length of the cosine in steps; 0: the whole run")
}
