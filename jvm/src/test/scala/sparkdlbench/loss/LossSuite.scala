package sparkdlbench.loss

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}

import java.nio.{FloatBuffer, LongBuffer}

/** Laws of every loss of a regression that is found, and of what metrics are made of. */
class LossSuite extends AnyFunSuite {
  private val keys = RunKeys.own ++ Variants.all[Loss].flatMap(_.keys)
  private def settings(name: String, more: (String, String)*): Settings =
    Settings.resolve(Map("loss.name" -> name) ++ more, keys)
  private def regressions = Variants.all[Loss].collect { case each: RegressionLoss => each }

  private def labels(values: Float*): LongBuffer =
    LongBuffer.wrap(values.map(value => Target.bits(value).toLong).toArray)

  test("the default tells classes apart; others are found by their names and by those of other libraries") {
    assert(!Loss.of(Settings.resolve(Map.empty, keys)).isRegression)
    assert(regressions.map(_.name) == Seq("absolute", "huber", "mean-squared"))
    for ((word, name) <- Seq("mse" -> "mean-squared", "MAE" -> "absolute", "l1" -> "absolute", "Huber" -> "huber"))
      assert(Settings.named(Map("loss" -> word)) == Map("loss.name" -> name))
    val message = intercept[ConfigurationException](Loss.of(settings("huber2"))).getMessage
    assert(message.startsWith("There is no loss called 'huber2'. Did you mean 'huber'?"), message)
  }

  test("every slope is the derivative, every loss is 0 at error 0 and the same for both signs") {
    for (each <- regressions; loss = each.of(settings(each.name, "loss.delta" -> "0.7"))) {
      assert(loss.value(0) == 0 && loss.slope(0) == 0, each.name)
      for (error <- Seq(-3.0, -0.71, -0.2, 0.1, 0.69, 5.0)) {
        val step = 1e-6
        val slope = (loss.value(error + step) - loss.value(error - step)) / (2 * step)
        assert(math.abs(slope - loss.slope(error)) < 1e-6, s"${each.name} at $error")
        assert(loss.value(error) == loss.value(-error) && loss.slope(error) == -loss.slope(-error))
      }
    }
  }

  test("values as PyTorch has them") {
    def value(name: String, error: Double, delta: String = "1") =
      Loss.of(settings(name)).asInstanceOf[RegressionLoss].of(settings(name, "loss.delta" -> delta)).value(error)
    assert(value("mean-squared", 1.5) == 2.25 && value("absolute", -1.5) == 1.5)
    assert(value("huber", 0.5) == 0.125 && value("huber", -3) == 2.5 && value("huber", 3, "2") == 4.0)
    assert(
      intercept[ConfigurationException](settings("huber", "loss.delta" -> "0")).getMessage.contains("a number above 0")
    )
  }

  test("a batch's sum and gradient") {
    val errors = BatchErrors.of(settings("mean-squared")).get
    val (predictions, wanted) = (FloatBuffer.wrap(Array(1f, 2f, 3f)), labels(0f, 2f, 5f))
    assert(errors.sum(predictions, wanted, 3) == 5.0)
    val gradient = FloatBuffer.allocate(3)
    errors.gradient(predictions, wanted, 3, 0.5f, gradient)
    assert(gradient.array.toSeq == Seq(1f, 0f, -2f))
    assert(BatchErrors.of(settings("cross-entropy")).isEmpty)
  }

  test("class weights: balanced by the rows of each class, or one for each class") {
    def weights(text: String, name: String = "cross-entropy") = settings(name, "loss.class_weights" -> text)
    assert(ClassWeights.of(weights("")).isEmpty)
    assert(ClassWeights.of(weights("1, 2.5,0")).get.toSeq == Seq(1f, 2.5f, 0f))
    val settled = ClassWeights.settled(weights("balanced"), Array(6L, 0L, 2L))
    assert(ClassWeights.of(settled).get.toSeq == Seq((8.0 / 12).toFloat, 1f, 2f))
    assert(ClassWeights.settled(weights("1,2"), throw new AssertionError("nobody needs counts")) != null)
    for (wrong <- Seq("1,-1", "0,0", "a", "1,,2", "NaN,1"))
      assert(intercept[ConfigurationException](weights(wrong)).getMessage.contains("loss.class_weights"), wrong)
    def refusal(text: String, name: String = "cross-entropy") =
      intercept[ConfigurationException](ClassWeights.check(weights(text, name), 3)).getMessage
    assert(refusal("1,2").contains("that is 2 numbers for 3 classes"))
    assert(refusal("balanced", "huber").contains("for regression, which has no classes"))
    ClassWeights.check(weights("1,2,3"), 3)
  }

  test("an ignored label is one of the classes or another number, and none of a regression") {
    def ignoring(text: String, name: String = "cross-entropy") = settings(name, "loss.ignore_label" -> text)
    assert(IgnoredLabel.of(ignoring("")).isEmpty && IgnoredLabel.of(ignoring("-1")).contains(-1))
    assert(IgnoredLabel.beside(ignoring("2"), 3).isEmpty && IgnoredLabel.beside(ignoring("3"), 3).contains(3))
    assert(intercept[ConfigurationException](ignoring("none")).getMessage.contains("a whole number"))
    IgnoredLabel.check(ignoring("2"))
    val message = intercept[ConfigurationException](IgnoredLabel.check(ignoring("2", "huber"))).getMessage
    assert(message.contains("loss.name=huber is for regression"), message)
    val found = LongBuffer.wrap(Array(0L, -1L, Target.weighted(-1, 2f), 1L))
    assert(IgnoredLabel.counted(found, 4, Some(-1)) == 2 && IgnoredLabel.counted(found, 3, None) == 3)
  }

  test("metrics are those of their formulas, in whatever parts the rows come, also of labels far from 0") {
    val random = new java.util.SplittableRandom(3)
    val wanted = Seq.fill(200)((1e4 + random.nextDouble()).toFloat)
    val found = wanted.map(label => (label + 0.3 * (random.nextDouble() - 0.5)).toFloat)
    val batch = BatchErrors.of(settings("absolute")).get
    def part(from: Int, until: Int) = batch.errors(
      FloatBuffer.wrap(found.slice(from, until).toArray),
      labels(wanted.slice(from, until): _*),
      until - from
    )
    val errors = found.zip(wanted).map { case (one, other) => one.toDouble - other }
    val mean = wanted.map(_.toDouble).sum / 200
    val scatter = wanted.map(label => (label - mean) * (label - mean)).sum
    for (cuts <- Seq(Seq(0, 200), Seq(0, 0, 7, 150, 200), 0 to 200)) {
      val all = cuts.zip(cuts.tail).map { case (from, until) => part(from, until) }.foldLeft(ErrorSums.none)(_ + _)
      assert(all.rows == 200)
      assert(math.abs(all.mae - errors.map(math.abs).sum / 200) < 1e-9)
      assert(math.abs(all.rmse - math.sqrt(errors.map(each => each * each).sum / 200)) < 1e-9)
      assert(math.abs(all.r2.get - (1 - errors.map(each => each * each).sum / scatter)) < 1e-7)
    }
    assert(part(0, 1).r2.isEmpty && ErrorSums.none.rmse == 0)
  }
}
