package sparkdlbench.topology

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Bf16
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.RunKeys
import sparkdlbench.train.RunResult
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup}
import sparkdlbench.LocalRuns

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

/** Numbers of shards that the laws of all topologies do not go through. */
class PsSuite extends AnyFunSuite with LocalRuns {
  override protected def cores: Int = 7
  override protected def common: Map[String, String] =
    Map(
      "transport" -> "block-stream",
      "workers" -> "4",
      "max_steps" -> "6",
      "bucket_bytes" -> "4000",
      "optimizer.momentum" -> "0.9"
    )

  private val plain = TestCodecs.plain.head

  private lazy val normalisedModel: String = Files
    .write(
      Files.createTempFile("normalised", ".toml"),
      """name = "normalised"
        |input_shape = [1, 8, 8]
        |classes = 10
        |[[layers]]
        |name = "fc1"
        |kind = "linear"
        |options = { in = 64, out = 16 }
        |initializer = "he-normal"
        |bias_initializer = "zero"
        |[[layers]]
        |name = "bn1"
        |kind = "batch-norm"
        |options = { channels = 16 }
        |initializer = "one"
        |bias_initializer = "zero"
        |[[layers]]
        |name = "fc2"
        |kind = "linear"
        |options = { in = 16, out = 10 }
        |initializer = "xavier-uniform"
        |bias_initializer = "zero"
        |""".stripMargin.getBytes(UTF_8)
    )
    .toString

  private def testLoss(result: RunResult): Double =
    Json.read(result.summary).path("final").path("test_loss").asDouble

  test("servers are spread over the ranks, and each shard has one") {
    assert(Ps.servers(6, 3) == Seq(0, 2, 4) && Ps.servers(5, 2) == Seq(0, 2) && Ps.servers(3, 3) == Seq(0, 1, 2))
    for (size <- 1 to 20; shards <- 1 to 25) {
      val servers = Ps.servers(size, shards)
      assert(servers.distinct.size == math.min(size, shards) && servers.forall(rank => rank >= 0 && rank < size))
    }
  }

  test("sums and parameters are exact and bytes as stated for any number of shards; all ranks together send 2(N-1) S") {
    for {
      size <- 1 to 5
      shards <- 1 to size
      topology = new ChosenPs(shards)
      codec <- TestCodecs.plain :+ new Bf16
      (length, bucketLength) <- Seq((0, 5), (1, 1), (3, 8), (101, 30))
      seed <- Seq(None, Some(1L))
    } ThreadGroup.run(size, InMemoryConditions(delaySeed = seed))(
      CollectiveCheck(topology, codec, plain, length, bucketLength, 4).run
    )
    for (size <- 1 to 5; shards <- 1 to size) {
      val each = (0 until size).map(rank =>
        new ChosenPs(shards).bytesPerStep(rank, RankGroups.alone(size), 1007, 300, plain, plain).total.get
      )
      assert(each.sum == 2L * (size - 1) * 4 * 1007)
      if (shards == size)
        assert(
          each == (0 until size)
            .map(rank => new Sliced().bytesPerStep(rank, RankGroups.alone(size), 1007, 300, plain, plain).total.get)
        )
    }
  }

  test("a run has the bits of sliced, whatever the number of shards; groups of ranks sum first") {
    for (together <- Seq("on", "off")) {
      val sliced = run("topology" -> "sliced", "in_memory_first" -> together).weights
      for (shards <- Seq(1, 3))
        assert(
          run("topology" -> "ps", "ps.shards" -> shards.toString, "in_memory_first" -> together).weights === sliced
        )
    }
  }

