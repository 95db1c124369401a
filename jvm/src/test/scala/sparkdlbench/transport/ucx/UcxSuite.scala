package sparkdlbench.transport.ucx

import org.apache.spark.SparkContext
import org.openucx.jucx.ucp._
import org.openucx.jucx.{UcxCallback, UcxUtils}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Settings, Variants}
import sparkdlbench.topology.{CollectiveCheck, Sliced, TestCodecs, Topology}
import sparkdlbench.transport._
import sparkdlbench.transport.push.{Mailbox, StreamId}
import sparkdlbench.transport.tcp.Handshake

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.util.{Random, Try}

/** The transport between real executor processes, over loopback and shared memory. */
class UcxSuite extends AnyFunSuite {
  private def settings(tls: String, more: (String, String)*): Settings =
    Settings.resolve(Map("ucx.tls" -> tls) ++ more, new Ucx().keys)
  private val sharedMemory = "posix,sysv,cma,self"

  test(
    "two executors: sums over TCP and shared memory, facts, strangers, silence, a way that is none, a lost process"
  ) {
    LocalCluster.run(2, 1, Installed.forUcx) { sc =>
      sums(sc)
      Seq("tcp,self", sharedMemory).foreach(refusesStrangers(sc, _))
      namesTheSilent(sc)
      namesTheWayThatIsNone(sc)
      namesTheLost(sc, sharedMemory) // last: an executor is gone then
    }
  }

  test("two ranks an executor: they sum in memory first and the sum travels once, or each exchanges for itself") {
    LocalCluster.run(2, 2, Installed.forUcx) { sc =>
      val together = ofFourRanks(sc, "on")
      val apart = ofFourRanks(sc, "off")
      assert(together("in-process") > 0 && together("ucx") > 0 && together("ucx") < apart("ucx"))
    }
  }

  test("without the libraries' jar the transport says what to install and where") {
    val message = intercept[ConfigurationException](UcxLibraries.load("")).getMessage
    assert(message.contains("sparkdl-bench jars fetch --ucx") && message.contains("org.openucx:jucx:1.18.1"))
    val folder = Files.createTempDirectory("no-ucx")
    try {
      val elsewhere = intercept[ConfigurationException](UcxLibraries.load(folder.toString)).getMessage
      assert(elsewhere.contains(s"ucx.libraries = $folder holds no libucm.so.0"))
    } finally Files.delete(folder)
  }

  test("it never claims to encrypt, and a rank's address prints and parses") {
    assert(new Ucx().inTheClear(settings("all")).isDefined)
    val address = UcxAddress.here(Array.tabulate(99)(_.toByte))
    val read = UcxAddress.parse(UcxAddress.print(address))
    assert(read.copy(worker = address.worker) == address && read.worker.sameElements(address.worker))
    assert(RunningProcess.here.runs && !RunningProcess(RunningProcess.here.number, "1").runs)
  }

  private def sums(sc: SparkContext): Unit = {
    val cases = Seq(
      ("tcp,self", "tcp/lo", Seq(1000003), Seq("sliced", "ps")),
      (sharedMemory, "memory", Seq(1000003), Seq("ring", "recursive", "ps")),
      ("all", "memory", Seq(1000), Seq("sliced"))
    )
    for ((tls, expected, lengths, topologies) <- cases) {
      val results = LocalCluster.ranks(sc, 2, settings(tls)) { group =>
        var found = Map.empty[String, String]
        val bytes = Collectives.run(
          group => {
            val inner = new Ucx().connect(group)
            new ForwardingTransport(inner) {
              override def close(): Unit = { found = inner.facts; super.close() }
            }
          },
          group,
          lengths,
          topologies
        )
        (bytes, found)
      }
      for ((bytes, facts) <- results) {
        assert(bytes.keySet == Set("ucx", "ucx.framing"), tls)
        assert(facts("ucx.transports").contains(expected), s"$tls: $facts")
      }
    }
  }

  /** Bytes by channel, over every topology; the checks hold values, and bytes within a process, against what is stated. */
  private def ofFourRanks(sc: SparkContext, inMemoryFirst: String): Map[String, Long] = {
    val topologies = Variants.all[Topology].filter(_.amongRanks).map(_.name).toList
    val sent = LocalCluster.ranks(sc, 4, settings("all", "in_memory_first" -> inMemoryFirst))(
      Collectives.run(new Ucx().connect(_), _, Seq(1, 100003), topologies)
    )
    sent.flatMap(_.toSeq).groupBy(_._1).map { case (channel, bytes) => channel -> bytes.map(_._2).sum }
  }

