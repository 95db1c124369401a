package sparkdlbench.transport
package push

import io.netty.channel.Channel
import io.netty.channel.embedded.EmbeddedChannel
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.collective.NumberSums
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.Settings
import sparkdlbench.topology.{CollectiveCheck, Ring, Sliced, TestCodecs, Topology}
import sparkdlbench.vector.{FlatBuffer, VectorFile, VectorMemory}

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.file.{Files, Path}
import java.util.UUID
import java.util.concurrent.{CountDownLatch, CyclicBarrier, TimeUnit}
import scala.util.Try

/** The transport's own logic with ranks as threads: which of them share a process, and what lies between, is made up here. */
class PushSuite extends AnyFunSuite {

  /** Where ranks live: ranks of equal text share a process. */
  private case class World(
      processes: Seq[String],
      hostLocal: String = "off",
      timeoutMillis: Long = 20000,
      encrypted: Boolean = false,
      drains: Boolean = true
  ) {
    val attemptId: String = UUID.randomUUID().toString
    val folder: Path = Files.createTempDirectory("block-stream-suite")
    val size: Int = processes.size
    private val barrier = new CyclicBarrier(size)
    private val texts = new Array[String](size)
    @volatile var killed = false
    @volatile var obstacle: Option[String] = None

    def group(of: Int): GroupContext = new GroupContext {
      def rank: Int = of
      def size: Int = World.this.size
      def attemptId: String = World.this.attemptId
      val secret: RunSecret = RunSecret.random()
      val settings: Settings = Settings.resolve(Map("host_local" -> hostLocal), Seq(HostLocal.mode))
      def timeoutMillis: Long = World.this.timeoutMillis
      def isKilled: Boolean = killed
      def allGather(text: String): IndexedSeq[String] = { texts(of) = text; barrier.await(); texts.toIndexedSeq }
    }

    def network(of: Int): PushNetwork = new PushNetwork {
      def channel = "block-stream"
      def hostLocal(settings: Settings): String = settings(HostLocal.mode)
      def describe(rank: Int) =
        PushPeer(rank, "here", 1, s"executor-${processes(rank)}", processes(rank), "kernel", encrypted)
      def obstacle: Option[String] = World.this.obstacle
      def sharedDirectories: Seq[Path] = Seq(folder)
      def connect(
          peer: PushPeer,
          id: StreamId,
          onFailure: Throwable => Unit,
          onDrained: () => Unit
      ): PushChannel =
        new Loopback(Mailbox.accept(id).reader(id.from), drains)
    }
  }

  /** Hands frames over at once, in small pieces. @param drains false: does not say so */
  private class Loopback(reader: FrameReader, drains: Boolean) extends PushChannel {
    private var ended = false
    var framingBytes = 0L
    def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = {
      if (ended) throw new IOException("ended")
      val bytes = ByteBuffer.allocate(Frame.HeaderBytes + payload.remaining)
      Frame.putHeader(bytes, lane, payload.remaining, sequence)
      bytes.put(payload.duplicate()).flip()
      while (bytes.hasRemaining) {
        val piece = bytes.slice(bytes.position(), math.min(777, bytes.remaining))
        bytes.position(bytes.position() + piece.remaining)
        reader.accept(piece)
      }
      framingBytes += Frame.HeaderBytes
    }
    def isDrained: Boolean = drains
    def finish(): Unit = ended = true
    def isFinished: Boolean = ended
    def abort(): Unit = ended = true
  }

  private def run[T](world: World)(body: Transport => T): Seq[Try[T]] = {
    val results = new Array[Try[T]](world.size)
    val threads = (0 until world.size).map { rank =>
      val thread = new Thread(() =>
        results(rank) = Try {
          val transport = PushTransport.connect(world.group(rank), world.network(rank))
          try body(transport)
          finally transport.close()
        }
      )
      thread.start()
      thread
    }
    threads.foreach(_.join(60000))
    assert(threads.forall(!_.isAlive), "ranks still run after a minute")
    assert(world.folder.toFile.list().isEmpty, "mapped files were left behind")
    Files.delete(world.folder)
    results.toSeq
  }

  private val (fromSilent, toSilent) = (Lane(0, 1, 0, 64, "gradient of bucket 3"), Lane(1, 0, 1, 64, "weights"))

