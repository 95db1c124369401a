package sparkdlbench.algorithm

import breeze.linalg.DenseVector
import breeze.optimize.{DiffFunction, LBFGS}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.collective.NumberSums
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.RunResult
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.vector.Slices
import sparkdlbench.LocalRuns

import java.nio.file.Files

class LbfgsSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "12",
    "bucket_bytes" -> "4000",
    "algorithm" -> "lbfgs"
  )

  private def counted(result: RunResult, name: String): Long =
    Json.read(result.summary).path("counts").path(name).path(0).asLong

  /** Rosenbrock's function in 10 dimensions; gradient in place. */
  private def rosenbrock(x: Array[Float], slope: Array[Double]): Double = {
    java.util.Arrays.fill(slope, 0.0)
    (0 until x.length - 1).map { i =>
      val (a, b) = (x(i + 1).toDouble - x(i).toDouble * x(i), 1 - x(i).toDouble)
      slope(i) += -400 * a * x(i) - 2 * b
      slope(i + 1) += 200 * a
      100 * a * a + b * b
    }.sum
  }

  test("shards over ranks take Breeze's own way on whole vectors") {
    val start = Array.tabulate(10)(i => if (i % 2 == 0) -1.2f else 1f)
    val whole = new LBFGS[DenseVector[Double]](maxIter = 25, m = 5)
      .iterations(
        new DiffFunction[DenseVector[Double]] {
          def calculate(x: DenseVector[Double]) = {
            val slope = new Array[Double](10)
            (rosenbrock(x.toArray.map(_.toFloat), slope), DenseVector(slope))
          }
        },
        DenseVector(start.map(_.toDouble))
      )
      .map(_.value)
      .toIndexedSeq
    for (size <- 1 to 4) {
      val values =
        ThreadGroup.run(size, InMemoryConditions(delaySeed = Some(size.toLong)))(sharded(start, whole.size, _))
      assert(values.distinct.size == 1, "ranks differ")
      // Points are fp32 here: the first iterations agree closely, and all go down the same valley.
      values.head.zip(whole).take(6).foreach { case (a, b) => assert(math.abs(a - b) < 1e-3 * (1 + b)) }
      assert(values.head.last < whole.head / 100)
    }
  }

  private def sharded(start: Array[Float], count: Int, transport: Transport): Seq[Double] = {
    val sums = new NumberSums(transport, 10)
    val slices = Slices(10, transport.size)
    val (from, until) = (slices.from(transport.rank), slices.until(transport.rank))
    def sum(own: Double): Double = { val number = Array(own); sums.sum(number); number(0) }
    val minimizer = new OpenLbfgs(5, 1e-9)(Shard.space)
    val loss = new DiffFunction[Shard] {
      def calculate(x: Shard) = {
        val all = new Array[Double](10)
        x.values.indices.foreach(i => all(from + i) = x.values(i).toDouble)
        sums.sum(all)
        val slope = new Array[Double](10)
        val value = rosenbrock(all.map(_.toFloat), slope)
        (value, new Shard(slope.slice(from, until).map(_.toFloat), sum))
      }
    }
    val state = minimizer.begin(loss, new Shard(start.slice(from, until), sum), 0, Nil)
    val values = minimizer.infiniteIterations(loss, state).take(count).map(_.value).toList
    transport.flush()
    values
  }

  test("the sum of numbers is that of all ranks, as often as asked, and the same bits everywhere") {
    for (size <- 1 to 4; seed <- Seq(None, Some(1L))) {
      val found = ThreadGroup.run(size, InMemoryConditions(delaySeed = seed)) { transport =>
        val sums = new NumberSums(transport, 3)
        (1 to 5).map { i =>
          val numbers = Array.tabulate(i % 3 + 1)(k => 0.1 * (transport.rank + 1) * i + k)
          sums.sum(numbers)
          numbers.toSeq
        }
      }
      assert(found.distinct.size == 1)
      for ((numbers, i) <- found.head.zip(1 to 5); (number, k) <- numbers.zipWithIndex)
        assert(math.abs(number - (0.1 * i * size * (size + 1) / 2 + k * size)) < 1e-9)
    }
  }

  test("every topology with 1 to 4 workers learns alike, in few passes, and bytes are as documented") {
    val one = run("workers" -> "1")
    assert(accuracy(one) > 0.9, accuracy(one))
    assert(losses(one).zip(losses(one).tail).forall { case (a, b) => b <= a }, "a loss that grows")
    for {
      (topology, workers) <- Seq("sliced" -> 2, "sliced" -> 4, "ring" -> 3, "recursive" -> 3)
    } {
      val many = run("topology" -> topology, "workers" -> workers.toString)
      // Rounding grows along the way; the first iterations see next to none.
      losses(one).zip(losses(many)).take(4).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-3, topology) }
      assert(accuracy(many) > 0.9, s"$topology, $workers workers: ${accuracy(many)}")
      assert(counted(many, "passes") >= 13 && counted(many, "passes") <= 30, counted(many, "passes"))
      val half = (workers - 1L) * parameters * 4
      if (topology != "recursive")
        assert(bytes(many) == (2 * counted(many, "passes") - 1) * half + counted(many, "sums") * 2 * (workers - 1) * 8)
    }
  }

  test("where the driver sums, a Spark job a pass: the same way, evaluations and checkpoints") {
    val (one, tree) = (run("workers" -> "1"), Seq("transport" -> "shuffle", "topology" -> "tree"))
    for ((workers, depth) <- Seq("1" -> "2", "3" -> "2", "4" -> "3")) {
      val many = run(tree ++ Seq("workers" -> workers, "tree.depth" -> depth, "lbfgs.rows" -> "100"): _*)
      losses(one).zip(losses(many)).take(4).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-3, workers) }
      assert(accuracy(many) > 0.9, s"$workers workers: ${accuracy(many)}")
      assert(counted(many, "passes") >= 13 && counted(many, "passes") <= 30, counted(many, "passes"))
    }
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val whole = run(tree: _*)
    run(tree ++ Seq("checkpoint.dir" -> folder, "epochs" -> "5"): _*)
    assert(run(tree :+ ("resume" -> folder): _*).weights === whole.weights)
    assert(accuracy(run("resume" -> folder, "workers" -> "2")) > 0.9)
  }

  test("rows at a time change nothing but rounding; weight decay is part of the loss") {
    val whole = run("lbfgs.rows" -> "100000", "epochs" -> "4")
    val parts = run("lbfgs.rows" -> "37", "epochs" -> "4")
    losses(whole).zip(losses(parts)).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-3) }
    def length(result: RunResult) = math.sqrt(result.weights.map(w => w.toDouble * w).sum)
    assert(length(run("optimizer.weight_decay" -> "0.1")) < 0.8 * length(run()))
  }

  test("goes on from a checkpoint with the same bits, with other workers, and stands still where it has converged") {
    val folder = Files.createTempDirectory("checkpoints")
    val (kept, resume) = ("checkpoint.dir" -> folder.toUri.toString, "resume" -> folder.toUri.toString)
    val whole = run()
    run(kept, "epochs" -> "5")
    assert(run(resume).weights === whole.weights)
    assert(accuracy(run(resume, "workers" -> "2")) > 0.9)
    val message =
      intercept[ConfigurationException](run(resume, "algorithm" -> "sync-sgd", "optimizer.momentum" -> "0.9"))
    assert(message.getMessage.contains("another algorithm or optimizer"))
    val still = run("lbfgs.tolerance" -> "1000")
    assert(counted(still, "passes") == 1 && losses(still).distinct.size == 1)
  }

  test("what it cannot use it refuses, and says why") {
    val refused = Seq(
      Seq("optimizer.name" -> "adam") -> "uses no optimizer",
      Seq("optimizer.momentum" -> "0.9") -> "uses no optimizer",
      Seq("schedule.name" -> "cosine") -> "has no learning rate",
      Seq("codec" -> "bf16") -> "codec bf16 rounds away",
      Seq("codec" -> "topk") -> "codec topk rounds away",
      Seq("transport" -> "shuffle") -> "sync-sgd alone",
      Seq("topology" -> "tree") -> "through the driver",
      Seq("clip_norm" -> "1") -> "algorithm lbfgs does not know",
      Seq("clip_norm" -> "1", "transport" -> "shuffle", "topology" -> "tree") -> "which clip_norm = 1.0 would shorten",
      Seq(
        "data.source" -> "synthetic",
        "data.shape" -> "3,64,64",
        "model.name" -> "alexnet"
      ) -> "drops other values in every pass"
    )
    for ((chosen, why) <- refused) {
      val message = intercept[ConfigurationException](run(chosen: _*)).getMessage
      assert(message.contains(why), message)
    }
  }
}
