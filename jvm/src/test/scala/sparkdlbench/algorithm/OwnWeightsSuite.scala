package sparkdlbench.algorithm

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.{CheckpointStore, RunResult}
import sparkdlbench.LocalRuns

import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** What holds of every algorithm whose ranks have weights of their own; whole runs in one process, over every topology. */
class OwnWeightsSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "2",
    "bucket_bytes" -> "4000"
  )

  private def train(settings: Seq[(String, String)]): RunResult = run(settings: _*)

  private val algorithms = Seq(
    "local-sgd" -> Seq("local.tau" -> "5"),
    "easgd" -> Seq("easgd.tau" -> "5"),
    "gossip" -> Seq("gossip.tau" -> "2"),
    "gossip" -> Seq("gossip.tau" -> "2", "gossip.neighbours" -> "random")
  ).map { case (name, settings) => (name, ("algorithm" -> name) +: settings) }

  for ((name, settings) <- algorithms; topology <- Seq("sliced", "ring", "recursive"))
    test(s"${settings.map(_._2).mkString(" ")}, $topology: learns with 1 to 4 workers, and gives the same bits twice") {
      // One worker sends nothing, over whatever topology.
      for (workers <- (if (topology == "sliced") 1 else 2) to 4) {
        val all = settings ++ Seq("epochs" -> "12", "topology" -> topology, "workers" -> workers.toString)
        val result = train(all)
        assert(accuracy(result) > 0.88, s"$workers workers: ${accuracy(result)}")
        if (workers == 3) assert(train(all).weights === result.weights)
      }
    }

  for ((name, settings) <- algorithms)
    test(
      s"${settings.map(_._2).mkString(" ")}: goes on with the same bits, or with other workers, or says what is missing"
    ) {
      val folder = Files.createTempDirectory("checkpoints")
      val adam = settings ++ Seq("optimizer.name" -> "adam", "optimizer.learning_rate" -> "0.01")
      val resume = "resume" -> folder.toUri.toString
      val whole = train(adam)
      val kept = Seq("checkpoint.dir" -> folder.toUri.toString, "checkpoint.every" -> "13", "epochs" -> "1")
      // Steps 13 and 26 within the first epoch, and its end, at which another set of weights was evaluated.
      train(adam ++ kept :+ ("checkpoint.keep" -> "3"))
      val store = new CheckpointStore(folder.toUri.toString, new Configuration())
      for (step <- store.complete) {
        assert(train(adam :+ resume).weights === whole.weights, s"$name from step $step")
        delete(folder.resolve(f"step-$step%012d"))
        if (step > 13) assert(store.newest.exists(_.step < step))
      }
      train(adam ++ kept)
      val other = train(adam ++ Seq(resume, "workers" -> "2", "epochs" -> "8"))
      assert(accuracy(other) > 0.88)
      val refused =
        intercept[ConfigurationException](train(Seq(resume, "algorithm" -> name, "optimizer.momentum" -> "0.5")))
      assert(refused.getMessage.contains("another algorithm or optimizer"))
    }

  private def exchanges(result: RunResult): Long =
    Json.read(result.summary).path("counts").path("exchanges").path(0).asLong

  private def delete(folder: Path): Unit = {
    Files.list(folder).iterator.asScala.foreach(Files.delete)
    Files.delete(folder)
  }

  test("a job per step carries sync-sgd alone") {
    for (transport <- Seq("block-manager", "shuffle"); (_, settings) <- algorithms) {
      val message = intercept[ConfigurationException](train(settings :+ ("transport" -> transport))).getMessage
      assert(message.contains("sync-sgd alone"))
    }
  }

  test("easgd: the pull of the paper with two workers, and a pull that swings is refused") {
    val settings = Seq("algorithm" -> "easgd", "easgd.tau" -> "1", "easgd.rho" -> "2", "workers" -> "2")
    assert(accuracy(train(settings :+ ("epochs" -> "12"))) > 0.88)
    // Before any job.
    val message = intercept[ConfigurationException](prepared(settings :+ ("easgd.rho" -> "6"): _*)).getMessage
    assert(message.contains("easgd.rho") && message.contains("swings"), message)
  }

  test("gossip: a checkpoint holds the mean of that step, from which another algorithm goes on") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    // Within an epoch, when the mean was taken for no evaluation.
    train(
      Seq("algorithm" -> "gossip", "gossip.tau" -> "2", "max_steps" -> "17", "evaluate_every" -> "0") ++
        Seq("checkpoint.dir" -> folder, "checkpoint.every" -> "13")
    )
    val store = new CheckpointStore(folder, new Configuration())
    assert(store.complete.toSet == Set(13L, 17L))
    for (step <- store.complete; snapshot = store.read(step).get) {
      val weights = snapshot.vector("weights", parameters).get
      val own = (0 until 3).map(rank => snapshot.vector(s"local.$rank", parameters).get)
      val apart = weights.indices.map(i => math.abs(weights(i) - own.map(_(i)).sum / 3)).max
      assert(apart < 1e-5, s"step $step")
    }
  }

  test("gossip sends a vector to each neighbour and one mean for each evaluation") {
    val vector = 4L * parameters
    val evaluated = 2 * 2 * vector // the mean of 3 ranks, sliced
    def sent(more: (String, String)*) = {
      val result = train(Seq("algorithm" -> "gossip", "evaluate_every" -> "0", "max_steps" -> "10") ++ more)
      (bytes(result), exchanges(result))
    }
    assert(sent() == ((10 * 3 * 2 * vector + evaluated, 10 * 3)))
    assert(sent("gossip.tau" -> "5") == ((2 * 3 * 2 * vector + evaluated, 2 * 3)))
    assert(sent("gossip.neighbours" -> "random") == ((10 * 2 * vector + evaluated, 10 * 2)))
  }

  test("a run counts its averages and pulls") {
    val ten = Seq("evaluate_every" -> "0", "max_steps" -> "10")
    // The last step's mean is the run's end.
    assert(exchanges(train(ten ++ Seq("algorithm" -> "local-sgd", "local.tau" -> "5"))) == 3 * 2)
    assert(exchanges(train(ten ++ Seq("algorithm" -> "easgd", "easgd.tau" -> "5"))) == 3 * 2)
  }

  test("neighbours are mutual, and random ones change") {
    for (size <- 1 to 7) {
      val ring = new Neighbours.Ring(size)
      val pairs = new Neighbours.Pairs(size, 3)
      for (plan <- Seq[Neighbours](ring, pairs); round <- 0L until 20L; rank <- 0 until size) {
        val others = plan.at(rank, round)
        assert(others.forall(other => plan.at(other, round).contains(rank)) && !others.contains(rank))
        assert(others.forall(plan.all(rank).contains))
      }
      if (size > 3) assert((0L until 20L).map(pairs.at(0, _)).distinct.size > 2)
    }
  }
}