  /** What rank 0 makes of `body`. Rank 1, which sends nothing, does `meanwhile` and is there until rank 0 has ended. */
  private def besideTheSilent[T](world: World, meanwhile: => Unit = ())(body: Transport => T): Try[Option[T]] = {
    val ended = new CountDownLatch(1)
    run[Option[T]](world) { transport =>
      transport.open(Seq(fromSilent, toSilent), _ => None)
      if (transport.rank == 0)
        try Some(body(transport))
        finally ended.countDown()
      else { meanwhile; ended.await(50, TimeUnit.SECONDS); None }
    }.head
  }

  private val placements = Seq(
    "one process" -> Seq("a", "a", "a"),
    "a process each" -> Seq("a", "b", "c"),
    "two in one process, one apart" -> Seq("a", "b", "a")
  )

  for ((where, processes) <- placements; hostLocal <- Seq("off", "auto", "on"))
    test(s"collectives over ranks in $where with host_local=$hostLocal") {
      for (
        topology <- Seq[Topology](new Sliced, new Ring); codec <- TestCodecs.plain.take(2); length <- Seq(0, 1, 10007)
      ) {
        val check = CollectiveCheck(topology, codec, codec, length, bucketLength = 3000, steps = 5)
        val sent =
          run(World(processes, hostLocal)) { transport => check.run(transport); transport.bytesSent }.map(_.get)
        val channels = sent.flatMap(_.keySet).toSet.filterNot(_.endsWith(".framing"))
        if (length > 1) {
          val between = if (hostLocal == "off") "block-stream" else "host-local"
          val expected =
            if (where == "one process") Set("in-process")
            else if (where == "a process each") Set(between)
            else Set("in-process", between)
          assert(channels == expected)
        }
      }
    }

  for (processes <- Seq(Seq("a", "b"), Seq("a", "b", "c"), Seq("a", "b", "a")); hostLocal <- Seq("off", "auto"))
    test(s"vectors in shared memory: ranks in processes ${processes.mkString(", ")}, host_local=$hostLocal") {
      for (
        topology <- Seq[Topology](new Sliced, new Ring); codec <- TestCodecs.plain.take(2); length <- Seq(1, 10007);
        inPlace <- Seq(false, true); if !inPlace || codec.lossless
      ) {
        val world = World(processes, hostLocal)
        val memory = new HostLocalVectors(world.folder, 2)
        val check =
          CollectiveCheck(topology, codec, codec, length, bucketLength = 3000, steps = 9, inPlace, memory = memory)
        val facts = run(world) { transport => check.run(transport); transport.facts }.map(_.get)
        val direct = facts.flatMap(_.get(PushTransport.InPlaceFact)).map(_.split(' ').head.toInt)
        if (hostLocal == "off") assert(direct.isEmpty)
        else if (length > 1)
          assert(direct.forall(_ > 0) == (codec.name == TestCodecs.plain.head.name), s"${check.label}: $facts")
      }
    }

  test("a vector that only one end can see goes through the slots") {
    val world = new World(Seq("a", "b"), "auto")
    val results = run(world) { transport =>
      val seen = new HostLocalVectors(world.folder, 2).vector(1000)
      val other = new HostLocalVectors(world.folder, 2).vector(1000)
      // As rank 0 tells it, its vector is another file than what its path leads to.
      val told = seen.file.map(file => new VectorFile(file.path, file.bytes, other.file.get.identity))
      val values = if (transport.rank == 0) FlatBuffer.over(seen.bytes, 1000, told) else seen
      val memory: VectorMemory = _ => values
      CollectiveCheck(
        new Sliced,
        TestCodecs.plain.head,
        TestCodecs.plain.head,
        1000,
        300,
        steps = 5,
        inPlace = true,
        memory = memory
      )
        .run(transport)
      transport.facts(PushTransport.InPlaceFact)
    }.map(_.get)
    // What rank 0 sends can still go to rank 1's vector, and what rank 1 sends lies in it.
    assert(results.forall(each => each.takeWhile(_ != ' ').toInt > 0 && each.takeWhile(_ != ' ') != each.split(' ')(2)))
  }

  test("a flush in the middle of a step does not wait for who reads a part of a sum where it lies") {
    val length = 1000
    val world = World(Seq("a", "b"), "on", timeoutMillis = 5000)
    run(world) { transport =>
      val memory = new HostLocalVectors(world.folder, 2)
      val (gradient, parameters) = (memory.vector(length), memory.vector(length))
      val raw = TestCodecs.plain.head
      val collective = new Sliced().bind(transport, gradient, parameters, length, raw, raw)
      val numbers = new NumberSums(transport, 1)
      for (step <- 0L until 3L) {
        (0 until length).foreach(i => gradient.floats.put(i, CollectiveCheck.input(transport.rank, i, step)))
        collective.contribute(0, step)
        // As a layer does that works over all ranks' rows, in the backward pass.
        val sum = Array(1.0 + transport.rank)
        numbers.sum(sum)
        assert(sum(0) == 3.0)
        collective.reduce(0, step)
        collective.publish(0, step)
        collective.collect(0, step)
        collective.flush()
      }
    }.foreach(_.get)
  }

