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
    val errors = BatchLoss.of(settings("mean-squared"), 1).get
    val (predictions, wanted) = (FloatBuffer.wrap(Array(1f, 2f, 3f)), labels(0f, 2f, 5f))
    assert(errors.sum(predictions, wanted, 3) == 5.0)
    val gradient = FloatBuffer.allocate(3)
    errors.gradient(predictions, wanted, 3, 0.5f, gradient)
    assert(gradient.array.toSeq == Seq(1f, 0f, -2f))
    assert(BatchLoss.of(settings("cross-entropy"), 3).isEmpty)
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
    assert(refusal("balanced", "huber").contains("loss.name=huber has no classes"))
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
    assert(
      Seq(0L, -1L, Target.weighted(-1, 2f), 1L).map(IgnoredLabel.among(ignoring("-1"))) == Seq(false, true, true, false)
    )
    val answers = IgnoredLabel.among(ignoring("-1", "binary-cross-entropy"))
    assert(answers(Target.bits(-1f).toLong) && answers(Target.weighted(Target.bits(-1f), 3f)) && !answers(-1L))
    assert(!IgnoredLabel.among(ignoring(""))(-1L))
  }

  private def answersOf(outputs: Int, ignored: String = "") =
    BatchLoss.of(settings("binary-cross-entropy", "loss.ignore_label" -> ignored), outputs).get

  test(
    "binary cross-entropy: its gradient is the derivative, of one output and of several, and its value that of the formula"
  ) {
    val random = new java.util.SplittableRandom(8)
    for (outputs <- Seq(1, 3); ignored <- Seq("", "-1")) {
      val (loss, rows) = (answersOf(outputs, ignored), 5)
      val found = Array.fill(rows * outputs)((6 * random.nextDouble() - 3).toFloat)
      val answers = Array.tabulate(rows * outputs)(at => Seq(0f, 1f, 0.25f, if (ignored.isEmpty) 1f else -1f)(at % 4))
      val weights = Seq(1f, 2f, 0f, 0.5f, 1f)
      val wanted = LongBuffer.wrap(
        answers.zipWithIndex.map { case (answer, at) => Target.weighted(Target.bits(answer), weights(at / outputs)) }
      )
      def sum(values: Array[Float]) = loss.sum(FloatBuffer.wrap(values), wanted, rows)
      val plain = found.indices
        .filter(answers(_) >= 0)
        .map { at =>
          val likely = 1 / (1 + math.exp(-found(at).toDouble))
          -weights(at / outputs) * (answers(at) * math.log(likely) + (1 - answers(at)) * math.log1p(-likely)) / outputs
        }
        .sum
      assert(math.abs(sum(found) - plain) < 1e-9)
      val gradient = FloatBuffer.allocate(rows * outputs)
      loss.gradient(FloatBuffer.wrap(found), wanted, rows, 0.5f, gradient)
      for (at <- found.indices) {
        val (more, less) = (found.clone(), found.clone())
        more(at) += 1e-2f
        less(at) -= 1e-2f
        val slope = (sum(more) - sum(less)) / (more(at).toDouble - less(at))
        assert(math.abs(0.5 * slope - gradient.get(at)) < 1e-5, s"$outputs outputs, value $at")
      }
    }
  }

  test("binary cross-entropy neither overflows nor loses digits far from 0") {
    val (found, wanted) = (FloatBuffer.wrap(Array(1000f, -1000f, 1000f, -40f)), labels(1f, 0f, 0f, 0f))
    val loss = answersOf(1)
    assert(loss.sum(FloatBuffer.wrap(Array(1000f, -1000f)), labels(1f, 0f), 2) == 0.0)
    assert(math.abs(loss.sum(found, wanted, 4) - (1000 + math.exp(-40.0))) < 1e-12)
    val gradient = FloatBuffer.allocate(4)
    loss.gradient(found, wanted, 4, 1f, gradient)
    assert(gradient.array.take(3).toSeq == Seq(0f, 0f, 1f) && math.abs(gradient.get(3) / math.exp(-40.0) - 1) < 1e-6)
  }

  test("of no and yes the metrics are counted at an output of 0; what is ignored counts nowhere") {
    val found = FloatBuffer.wrap(Array(2f, 1f, -1f, -2f, 3f, 0.5f))
    val measured = answersOf(1, "-1").measured(found, labels(1f, 0f, 1f, 0f, -1f, 1f), 6)
    assert(measured.rows == 5 && measured.correct == 3 && measured.errors.isEmpty)
    val told = measured.counts.get.measures.map { case (name, value) => name -> value.get }
    assert(math.abs(told("precision") - 2.0 / 3) < 1e-12 && math.abs(told("recall") - 2.0 / 3) < 1e-12)
    assert(math.abs(told("f1") - 2.0 / 3) < 1e-12)
    // Of the pairs (2, 0.5, -1) × (1, -2): all but (0.5, 1) and (-1, 1).
    assert(math.abs(told("auc") - 4.0 / 6) < 1e-12)
    // Of class 0: one of two that are said to be of it, and one of two that are.
    assert(math.abs(told("f1_macro") - (2.0 / 3 + 0.5) / 2) < 1e-12)
  }

  test("of several labels a row is right where all that count are; F1 over all labels at once, and its mean") {
    val found = FloatBuffer.wrap(Array(1f, -1f, 1f, 1f, 1f, -1f, -1f, -1f, -1f))
    val measured = answersOf(3, "-1").measured(found, labels(1f, 0f, 0f, 1f, 1f, -1f, -1f, -1f, -1f), 3)
    assert(measured.rows == 2 && measured.correct == 1)
    val told = measured.counts.get.measures
    assert(
      told.keys.toSet == (for (name <- Seq("precision", "recall", "f1"); of <- Seq("micro", "macro"))
        yield s"${name}_$of").toSet
    )
    assert(told("precision_micro").contains(0.75) && told("recall_micro").contains(1.0))
    assert(math.abs(told("f1_micro").get - 6.0 / 7) < 1e-12)
    // The third label occurs in no row, and is said once.
    assert(math.abs(told("f1_macro").get - 2.0 / 3) < 1e-12)
  }

  test(
    "the area under the ROC curve is the share of pairs in the right order, ties half, in whatever parts the rows come"
  ) {
    val random = new java.util.SplittableRandom(9)
    val rows =
      Seq.fill(300)((random.nextInt(3) == 0, (random.nextInt(41) - 20) / 8f)) :+ ((true, -0.0f)) :+ ((false, 0.0f))
    def scores(some: Seq[(Boolean, Float)]) = {
      val builder = new RocScores.Builder
      some.foreach { case (yes, score) => builder.add(yes, score) }
      builder.result
    }
    val pairs =
      for ((true, one) <- rows; (false, other) <- rows) yield if (one > other) 1.0 else if (one == other) 0.5 else 0.0
    for (size <- Seq(1, 7, 302)) {
      val merged = rows.grouped(size).map(scores).reduce(_ + _)
      assert(merged.rows == 302 && math.abs(merged.auc.get - pairs.sum / pairs.size) < 1e-12)
    }
    assert(scores(rows.filter(_._1)).auc.isEmpty && scores(Nil).auc.isEmpty)
    assert(scores(rows :+ ((true, Float.NaN))).auc.isEmpty)
  }

  test("classes that neither labels nor predictions have do not count in a mean; parts add up") {
    def counts(rows: (Int, Int)*) = {
      val counter = new ClassCounter(4)
      rows.foreach { case (label, found) => counter.add(label, found, 0f) }
      counter.result
    }
    val all = counts(0 -> 0, 1 -> 0) + counts(1 -> 1, 3 -> -1)
    assert(all.rows == 4 && all.correct == 2)
    val told = all.measures
    assert(told.keys.toSeq == Seq("precision_macro", "recall_macro", "f1_macro"))
    assert(math.abs(told("precision_macro").get - (0.5 + 1 + 0) / 3) < 1e-12)
    assert(math.abs(told("recall_macro").get - (1 + 0.5 + 0) / 3) < 1e-12)
    assert(math.abs(told("f1_macro").get - (2.0 / 3 + 2.0 / 3 + 0) / 3) < 1e-12)
    assert(counts().measures.values.forall(_.isEmpty))
  }

  test("metrics are those of their formulas, in whatever parts the rows come, also of labels far from 0") {
    val random = new java.util.SplittableRandom(3)
    val wanted = Seq.fill(200)((1e4 + random.nextDouble()).toFloat)
    val found = wanted.map(label => (label + 0.3 * (random.nextDouble() - 0.5)).toFloat)
    val batch = BatchLoss.of(settings("absolute"), 1).get
    def part(from: Int, until: Int) = batch
      .measured(
        FloatBuffer.wrap(found.slice(from, until).toArray),
        labels(wanted.slice(from, until): _*),
        until - from
      )
      .errors
      .get
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
