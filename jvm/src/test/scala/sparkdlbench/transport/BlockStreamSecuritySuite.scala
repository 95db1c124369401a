package sparkdlbench.transport

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{Intruder, SparkBlockStreamNetwork}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.Settings
import sparkdlbench.topology.{Collective, CollectiveCheck, Sliced, TestCodecs}
import sparkdlbench.transport.push.{BlockStream, HostLocal, Mailbox, StreamId}
import sparkdlbench.vector.FlatBuffer

import java.nio.file.{Files, Path, Paths}
import java.util.UUID
import java.util.concurrent.{Callable, Executors, TimeUnit}
import scala.util.Random

/**
 * Who connects to the block-transfer servers of a running exchange without the secret, or with it but without being a rank,
 * gets nothing in, and the exchange goes on with right sums. (That the wire cannot be read: tests/test_security.py.)
 */
class BlockStreamSecuritySuite extends AnyFunSuite {
  import BlockStreamSecuritySuite._

  private val secret = UUID.randomUUID().toString
  private val authenticated = LocalCluster.prepared ++ Seq(
    "spark.authenticate" -> "true",
    "spark.authenticate.secret" -> secret,
    "spark.network.crypto.enabled" -> "true",
    "spark.network.crypto.saslFallback" -> "false"
  )

  /** Lets two ranks exchange until `attack`, which gets the ranks' open targets, has ended; what the ranks bring back. */
  private def besideAnExchange(sc: SparkContext)(attack: Seq[Target] => Unit): Seq[Seen] = {
    val folder = Files.createTempDirectory("intruders")
    val name = folder.toString
    val settings = Settings.resolve(Map("host_local" -> "off"), Seq(HostLocal.mode))
    val pool = Executors.newSingleThreadExecutor()
    try {
      val ranks: Callable[IndexedSeq[Seen]] =
        () => LocalCluster.ranks(sc, 2, settings)(group => exchange(group, Paths.get(name)))
      val running = pool.submit(ranks)
      val end = System.nanoTime() + 60000000000L
      while (!running.isDone && targets(folder).size < 2 && System.nanoTime() < end) Thread.sleep(20)
      try if (!running.isDone) attack(targets(folder))
      finally Files.createFile(folder.resolve("stop")): Unit
      running.get(60, TimeUnit.SECONDS)
    } finally {
      pool.shutdownNow()
      folder.toFile.listFiles().foreach(_.delete())
      Files.delete(folder)
    }
  }

  private def targets(folder: Path): Seq[Target] =
    folder.toFile.list().toSeq.filter(_.startsWith("target-")).sorted.map { name =>
      val told = new String(Files.readAllBytes(folder.resolve(name)), "UTF-8").split(' ')
      Target(told(0), told(1).toInt, told(2).toInt, told(3).toLong)
    }

  private def upload(intruder: Intruder, target: Target, stream: StreamId, body: Array[Byte] = noise(64)): String =
    intruder.upload(target.host, target.port, Intruder.blockId(stream), body, math.max(64L, body.length.toLong))

  /** The stream of the other rank to the target's: what a rank of the group would use. */
  private def right(target: Target): StreamId = StreamId(target.inbox, 1 - target.rank, target.rank)

  test("without the secret, or with a wrong one, nobody gets in, though he knows the stream's name") {
    LocalCluster.run(2, 1, authenticated: _*) { sc =>
      val seen = besideAnExchange(sc) { targets =>
        assert(targets.size == 2)
        // The application's id tells nothing that is secret; it is what a client announces itself with.
        val conf = sc.getConf.clone().set("spark.app.id", sc.applicationId)
        val without = Intruder.withoutSecret(conf.clone().remove("spark.authenticate.secret"))
        val wrong = Intruder.withSecret(conf, "not of this test")
        val withIt = Intruder.withSecret(conf, secret)
        try
          for (target <- targets; _ <- 0 until 5) {
            val unauthenticated = upload(without, target, right(target))
            assert(unauthenticated.startsWith("refused"), unauthenticated)
            val impostor = upload(wrong, target, right(target))
            assert(impostor.startsWith("no connection"), impostor)
            // The same client with the right secret is listened to (and counted, below), so it was the secret that
            // kept the other out.
            val stranger = upload(withIt, target, StreamId(1, 1 - target.rank, target.rank))
            assert(stranger.startsWith("refused"), stranger)
          }
        finally Seq(without, wrong, withIt).foreach(_.close())
      }
      assert(seen.forall(_.steps > 0) && seen.map(_.refused) == Seq(5, 5), seen)
    }
  }

