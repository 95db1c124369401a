package sparkdlbench.transport

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{SparkBlockStreamNetwork, SparkTestSupport}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.config.Settings
import sparkdlbench.topology.{CollectiveCheck, Ring, Sliced, TestCodecs, Topology}
import sparkdlbench.transport.push._

import java.nio.file.{Files, Path, Paths}
import scala.util.Try

/** The transport between real executor processes, through Spark's own block-transfer servers. */
class BlockStreamClusterSuite extends AnyFunSuite {
  import MappedFiles.staying

  private def settings(hostLocal: String, progress: String = "auto", cipher: String = "auto"): Settings =
    Settings.resolve(
      Map("host_local" -> hostLocal, "progress" -> progress, "cipher" -> cipher),
      Seq(HostLocal.mode, Progress.key, Cipher.key)
    )

  /** Whole steps of two topologies on every rank, each value checked; bytes by channel summed over ranks and checks. */
  private def collectives(
      sc: SparkContext,
      ranks: Int,
      hostLocal: String,
      progress: String = "auto"
  ): Map[String, Long] = {
    val sent = LocalCluster.ranks(sc, ranks, settings(hostLocal, progress)) { group =>
      val topologies = Seq[Topology](new Sliced, new Ring)
      val lengths = Seq(1, 10007, 1000003) // the last: uploads begin and end within messages
      val each = for (topology <- topologies; length <- lengths) yield {
        val transport = new BlockStream().connect(Numbered(group, s"${topology.name}-$length"))
        try {
          val memory = new BlockStream().vectors(group.settings, group.size)
          CollectiveCheck(
            topology,
            TestCodecs.plain.head,
            TestCodecs.plain.head,
            length,
            65536,
            steps = 3,
            memory = memory
          )
            .run(transport)
          val direct = transport.facts.get(PushTransport.InPlaceFact).map(_.split(' ').head.toInt)
          if (length > 1 && direct.contains(0)) throw new AssertionError(s"${transport.facts}")
          transport.bytesSent.toSeq
        } finally transport.close()
      }
      each.flatten
    }
    sent.flatten.groupBy(_._1).map { case (channel, bytes) => channel -> bytes.map(_._2).sum }
  }

  private def shuffles(sc: SparkContext): Unit = {
    val sums = sc.parallelize(0 until 1000, 4).map(i => (i % 10, i.toLong)).reduceByKey(_ + _, 3).collectAsMap()
    assert((0 until 10).forall(key => sums(key) == (key until 1000 by 10).sum))
  }

  test("two executors: sums, channels, other attempts, silence, and a shuffle beside") {
    LocalCluster.run(2, 1, LocalCluster.prepared: _*) { sc =>
      val overSockets = collectives(sc, 2, "off", "network")
      assert(overSockets("block-stream") > 1000003L * 4 * 2 && !overSockets.contains("host-local"))
      assert(overSockets("block-stream.framing") < overSockets("block-stream") / 100)
      val inPlace = LocalCluster.ranks(sc, 2, settings("off"))(_ => FrameReader.inPlaceBytes.sum).sum
      // The first read of a message also reads its header, into a buffer of Netty's.
      assert(inPlace > overSockets("block-stream") / 3 && inPlace < overSockets("block-stream"))
      if (ServedBy.theRank) assert(collectives(sc, 2, "off", "rank")("block-stream") == overSockets("block-stream"))
      else
        assert(
          Try(collectives(sc, 2, "off", "rank")).failed.get.getMessage
            .contains("progress is 'rank', but 'block-stream' cannot be served by a thread of ours here")
        )
      val throughMemory = collectives(sc, 2, "auto")
      assert(throughMemory("host-local") == overSockets("block-stream") && !throughMemory.contains("block-stream"))
      val left = LocalCluster.ranks(sc, 2, settings("on"))(_ => staying(SparkBlockStreamNetwork.sharedDirectories))
      assert(left.flatten.isEmpty && staying(Seq(Paths.get("/dev/shm"))).isEmpty)
      shuffles(sc)
      val managers = LocalCluster.ranks(sc, 2, settings("off"))(_ => SparkTestSupport.shuffleManager)
      assert(managers.toSet == Set(("org.apache.spark.sparkdlbench.SparkDLShuffleManager", true)))
      refusesOtherAttempts(sc)
      namesSilentPeer(sc)
      namesLostPeer(sc)
    }
  }