  /** A rank exchanges while somebody who has its worker's address, and no secret, talks to it. */
  private def refusesStrangers(sc: SparkContext, tls: String): Unit = {
    val chosen = settings(tls)
    val results = LocalCluster.ranks(sc, 2, chosen) { group =>
      val libraries = UcxLibraries.load("")
      val network = new UcxNetwork(group, group.settings(Ucx.tls), "all", libraries)
      val transport = push.PushTransport.connect(group, network)
      try {
        val address = network.address
        val inbox = Mailbox.all.find(_.rank == group.rank).get.inbox
        val attacker = new Thread(() => UcxStrangers.connect(group.settings(Ucx.tls), address, inbox, group.rank))
        attacker.start()
        CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 200000, 20000, 60).run(transport)
        attacker.join(60000)
        val end = System.nanoTime() + 60000000000L
        while (network.refused < UcxStrangers.Attempts && System.nanoTime() < end) Thread.sleep(20)
        network.refused
      } finally transport.close()
    }
    assert(results.forall(_ >= UcxStrangers.Attempts), s"$tls: $results")
  }

  private def namesTheSilent(sc: SparkContext): Unit = {
    val results = LocalCluster.ranks(sc, 2, settings("all"))(Collectives.silence(new Ucx().connect(_), _, 1500))
    assert(results(0).contains(Collectives.silent + " for rank 1 on host 127.0.0.1"), results(0))
  }

  private def namesTheWayThatIsNone(sc: SparkContext): Unit = {
    val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
    val failed = Try(LocalCluster.ranks(sc, 2, settings("tcp,self", "ucx.devices" -> "nosuch0")) { group =>
      val transport = new Ucx().connect(group)
      try transport.open(lanes, _ => None)
      finally transport.close()
    })
    val message = failed.failed.map(_.getMessage).getOrElse("none")
    assert(message.contains("UCX finds no way there with ucx.tls = tcp,self and ucx.devices = nosuch0"), message)
  }

  private def namesTheLost(sc: SparkContext, tls: String): Unit = {
    val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
    val said = Files.createTempFile("said", ".txt")
    val file = said.toString
    val failed = Try(LocalCluster.ranks(sc, 2, settings(tls)) { group =>
      val transport = new Ucx().connect(Undisturbed(group))
      transport.open(lanes, _ => None)
      group.allGather("both are open")
      LostExecutor.halt(group, s"$file.left", 3)
      try transport.receive(lanes.head, 0)
      catch {
        case error: sparkdlbench.common.RunFailedException =>
          Files.write(Paths.get(file), error.getMessage.getBytes(UTF_8)); throw error
      } finally transport.close()
      ""
    })
    assert(failed.isFailure)
    val end = System.nanoTime() + 20000000000L
    while (Files.size(said) == 0 && System.nanoTime() < end) Thread.sleep(50)
    val message = new String(Files.readAllBytes(said), UTF_8)
    Files.delete(said)
    Files.deleteIfExists(Paths.get(s"$file.left")): Unit
    assert(message.contains("lost its stream to rank 1 on host 127.0.0.1") && message.contains("has ended"), message)
  }
}

/** Clients that are not of the run. In an object, so that tasks need nothing of the suite. */
private object UcxStrangers {
  private val Fuzzed = 100

  /** Those that a rank must notice and refuse. */
  val Attempts: Int = Fuzzed + 4

  def connect(tls: String, address: Array[Byte], inbox: Long, rank: Int): Unit = {
    val context = new UcpContext(new UcpParams().requestAmFeature().setConfig("TLS", tls))
    val worker = context.newWorker(new UcpWorkerParams())
    val direct = ByteBuffer.allocateDirect(address.length).put(address).flip()
    val endpoint = worker.newEndpoint(new UcpEndpointParams().setUcpAddress(direct))
    def say(kind: Int, header: Array[Byte], bytes: Int = 0): Unit = {
      val head = ByteBuffer.allocateDirect(header.length).put(header).flip()
      val data = ByteBuffer.allocateDirect(bytes + 1)
      val done = new java.util.concurrent.CountDownLatch(1)
      endpoint.sendAmNonBlocking(
        kind,
        UcxUtils.getAddress(head),
        header.length.toLong,
        if (bytes == 0) 0L else UcxUtils.getAddress(data),
        bytes.toLong,
        0L,
        new UcxCallback {
          override def onSuccess(request: UcpRequest): Unit = done.countDown()
          override def onError(status: Int, message: String): Unit = done.countDown()
        }
      )
      progress(worker)(done.getCount == 0)
    }
    val random = new Random(rank)
    for (number <- 0 until Fuzzed) {
      val bytes = new Array[Byte](1 + random.nextInt(200))
      random.nextBytes(bytes)
      say(1 + number % 5, bytes)
    }
    val foreign = new Handshake(Array.fill[Byte](32)(7))
    // Greets as the other rank without the secret, whose real owner never asked; looks for somebody else; unknown streams.
    say(UcxHandshakes.Hello, foreign.hello(StreamId(inbox, 1 - rank, rank), 0, 1))
    say(UcxHandshakes.Hello, foreign.hello(StreamId(inbox, 1 - rank, 1 - rank), 0, 1))
    say(UcxHandshakes.Hello, foreign.hello(StreamId(inbox, 40, rank), 0, 1))
    val frame = ByteBuffer.allocate(UcxFrame.HeaderBytes)
    UcxFrame.putHeader(frame, 77L, 0, 100, 0L)
    say(UcxFrame.Kind, frame.array, 100)
    UcxFrame.putHeader(frame, 77L, 0, 1 << 20, 0L)
    say(UcxFrame.Kind, frame.array, 1 << 20)
    val closing = endpoint.closeNonBlockingFlush()
    progress(worker)(closing == null || closing.isCompleted)
    worker.close()
    context.close()
  }

  private def progress(worker: UcpWorker)(done: => Boolean): Unit = {
    val end = System.nanoTime() + 30000000000L
    while (!done && System.nanoTime() < end) if (worker.progress() == 0) Thread.`yield`()
  }
}
