package sparkdlbench.config

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.Catalogue

import scala.jdk.CollectionConverters._

class AliasesSuite extends AnyFunSuite {
  private val texts =
    Seq("", "0", "1", "-1", "+3", "2.5", "1e-3", "-0.1", "0.999", "1d", "inf", "NaN", "true", "FALSE", "yes") ++
      Seq("auto", "on", "off", "1,2", "1, 2", "1,-2", "x", "mkl", "uint8", "4294967296", "99999999999999999999", " 1")

  /** What programs that only know the kinds refuse. */
  private def refuses(kind: Kind, text: String): Boolean = kind match {
    case Kind.Choice(values) => !values.contains(text)
    case Kind.Flag => !Set("true", "false").contains(text.toLowerCase)
    case Kind.Whole(min, max) =>
      !text.matches("[+-]?\\d+") || BigInt(text.stripPrefix("+")) < min || BigInt(text.stripPrefix("+")) > max
    case Kind.Wholes =>
      !text
        .split(',')
        .map(_.trim)
        .filter(_.nonEmpty)
        .forall(part => part.matches("\\+?\\d+") && BigInt(part.stripPrefix("+")) > 0)
    case _ => false
  }

  test("no kind refuses what its key takes") {
    for (key <- RunKeys.all; text <- texts :+ key.default if refuses(key.kind, text))
      assert(key.parse(text).isEmpty, s"${key.name} takes '$text', and its kind ${key.kind.name} does not")
  }

  test("other words are taken for the one key that they can mean") {
    val settings =
      RunKeys.resolve(Map("lr" -> "0.5", "batch_size" -> "64", "num_workers" -> "4", "model" -> "ResNet18"))
    assert(settings(RunKeys.learningRate) === 0.5)
    assert(settings(RunKeys.batch) === 64 && settings(RunKeys.workers) === 4)
    assert(settings.entries("model.name") === "resnet-18")
    assert(RunKeys.resolve(Map("optimizer.lr" -> "2")).entries("optimizer.learning_rate") === "2")
    assert(Aliases.key("schedule.warmup") === "schedule.warmup_steps" && Aliases.key("data.lr") === "data.lr")
    assert(RunKeys.resolve(Map("spark.sparkdl.learningRate" -> "2")).entries("optimizer.learning_rate") === "2")
    assert(RunKeys.resolve(Map("codec" -> "bfloat16", "optimizer" -> "Adam")).entries("codec") === "bf16")
  }

  test("a word with several meanings is refused with all of them") {
    val message = intercept[ConfigurationException](RunKeys.resolve(Map("steps" -> "10"))).getMessage
    assert(message === "The key 'steps' may mean max_steps or schedule.steps. Write the one that is meant.")
  }

  test("a key that is set by two words to two values is refused") {
    val message =
      intercept[ConfigurationException](RunKeys.resolve(Map("lr" -> "1", "optimizer.learning_rate" -> "2"))).getMessage
    assert(
      message.contains("'optimizer.learning_rate' is set more than once: lr = 1, optimizer.learning_rate = 2."),
      message
    )
    assert(RunKeys.resolve(Map("lr" -> "1", "optimizer.learning_rate" -> "1"))(RunKeys.learningRate) === 1.0)
  }

  test("every word stands for keys that there are and is none itself") {
    val names = RunKeys.all.map(_.name).toSet
    Aliases.keys.foreach { case (word, meant) =>
      assert(!names(word) && meant.nonEmpty && meant.forall(names), s"$word: $meant")
    }
    assert(Aliases.keys("learning_rate") === Seq("optimizer.learning_rate"))
  }

  test("the catalogue holds every key with its kind, every variant, and what programs need to know of words") {
    val whole = Json.read(Catalogue.whole)
    val keys = whole.path("keys").elements.asScala.toSeq
    assert(keys.map(_.path("name").asText) === RunKeys.all.map(_.name))
    val workers = keys.find(_.path("name").asText == "workers").get
    assert(workers.path("kind").asText === "whole-number-or-range" && workers.path("min").asLong === 1)
    assert(whole.path("variants").properties.asScala.map(_.getKey).toSet === Catalogue.axes.toSet)
    assert(whole.path("aliases").path("lr").get(0).asText === "optimizer.learning_rate")
    assert(whole.path("values").path("model.name").path("resnet18").asText === "resnet-18")
    assert(whole.path("elsewhere").path("transport").has("gloo"))
  }
}