  test("a stream on which nothing travels outlives Spark's timeout of idle connections", TakesLong) {
    val short = Seq(
      "spark.shuffle.io.connectionTimeout" -> "2s",
      "spark.shuffle.io.connectionCreationTimeout" -> "60s",
      "spark.shuffle.io.mode" -> "EPOLL"
    )
    LocalCluster.run(2, 1, LocalCluster.prepared ++ short: _*) { sc =>
      // With host_local the messages go through memory, and only the connection's own signs of life through the socket.
      val ways = Seq(settings("off"), settings("on"), settings("off", "network"))
      // One wait for all: each has a connection of its own.
      val answers = LocalCluster.ranks(sc, 2, ways.head) { group =>
        val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
        val transports = ways.zipWithIndex.map { case (way, number) =>
          new BlockStream().connect(Chosen(Numbered(group, number.toString), way))
        }
        try {
          transports.foreach(_.open(lanes, _ => None))
          for (sequence <- 0L until 2L) yield {
            Thread.sleep(3500)
            transports.map { transport =>
              transport.send(lanes(1 - group.rank), sequence, ByteBufferOf(64))
              transport.flush()
              val bytes = transport.receive(lanes(group.rank), sequence).remaining
              transport.release(lanes(group.rank), sequence)
              bytes
            }
          }
        } finally transports.foreach(_.close())
      }
      assert(answers == Seq.fill(2)(Seq.fill(2)(Seq.fill(3)(64))))
      assert(Collectives.congestion(sc, new BlockStream) == Set("reno"))
    }
  }

