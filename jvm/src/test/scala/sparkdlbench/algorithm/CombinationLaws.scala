package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Fp32
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.topology.{JobTransport, Topology}
import sparkdlbench.train.{Combination, RunResult}
import sparkdlbench.transport.{RankGroups, TransportVariant}
import sparkdlbench.LocalRuns

import scala.collection.mutable

/**
 * Every algorithm with every topology and transport: it trains, sends the bytes that docs/reference/variants.md states, and gives what the
 * other transports give; or it is refused, with what to do instead. Ranks are threads of this process.
 */
class CombinationLaws extends AnyFunSuite with LocalRuns {
  private val workers = 3
  private val steps = 6L

  override protected def common: Map[String, String] = Map(
    "in_memory_first" -> "off",
    "workers" -> workers.toString,
    "max_steps" -> steps.toString,
    "epochs" -> steps.toString, // of those whose steps are passes
    "evaluate_every" -> "0",
    "resources.hertz" -> "0",
    "bucket_bytes" -> "4000"
  )

  private val algorithms = Variants.all[Algorithm].map(_.name)
  private val topologies = Variants.all[Topology]
  private val transports = Variants.all[TransportVariant]

  /** Those that run here without anything besides Spark. The others: see the last test. */
  private val ran = Seq("block-manager", "shuffle", "block-stream", "tcp")

  private def chosen(algorithm: String, topology: String, transport: String): Seq[(String, String)] = Seq(
    "algorithm" -> algorithm,
    "topology" -> topology,
    "transport" -> transport,
    "local.tau" -> "2",
    "easgd.tau" -> "3",
    "gossip.tau" -> "2",
    "downpour.stale" -> "0"
  )

  private def refusal(settings: Seq[(String, String)]): Option[String] =
    Combination.refusal(RunKeys.resolve(common ++ settings - "results"))

  private def takes(algorithm: String, topology: String, transport: String): Boolean = {
    val settings = RunKeys.resolve(common ++ chosen(algorithm, topology, transport) - "results")
    Variants.find[Algorithm]("algorithm", algorithm).refuses(settings).isEmpty
  }

  private def counted(result: RunResult, name: String): Long =
    Json.read(result.summary).path("counts").path(name).path(0).asLong

  /** Payload of all ranks, from the formulas of docs/reference/variants.md; None where the algorithm's own suite has its formula. */
  private def stated(algorithm: String, topology: Topology, result: RunResult): Option[Long] = {
    val (fp32, alone, others) = (new Fp32, RankGroups.alone(workers), workers - 1L)
    val exchange =
      (0 until workers).map(topology.bytesPerStep(_, alone, parameters, 1000, fp32, fp32).total.get).sum
    Some(algorithm).collect {
      case "sync-sgd" | "gd" => steps * exchange
      case "local-sgd" => steps / 2 * exchange
      case "easgd" => steps / 3 * exchange
      case "gossip" => steps / 2 * workers * 2 * 4L * parameters + exchange
      case "lbfgs" => (2 * counted(result, "passes") - 1) * exchange / 2 + counted(result, "sums") * 2 * others * 8
      case "downpour" => // one shard: a push and a fetch a step, and one fetch at the end
        others * ((steps + 1) * 40 + steps * 4L * parameters + (steps + 1) * (16 + 4L * parameters))
    }
  }

  test("the algorithms are found") {
    assert(Set("sync-sgd", "gd", "local-sgd", "downpour", "easgd", "gossip", "lbfgs").subsetOf(algorithms.toSet))
  }

  private val weights = mutable.Map.empty[(String, String), (String, Array[Float])]

  for (algorithm <- algorithms; topology <- topologies; transport <- transports) {
    val settings = chosen(algorithm, topology.name, transport.name)
    val label = s"$algorithm, ${topology.name}, ${transport.name}"
    refusal(settings) match {
      case Some(reason) =>
        test(s"$label: refused, with the reason") {
          val message = intercept[ConfigurationException](run(settings: _*)).getMessage
          assert(message == reason)
          assert(Seq(algorithm, topology.name, transport.name).exists(message.contains), message)
          assert(Seq("Use ", "Set ", "Valid with it: ").exists(message.contains), message)
        }
      case None if ran.contains(transport.name) =>
        test(s"$label: trains, sends what is stated, and gives what other transports give") {
          val result = run(settings: _*)
          assert(result.weights.forall(value => !value.isNaN && !value.isInfinite))
          if (!transport.isInstanceOf[JobTransport])
            stated(algorithm, topology, result).foreach(expected => assert(bytes(result) == expected))
          val (first, expected) =
            weights.getOrElseUpdate((algorithm, topology.name), (transport.name, result.weights))
          val apart = result.weights.zip(expected).map { case (a, b) => math.abs(a - b) }.max
          // The order in which pushes arrive decides downpour's sums.
          assert(if (algorithm == "downpour") apart < 1e-4 else apart == 0f, s"$first and ${transport.name}: $apart")
        }
      case None => () // between processes alone
    }
  }

  test("a one-stage transport carries every algorithm over every topology among the ranks that the algorithm takes") {
    val overPs = topologies.filter(topology => refusal(chosen("downpour", topology.name, "block-stream")).isEmpty)
    assert(overPs.map(_.name) == Seq("ps"))
    for (transport <- transports; algorithm <- algorithms; topology <- topologies) {
      val carried = transport match {
        case job: JobTransport =>
          val carried = Set("sync-sgd", "gd")(algorithm) || (algorithm == "lbfgs" && topology.name == "tree")
          carried && job.topologies.contains(topology.name)
        case _ => topology.amongRanks && takes(algorithm, topology.name, transport.name)
      }
      assert(refusal(chosen(algorithm, topology.name, transport.name)).isEmpty == carried)
    }
  }

  /** Here no socket is used, so `tcp` is `block-stream`. Between processes, and step by step: tests/test_loss_curves.py. */
  test("sync-sgd has the same loss curve over 50 steps with every topology, and every transport among threads") {
    val curves = for {
      transport <- ran
      topology <- topologies.map(_.name)
      settings = chosen("sync-sgd", topology, transport) if refusal(settings).isEmpty && transport != "tcp"
    } yield {
      val all = settings ++ Seq("max_steps" -> "50", "epochs" -> "25", "batch" -> "700", "optimizer.momentum" -> "0.9")
      (s"$topology over $transport", losses(run(all: _*)))
    }
    assert(curves.forall(_._2.size >= 16))
    for ((name, curve) <- curves; (a, b) <- curve.zip(curves.head._2)) assert(math.abs(a - b) / b < 1e-4, name)
  }

  test(
    "ucx and mpi carry as much, between processes: UcxSuite, MpiSuite, TopologyClusterLaws, tests/test_out_of_band.py, tests/test_loss_curves.py"
  ) {
    assert(Set("ucx", "mpi").subsetOf(transports.map(_.name).toSet -- ran))
    for (other <- Seq("ucx", "mpi"); algorithm <- algorithms; topology <- topologies.map(_.name)) {
      val refused = Seq(other, "tcp").map(transport => refusal(chosen(algorithm, topology, transport)).isDefined)
      assert(refused.distinct.size == 1, s"$algorithm, $topology, $other")
    }
  }
}