  test("messages change between a vector's own memory and other memory, and arrive where they are wanted") {
    val length = 1000
    val world = new World(Seq("a", "b"), "on")
    run(world) { transport =>
      val first = new HostLocalVectors(world.folder, 2).vector(length)
      val second = new FlatBuffer(length)
      val raw = TestCodecs.plain.head
      val bound = new Sliced().bind(transport, first, first, 300, raw, raw)
      val elsewhere = bound.over(second).get
      for (step <- 0L until 12L) {
        // Rank 1 changes each step, rank 0 every third.
        val away = if (transport.rank == 1) step % 2 == 1 else step % 3 == 2
        val (collective, values) = if (away) (elsewhere, second) else (bound, first)
        assert(collective.use())
        (0 until length).foreach(i => values.floats.put(i, CollectiveCheck.input(transport.rank, i, step)))
        val buckets = 0 until collective.buckets
        buckets.foreach(collective.contribute(_, step))
        buckets.foreach { bucket => collective.reduce(bucket, step); collective.publish(bucket, step) }
        buckets.foreach(collective.collect(_, step))
        collective.flush()
        (0 until length).foreach(i =>
          assert(values.floats.get(i) == CollectiveCheck.sumOfInputs(2, step)(i), s"step $step, value $i")
        )
      }
    }.foreach(_.get)
  }

  test("what is asked of a lane that was not opened, or that does not end here, names it") {
    val opened = Lane(0, 0, 1, 64)
    val unknown = Lane(7, 0, 1, 64, "gradient of bucket 7")
    run(World(Seq("a", "b"))) { transport =>
      transport.open(Seq(opened), _ => None)
      def refusal(of: Lane)(use: Lane => Any): String = intercept[RunFailedException](use(of)).getMessage
      for (lane <- if (transport.rank == 0) Seq(unknown, opened) else Seq(unknown)) {
        val messages = Seq[Lane => Any](transport.release(_, 0), transport.receive(_, 0), transport.hasArrived(_, 0))
          .map(refusal(lane)(_))
        val expected = s"Rank ${transport.rank} was asked for $lane, which was not opened or ends at another rank."
        assert(messages == Seq.fill(3)(expected))
      }
      // Rank 1 must not leave while rank 0 still connects to it.
      if (transport.rank == 0) { transport.send(opened, 0, ByteBuffer.allocateDirect(64)); transport.flush() }
      else { val _ = transport.receive(opened, 0) }
    }.foreach(_.get)
  }

  test("who has sent all may end beside a rank that has got it and left before the network said that it was sent") {
    val lane = Lane(0, 1, 0, 64)
    val results = run(World(Seq("a", "b"), drains = false)) { transport =>
      transport.open(Seq(lane), _ => None)
      if (transport.rank == 1) { transport.send(lane, 0, ByteBuffer.allocateDirect(64)); transport.flush() }
      else transport.receive(lane, 0)
    }
    results.foreach(_.get)
  }

  for ((where, processes) <- placements)
    test(s"a rank that has nothing to exchange may leave as soon as its lanes are open: $where") {
      val lanes = for (from <- 0 to 2; to <- 0 to 2 if from != to) yield Lane(3 * from + to, from, to, 64)
      for (mode <- Seq("off", "on"); _ <- 1 to 100)
        run(World(processes, mode))(_.open(lanes, _ => None)).foreach(_.get)
    }

  test("what is sent to a rank of this process that has left nobody reads; a wait for it says that it has") {
    val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
    for (_ <- 1 to 50) {
      val results = run(World(Seq("a", "a"))) { transport =>
        transport.open(lanes, _ => None)
        if (transport.rank == 0) {
          transport.send(lanes(1), 0, ByteBuffer.allocateDirect(64))
          transport.flush()
          transport.receive(lanes.head, 0)
        }
      }
      results(1).get
      assert(intercept[RunFailedException](results.head.get).getMessage.contains("which has left the group"))
    }
  }