  test("servers of their own are the last ranks; workers alone send to them, and they to workers alone") {
    assert(Ps.servers(5, 2, own = true) == Seq(3, 4))
    for (workers <- 1 to 4; shards <- 1 to 3) {
      val size = workers + shards
      val schedule = new ChosenPs(shards, own = true).schedule(size)
      assert(
        schedule.ownedSlice.zipWithIndex.collect { case (Some(slice), rank) => rank -> slice } ==
          (0 until shards).map(shard => (workers + shard, shard))
      )
      assert(schedule.reduce.flatten.map(_.from).toSet == (0 until workers).toSet)
      val gathered = schedule.gather.flatten
      assert(schedule.reduce.flatten.size == workers * shards && gathered.size == shards * workers)
      assert(gathered.forall(hop => hop.from >= workers && hop.to < workers) && gathered.distinct.size == gathered.size)
      val each = (0 until size).map(rank =>
        new ChosenPs(shards, own = true).bytesPerStep(rank, RankGroups.alone(size), 1007, 300, plain, plain).total.get
      )
      assert(each.sum == 2L * workers * 4 * 1007)
      assert(each.take(workers).forall(_ == 4 * 1007) && each.drop(workers).sum == workers * 4L * 1007)
    }
  }

  test("with servers of their own workers get all that servers make of the sums, however messages are delayed") {
    for {
      workers <- 1 to 3
      shards <- 1 to 3
      codec <- TestCodecs.plain :+ new Bf16
      (length, bucketLength) <- Seq((3, 8), (101, 30))
      seed <- None +: (1L to 3L).map(Some(_))
    } ThreadGroup.run(workers + shards, InMemoryConditions(delaySeed = seed))(
      CollectiveCheck(new ChosenPs(shards, own = true), codec, codec, length, bucketLength, 6, servers = shards).run
    )
  }

  test("servers of their own that would have nothing to serve are refused") {
    val own = Seq("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> "3")
    val message = intercept[ConfigurationException](run(own :+ ("bucket_bytes" -> "8"): _*)).getMessage
    assert(message.contains("more than 2 values") && message.contains("Set ps.shards to 2 or less"), message)
    val settings = RunKeys.resolve(own.toMap)
    assert(Ps.refusesBuckets(settings, 3, 1000).isEmpty && Ps.refusesBuckets(settings, 2, 1000).nonEmpty)
    assert(Ps.refusesBuckets(RunKeys.resolve(Map("topology" -> "ps", "ps.shards" -> "3")), 2, 1).isEmpty)
  }

  test("servers of their own give the bits of servers at workers, and bring no statistics to the mean") {
    val expected = run("topology" -> "ps").weights
    for (shards <- Seq("1", "2", "3")) {
      val result = run("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> shards)
      assert(result.weights === expected)
      val summary = Json.read(result.summary)
      assert(summary.path("workers").asInt == 4 && summary.path("servers").asInt == shards.toInt)
      assert(summary.path("ranks").size == 4 + shards.toInt)
    }
    val normalised = Seq("topology" -> "ps", "model.name" -> "file", "model.spec" -> normalisedModel)
    val (alone, beside) = (run(normalised: _*), run(normalised :+ ("ps.place" -> "own"): _*))
    assert(alone.weights === beside.weights)
    assert(testLoss(alone) == testLoss(beside))
  }

  test("decoding may take longer than ranks wait for each other") {
    val slow = Seq("topology" -> "ps", "ps.place" -> "own", "timeout" -> "1", "data.source" -> "slow-digits")
    assert(run(slow: _*).weights === run("topology" -> "ps").weights)
  }

  test("algorithms that take a mean over all ranks are refused with servers of their own") {
    val message =
      intercept[ConfigurationException](run("topology" -> "ps", "ps.place" -> "own", "algorithm" -> "easgd")).getMessage
    assert(
      message.contains("Set ps.place = workers") && message.contains("use algorithm downpour or gd or sync-sgd."),
      message
    )
  }

  test("more shards than workers are refused") {
    val message = intercept[ConfigurationException](run("topology" -> "ps", "ps.shards" -> "5")).getMessage
    assert(message.contains("ps.shards = 5") && message.contains("4 workers"), message)
  }
}
