package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys

class LearningRateScheduleSuite extends AnyFunSuite {
  private def rates(settings: (String, String)*): Long => Float =
    LearningRateSchedule.learningRate(RunKeys.resolve(Map("optimizer.learning_rate" -> "0.01") ++ settings))

  test("constant, by default") {
    assert(Seq(0L, 1L, 1000000L).map(rates()).forall(_ == 0.01f))
  }

  test("step and multistep are Caffe's") {
    val step = rates("schedule.name" -> "step", "schedule.gamma" -> "0.5", "schedule.every" -> "100")
    assert(Seq(0L, 99L, 100L, 250L).map(step) == Seq(0.01f, 0.01f, 0.005f, 0.0025f))
    val multistep = rates("schedule.name" -> "multistep", "schedule.milestones" -> "4000,4500")
    assert(
      Seq(3999L, 4000L, 4500L)
        .map(multistep) == Seq(0.01f, (0.01 * 0.1).toFloat, (0.01 * StrictMath.pow(0.1, 2)).toFloat)
    )
  }

  test("inv is Caffe's: LeNet's rate after 10,000 steps is 0.00594604") {
    val inv = rates("schedule.name" -> "inv", "schedule.gamma" -> "0.0001", "schedule.power" -> "0.75")
    assert(inv(0) == 0.01f)
    assert((inv(10000) - 0.00594604).abs < 1e-7)
  }

  test("cosine goes from all to nothing in its steps") {
    val cosine = rates("schedule.name" -> "cosine", "schedule.steps" -> "200")
    assert(cosine(0) == 0.01f && (cosine(100) - 0.005).abs < 1e-8 && cosine(200) == 0f && cosine(300) == 0f)
    assert((0L until 200L).sliding(2).forall(pair => cosine(pair.head) > cosine(pair.last)))
  }

  test("warm-up grows linearly under any schedule") {
    val warm = rates("schedule.warmup_steps" -> "10")
    assert((warm(0) - 0.001).abs < 1e-9 && (warm(4) - 0.005).abs < 1e-9 && warm(9) == 0.01f && warm(10) == 0.01f)
  }

  test("an unknown schedule is refused with the nearest name") {
    val message = intercept[ConfigurationException](rates("schedule.name" -> "cosin")).getMessage
    assert(message.contains("Did you mean 'cosine'?"))
  }
}