  /** Rank 1 opens a stream of another attempt to rank 0's executor, then both exchange in theirs. */
  private def refusesOtherAttempts(sc: SparkContext): Unit = {
    val results = LocalCluster.ranks(sc, 2, settings("off")) { group =>
      val refusedBefore = Mailbox.refusedStreams
      val peers =
        group.allGather(PushPeer.print(SparkBlockStreamNetwork.describe(group.rank))).map(PushPeer.parse)
      @volatile var failure = ""
      if (group.rank == 1) {
        val stale = SparkBlockStreamNetwork.connect(
          peers(0),
          StreamId(12345, 1, 0),
          cause => failure = cause.getMessage,
          () => ()
        )
        stale.push(0, 0, ByteBufferOf(64))
        val end = System.nanoTime() + 60000000000L
        while (failure.isEmpty && System.nanoTime() < end) Thread.sleep(10)
      }
      group.allGather("done")
      val transport = new BlockStream().connect(group)
      try CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 1000, 300, 3).run(transport)
      finally transport.close()
      (failure, Mailbox.refusedStreams - refusedBefore)
    }
    assert(results(0) == (("", 1L)))
    assert(results(1)._1.contains("is not (or no longer) in this executor"))
  }

  private def namesSilentPeer(sc: SparkContext): Unit = {
    val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
    val results = LocalCluster.ranks(sc, 2, settings("off")) { group =>
      val patience = new Patience(group)
      val transport = new BlockStream().connect(patience)
      try {
        transport.open(lanes, _ => None)
        patience.timeoutMillis = 1500
        val start = System.nanoTime()
        val result = if (group.rank == 0) Try(transport.receive(lanes.head, 0)).failed.get.getMessage else ""
        val millis = (System.nanoTime() - start) / 1000000
        group.allGather("told") // rank 1 is there until then
        (result, millis, SparkBlockStreamNetwork.describe(group.rank).toString)
      } finally transport.close()
    }
    val (message, millis, _) = results(0)
    assert(
      message.contains(
        s"waited 1500 ms in phase 'receive data (message 0 of lane 0)' for ${results(1)._3}, which did not answer"
      )
    )
    assert(results(1)._3.startsWith("rank 1 on host 127.0.0.1, executor "))
    assert(millis < 15000)
  }

  /** Rank 1's process dies; rank 0 hears of it long before its timeout. Rank 0 tells through a file: the job itself is lost. */
  private def namesLostPeer(sc: SparkContext): Unit = for (mode <- Seq("off", "on")) {
    val told = Files.createTempFile("lost-peer", ".txt")
    val name = told.toString
    val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
    val job = Try(LocalCluster.ranks(sc, 2, settings(mode)) { group =>
      val transport = new BlockStream().connect(Undisturbed(group))
      transport.open(lanes, _ => None)
      group.allGather("both are open")
      LostExecutor.halt(group, s"$name.left", 1)
      val start = System.nanoTime()
      val failure = Try(transport.receive(lanes.head, 0)).failed.get.getMessage
      Files.write(Paths.get(name), s"${(System.nanoTime() - start) / 1000000} $failure".getBytes("UTF-8"))
      transport.close()
    })
    assert(job.isFailure)
    val end = System.nanoTime() + 20000000000L
    while (Files.size(told) == 0 && System.nanoTime() < end) Thread.sleep(50)
    val text = new String(Files.readAllBytes(told), "UTF-8")
    Files.delete(told)
    Files.deleteIfExists(Paths.get(s"$name.left")): Unit
    assert(text.split(' ').head.toInt < 15000, text)
    assert(
      text.contains("rank 1") && (text.contains("lost its stream to rank 1 on host 127.0.0.1") || text.contains(
        "broke off"
      )),
      text
    )
    assert(staying(Seq(Paths.get("/dev/shm"))).isEmpty)
  }

  test("several ranks an executor, beside a shuffle manager of somebody else's", TakesLong) {
    val own = "org.apache.spark.sparkdlbench.CountingShuffleManager"
    val settings =
      if (org.apache.spark.SPARK_VERSION.startsWith("3."))
        LocalCluster.prepared ++ Seq(
          "spark.shuffle.manager" -> "org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager",
          "spark.sparkdl.shuffle.delegate" -> own
        )
      else LocalCluster.prepared :+ ("spark.shuffle.manager" -> own)
    LocalCluster.run(2, 2, settings: _*) { sc =>
      val sent = collectives(sc, 4, "off")
      assert(sent("in-process") > 0 && sent("block-stream") > 0 && !sent.contains("host-local"))
      shuffles(sc)
      val used = LocalCluster.ranks(sc, 4, this.settings("off")) { _ =>
        (
          SparkBlockStreamNetwork.describe(0).executor,
          SparkTestSupport.countedShuffles,
          SparkTestSupport.shuffleManager._1
        )
      }
      val byExecutor = used.map { case (executor, counts, _) => executor -> counts }.toMap
      assert(byExecutor.values.map(_._1).sum == 4 && byExecutor.values.map(_._2).sum == 3, byExecutor)
      assert(used.forall(_._3.endsWith("SparkDLDelegatingShuffleManager")))
    }
  }

  test("authenticated and encrypted: sockets by themselves, mapped memory only when told to") {
    val secure = LocalCluster.prepared ++ Seq(
      "spark.authenticate" -> "true",
      "spark.authenticate.secret" -> "of this test",
      "spark.network.crypto.enabled" -> "true",
      "spark.network.crypto.saslFallback" -> "false"
    )
    LocalCluster.run(2, 1, secure: _*) { sc =>
      val byItself = collectives(sc, 2, "auto")
      assert(byItself("block-stream") > 0 && !byItself.contains("host-local"))
      val told = collectives(sc, 2, "on")
      assert(told("host-local") > 0 && !told.contains("block-stream"))
      ciphers(sc)
      shuffles(sc)
    }
  }

  /** By OpenSSL on both ends, on one, on none: each understands the other, and OpenSSL decrypts where the rank reads. */
  private def ciphers(sc: SparkContext): Unit =
    for (ends <- Seq(Seq("auto", "auto"), Seq("spark", "auto"), Seq("spark", "spark"))) {
      val (name, settings) = (ends.mkString, ends.map(end => this.settings("off", cipher = end)))
      val found = LocalCluster.ranks(sc, 2, settings.head) { group =>
        val before = FrameReader.inPlaceBytes.sum
        val own = Chosen(Numbered(group, name), settings(group.rank))
        val transport = new BlockStream().connect(own)
        try {
          val plain = TestCodecs.plain.head
          CollectiveCheck(new Sliced, plain, plain, 1000003, 65536, 3).run(transport)
          (transport.facts.getOrElse("block-stream.cipher", ""), FrameReader.inPlaceBytes.sum > before)
        } finally transport.close()
      }
      ends.zip(found).foreach { case (end, (cipher, inPlace)) =>
        assert(cipher.startsWith("AES-CTR by OpenSSL ") == (end == "auto"), s"$ends: $found")
        assert(inPlace == (end == "auto"), s"$ends: $found")
      }
    }

  test("a session without the plugin is refused with the settings that it lacks") {
    LocalCluster.run(2, 1) { sc =>
      val error = intercept[org.apache.spark.SparkException](collectives(sc, 2, "off"))
      assert(error.getMessage.contains("spark.plugins=sparkdlbench.SparkDLPlugin"))
      assert(error.getMessage.contains("org.apache.spark.shuffle.sort.SortShuffleManager"))
    }
  }
}