  test("stray, malformed and oversized uploads of authenticated clients are refused, counted, and disturb nothing") {
    LocalCluster.run(2, 1, authenticated: _*) { sc =>
      val random = new Random(7)
      val count = 40
      val seen = besideAnExchange(sc) { targets =>
        assert(targets.size == 2)
        val insider = Intruder.ofSession
        for (target <- targets) {
          // Sometimes the server's words are lost, because it closes the connection on what is still being sent; the
          // count below says that each was refused for what it was.
          def isRefused(answer: String): Unit = assert(answer.startsWith("refused"), answer)
          (0 until count).foreach { _ =>
            val stream = StreamId(random.nextLong() & Long.MaxValue, random.nextInt(4), random.nextInt(4))
            isRefused(upload(insider, target, stream, noise(1 + random.nextInt(100000))))
          }
          // A neighbouring number, and the right number for a rank that lives elsewhere.
          isRefused(upload(insider, target, right(target).copy(inbox = target.inbox ^ 1)))
          isRefused(upload(insider, target, right(target).copy(to = 1 - target.rank)))
          // 8 GiB are declared: refused at the first byte, so nothing is kept for them.
          val stray = Intruder.blockId(StreamId(5, 1 - target.rank, target.rank))
          isRefused(insider.upload(target.host, target.port, stray, noise(1 << 16), 8L << 30))
          // Ids that no stream can have.
          for (id <- Seq(Intruder.blockId(-1, 0), Intruder.blockId(5, -1), "shuffle_2000000000_x_y", "")) {
            val answer = insider.upload(target.host, target.port, id, noise(64), 64)
            assert(answer.startsWith("refused"), s"'$id': $answer")
          }
        }
      }
      assert(seen.forall(_.steps > 0) && seen.map(_.refused) == Seq(count + 3, count + 3), seen)
    }
  }
}

private object BlockStreamSecuritySuite {

  /** Where a rank can be reached, and the number of its mailbox, which outside tests only its group knows. */
  final case class Target(host: String, port: Int, rank: Int, inbox: Long)

  /** Steps with right sums that a rank went through, and streams that its executor refused meanwhile. */
  final case class Seen(steps: Long, refused: Long)

  val Length = 10007
  val StepsARound = 100

  def noise(bytes: Int): Array[Byte] = {
    val random = new Random(bytes.toLong)
    Array.fill(bytes)(random.nextInt().toByte)
  }

  /** Whole steps, each value checked, on one group of connections until the file `stop` is there. */
  def exchange(group: GroupContext, folder: Path): Seen = {
    val before = Mailbox.refusedStreams
    val transport = new BlockStream().connect(group)
    try {
      val self = SparkBlockStreamNetwork.describe(group.rank)
      val inbox = Mailbox.all.find(_.rank == group.rank).get.inbox
      val told = folder.resolve(s".target-${group.rank}")
      Files.write(told, s"${self.host} ${self.port} ${group.rank} $inbox".getBytes("UTF-8"))
      Files.move(told, folder.resolve(s"target-${group.rank}"))
      val values = new FlatBuffer(Length)
      val codec = TestCodecs.plain.head
      val collective = new Sliced().bind(transport, values, values, 3000, codec, codec)
      var steps = 0L
      while (
        steps == 0 || steps % StepsARound != 0 || !group
          .allGather(s"${Files.exists(folder.resolve("stop"))}")
          .contains("true")
      ) {
        allReduce(collective, values, group, steps)
        steps += 1
      }
      Seen(steps, Mailbox.refusedStreams - before)
    } finally transport.close()
  }
  private def allReduce(collective: Collective, values: FlatBuffer, group: GroupContext, step: Long): Unit = {
    (0 until Length).foreach(i => values.floats.put(i, CollectiveCheck.input(group.rank, i, step)))
    (0 until collective.buckets).foreach(collective.contribute(_, step))
    (0 until collective.buckets).foreach { bucket => collective.reduce(bucket, step); collective.publish(bucket, step) }
    (0 until collective.buckets).foreach(collective.collect(_, step))
    collective.flush()
    val sum = CollectiveCheck.sumOfInputs(group.size, step) _
    (0 until Length).foreach(i => assert(values.floats.get(i) == sum(i), s"value $i of step $step"))
  }
}