  test("encrypted processes share memory only when told to") {
    val check = CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 1000, 300, 2)
    for ((mode, channel) <- Seq("auto" -> "block-stream", "on" -> "host-local"))
      run(World(Seq("a", "b"), mode, encrypted = true)) { transport =>
        check.run(transport); assert(transport.bytesSent.contains(channel))
      }
        .foreach(_.get)
  }

  test("a peer that sends nothing is named with host, executor and phase, within the bound") {
    val cases = for (processes <- Seq(Seq("a", "b"), Seq("a", "a")); mode <- Seq("off", "on")) yield (processes, mode)
    ThreadGroup.together(cases) { case (processes, mode) =>
      val start = System.nanoTime()
      val result = besideTheSilent(World(processes, mode, timeoutMillis = 3000))(_.receive(fromSilent, 0))
      val message = intercept[RunFailedException](result.get).getMessage
      assert(
        message.contains(
          "waited 3000 ms in phase 'receive gradient of bucket 3 (message 0 of lane 0)' for rank 1 on host here, executor executor-"
        )
      )
      assert(System.nanoTime() - start < 15e9)
    }
  }

  test("a wait for any of several messages names what they carry, the first few where there are many") {
    val one = besideTheSilent(World(Seq("a", "b"), timeoutMillis = 3000))(_.awaitAny(IndexedSeq((fromSilent, 0L))))
    val message = intercept[RunFailedException](one.get).getMessage
    assert(message.contains("'receive gradient of bucket 3 (message 0 of lane 0)' for rank 1"), message)
    val many = (0 until 6).map(bucket => (Lane(bucket, 1, 0, 64, s"gradient of bucket $bucket"), 7L))
    val words = PushTransport.anyOf(many)
    assert(words.startsWith("any of 6 messages: gradient of bucket 0 (message 7 of lane 0), gradient of bucket 1 "))
    assert(words.endsWith("gradient of bucket 3 (message 7 of lane 3) and 2 more"))
  }

  /** A network that differs from another in what is overridden. */
  private class Around(inner: PushNetwork) extends PushNetwork {
    def channel = "block-stream"
    def hostLocal(settings: Settings): String = settings(HostLocal.mode)
    def describe(rank: Int): PushPeer = inner.describe(rank)
    def obstacle: Option[String] = None
    def sharedDirectories: Seq[Path] = inner.sharedDirectories
    def connect(peer: PushPeer, id: StreamId, onFailure: Throwable => Unit, onDrained: () => Unit): PushChannel =
      inner.connect(peer, id, onFailure, onDrained)
  }

  test("a message that cannot be sent is named with what it carries") {
    val broken = new World(Seq("a", "b")) {
      override def network(of: Int): PushNetwork =
        new Around(super.network(of)) {
          override def connect(
              peer: PushPeer,
              id: StreamId,
              onFailure: Throwable => Unit,
              onDrained: () => Unit
          ): PushChannel = {
            val channel = super.connect(peer, id, onFailure, onDrained)
            new PushChannel {
              def framingBytes: Long = channel.framingBytes
              def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit =
                if (lane == toSilent.id) throw new IOException("as told") else channel.push(lane, sequence, payload)
              def isDrained: Boolean = channel.isDrained
              def finish(): Unit = channel.finish()
              def isFinished: Boolean = channel.isFinished
              def abort(): Unit = channel.abort()
            }
          }
        }
    }
    val result = besideTheSilent(broken)(_.send(toSilent, 0, ByteBuffer.allocateDirect(8)))
    val message = intercept[RunFailedException](result.get).getMessage
    assert(message.contains("could not send weights (message 0 of lane 1) to rank 1 on host here"), message)
    assert(message.endsWith("as told"), message)
  }

  test("a connection that stands only after another one has failed is ended") {
    @volatile var aborted = false
    def late(): PushChannel = {
      val end = System.nanoTime() + 500000000L
      while (System.nanoTime() < end) Thread.onSpinWait() // also where it is interrupted
      new PushChannel {
        def framingBytes: Long = 0
        def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = ()
        def isDrained: Boolean = true
        def finish(): Unit = ()
        def isFinished: Boolean = true
        def abort(): Unit = aborted = true
      }
    }
    val broken = new World(Seq("a", "b", "c"), timeoutMillis = 2000) {
      override def network(of: Int): PushNetwork =
        new Around(super.network(of)) {
          override def connect(
              peer: PushPeer,
              id: StreamId,
              onFailure: Throwable => Unit,
              onDrained: () => Unit
          ): PushChannel =
            if (of != 0) super.connect(peer, id, onFailure, onDrained)
            else if (peer.rank == 1) throw new IOException("as told")
            else late()
        }
    }
    val lanes = for (from <- 0 to 2; to <- 0 to 2 if from != to) yield Lane(3 * from + to, from, to, 64)
    val results = run(broken)(_.open(lanes, _ => None))
    assert(intercept[RunFailedException](results.head.get).getMessage.endsWith("as told"))
    val end = System.nanoTime() + 20000000000L
    while (!aborted && System.nanoTime() < end) Thread.sleep(20)
    assert(aborted)
  }

  test("why a connection was given up is told, not that the other end heard of it and ended, too") {
    val broken = new World(Seq("a", "b"), timeoutMillis = 5000) {
      override def network(of: Int): PushNetwork =
        new Around(super.network(of)) {
          override def congestion(settings: Settings): String = if (of == 0) "nosuch" else "system"
          override def connect(
              peer: PushPeer,
              id: StreamId,
              onFailure: Throwable => Unit,
              onDrained: () => Unit
          ): PushChannel = if (of == 0) new GivenUp(onFailure) else super.connect(peer, id, onFailure, onDrained)
        }
    }
    val message = intercept[RunFailedException](besideTheSilent(broken)(_ => ()).get).getMessage
    assert(message.contains("could not connect to rank 1") && message.contains("congestion is 'nosuch'"), message)
  }

  /** Whose end comes back from the other side before it is over. */
  private class GivenUp(onFailure: Throwable => Unit) extends PushChannel {
    override def sockets: Seq[Channel] = Seq(new EmbeddedChannel)
    def framingBytes: Long = 0
    def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = ()
    def isDrained: Boolean = true
    def finish(): Unit = ()
    def isFinished: Boolean = true
    def abort(): Unit = {
      onFailure(new IOException("the other end has closed it"))
      Thread.sleep(200)
    }
  }

  test("a peer that ends early is named at once, long before the timeout") {
    for (mode <- Seq("off", "on")) {
      val start = System.nanoTime()
      val lanes = Seq(Lane(0, 1, 0, 64), Lane(1, 0, 1, 64))
      val results = run(World(Seq("a", "b"), mode)) { transport =>
        transport.open(lanes, _ => None)
        if (transport.rank == 0) transport.receive(lanes.head, 0)
      }
      assert(intercept[RunFailedException](results.head.get).getMessage.contains("which has left the group"))
      assert(System.nanoTime() - start < 10e9)
    }
  }

  test("a wait ends when the task is killed") {
    val world = World(Seq("a", "b"))
    val result = besideTheSilent(world, { Thread.sleep(300); world.killed = true })(_.receive(fromSilent, 0))
    assert(intercept[RunFailedException](result.get).getMessage.contains("was asked to end"))
  }

  test("a sender that runs ahead of its receiver fails, whatever the channel") {
    for (processes <- Seq(Seq("a", "b"), Seq("a", "a")); mode <- Seq("off", "on")) {
      val result = besideTheSilent(World(processes, mode)) { transport =>
        (0 until 3).foreach(sequence => transport.send(toSilent, sequence.toLong, ByteBuffer.allocateDirect(8)))
      }
      assert(intercept[RunFailedException](result.get).getMessage.contains("overrun"))
    }
  }

  test("a session that is not prepared is refused with what to set, unless all ranks share one process") {
    val apart = World(Seq("a", "b"))
    apart.obstacle = Some("set this and that")
    run(apart)(_ => ()).foreach(result =>
      assert(intercept[ConfigurationException](result.get).getMessage == "set this and that")
    )
    val together = World(Seq("a", "a"))
    together.obstacle = Some("set this and that")
    run(together)(_ => ()).foreach(_.get)
  }

  test("where the memory is not the same, auto goes over sockets and on fails") {
    def world(mode: String) = new World(Seq("a", "b"), mode) {
      override def network(of: Int): PushNetwork =
        new Around(super.network(of)) {
          override def sharedDirectories: Seq[Path] = Seq(folder.resolve("nowhere"))
        }
    }
    val check = CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 1000, 300, 2)
    run(world("auto")) { transport => check.run(transport); transport.bytesSent }.foreach(sent =>
      assert(sent.get.contains("block-stream"))
    )
    val failures = run(world("on"))(check.run)
    assert(failures.forall(_.isFailure))
    assert(failures.exists(_.failed.get.getMessage.contains("cannot share memory")))
  }
}