/** The same group for another transport. */
private[transport] case class Numbered(group: GroupContext, number: String) extends GroupContext {
  def rank: Int = group.rank
  def size: Int = group.size
  def attemptId: String = s"${group.attemptId}-$number"
  def secret: RunSecret = group.secret
  def settings: Settings = group.settings
  def timeoutMillis: Long = group.timeoutMillis
  def allGather(text: String): IndexedSeq[String] = group.allGather(text)
  def isKilled: Boolean = group.isKilled
}

/** The same group with settings of its own. */
private[transport] case class Chosen(group: GroupContext, settings: Settings) extends GroupContext {
  def rank: Int = group.rank
  def size: Int = group.size
  def attemptId: String = group.attemptId
  def secret: RunSecret = group.secret
  def timeoutMillis: Long = group.timeoutMillis
  def allGather(text: String): IndexedSeq[String] = group.allGather(text)
  def isKilled: Boolean = group.isKilled
}

/** Whether a rank's own thread can serve its connections, with this Spark's Netty. */
private[transport] object ServedBy {
  def theRank: Boolean = Try(Class.forName("io.netty.channel.ManualIoEventLoop")).isSuccess
}

private object MappedFiles {

  /** Files that are still there after a while: those of runs beside this one, in other processes, come and go. */
  def staying(folders: Seq[Path]): Set[String] = {
    val end = System.nanoTime() + 20000000000L
    var left = mapped(folders)
    while (left.nonEmpty && System.nanoTime() < end) {
      Thread.sleep(20)
      left = left.intersect(mapped(folders))
    }
    left
  }

  private def mapped(folders: Seq[Path]): Set[String] =
    folders
      .filter(Files.isDirectory(_))
      .flatMap(folder => folder.toFile.list().toSeq)
      .filter(_.startsWith("sparkdl-host-local"))
      .toSet
}

private object ByteBufferOf {
  def apply(bytes: Int): java.nio.ByteBuffer = java.nio.ByteBuffer.allocateDirect(bytes)
}
