package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.model.Initializers
import sparkdlbench.vector.FlatBuffer

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

/** Whole runs whose biases learn at another rate than their weights; over every way in which slices are cut. */
class MultipliersRunSuite extends AnyFunSuite with LocalRuns {
  private def model(name: String, first: String, second: String): String = {
    val path = Files.createTempFile(name, ".json")
    Files.write(
      path,
      s"""{"name": "$name", "input_shape": [64], "classes": 10, "layers": [
        {"name": "fc1", "kind": "linear", "options": {"in": 64, "out": 32$first}, "initializer": "he-uniform"},
        {"name": "relu", "kind": "relu"},
        {"name": "fc2", "kind": "linear", "options": {"in": 32, "out": 10$second}, "initializer": "xavier-uniform"}]}"""
        .getBytes(UTF_8)
    )
    path.toString
  }

  private val twice = """, "bias_lr_mult": 2, "bias_decay_mult": 0"""
  private lazy val caffe = model("caffe", twice, twice)
  private lazy val plain = model("plain", "", "")
  private lazy val frozen = model("frozen", """, "weight_lr_mult": 0""", twice)

  override protected def common: Map[String, String] = Map(
    "model.name" -> "file",
    "workers" -> "3",
    "epochs" -> "1",
    "bucket_bytes" -> "700",
    "optimizer.momentum" -> "0.9",
    "optimizer.weight_decay" -> "0.01",
    "optimizer.learning_rate" -> "0.02"
  )

  private val ways: Seq[Seq[(String, String)]] = Seq(
    Seq("transport" -> "block-stream", "in_memory_first" -> "off"),
    Seq("transport" -> "block-stream", "in_memory_first" -> "off", "topology" -> "ring"),
    Seq("transport" -> "block-stream", "in_memory_first" -> "off", "topology" -> "recursive"),
    Seq("transport" -> "block-stream"),
    Seq("transport" -> "block-manager"),
    Seq("transport" -> "shuffle"),
    Seq("transport" -> "shuffle", "shuffle.exchanges" -> "one"),
    Seq("transport" -> "shuffle", "topology" -> "tree")
  )

  private def apart(a: Array[Float], b: Array[Float]): Float = a.zip(b).map { case (x, y) => math.abs(x - y) }.max

  test("three workers train what one does, whatever cuts the tensors") {
    val one = run("model.spec" -> caffe, "workers" -> "1", "transport" -> "block-stream").weights
    val without = run("model.spec" -> plain, "workers" -> "1", "transport" -> "block-stream").weights
    assert(apart(one, without) > 1e-3)
    ways.foreach { way =>
      assert(apart(one, run(way :+ ("model.spec" -> caffe): _*).weights) < 1e-4, way)
    }
  }

  test("a factor of 0 leaves weights as they are, with every algorithm") {
    val algorithms = Seq("local-sgd", "easgd", "gossip").map { name =>
      ways.head ++ Seq("algorithm" -> name, "easgd.tau" -> "2", "local.tau" -> "2")
    }
    (ways ++ algorithms).foreach { way =>
      val result = run(way ++ Seq("model.spec" -> frozen, "max_steps" -> "6"): _*)
      val start = new FlatBuffer(result.spec.parameterCount)
      Initializers.fill(result.spec, 0, start)
      val fixed = result.spec.layout.head
      assert(fixed.name == "fc1.weight" && fixed.rate == 0)
      assert(apart(result.weights.take(fixed.length), start.toArray.take(fixed.length)) < 1e-6, way)
      assert(apart(result.weights.drop(fixed.length), start.toArray.drop(fixed.length)) > 1e-3, way)
    }
  }
}
