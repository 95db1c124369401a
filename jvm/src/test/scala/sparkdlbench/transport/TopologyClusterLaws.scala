package sparkdlbench.transport

import org.apache.spark.SparkContext
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Codec
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.topology.{CollectiveCheck, TestCodecs, Topology}

/**
 * The laws of `TopologyLaws` between real executor processes: every topology, 1 to 5 ranks, no value, one, a prime number
 * and a million.
 */
class TopologyClusterLaws extends AnyFunSuite with BeforeAndAfterAll {

  /** One for all tests: five executors take long to start. */
  private var sc: SparkContext = _

  override def beforeAll(): Unit =
    sc = LocalCluster.start(5, 1, LocalCluster.prepared ++ Installed.forUcxIfThere: _*)

  override def afterAll(): Unit = LocalCluster.stop(sc)

  test("sums and parameters are exact over block-stream, with one to five executors, in every exact codec") {
    val settings = RunKeys.resolve(Map("transport" -> "block-stream", "host_local" -> "off"))
    for (ranks <- 1 to 5) {
      val checked = LocalCluster.ranks(sc, ranks, settings)(ClusterChecks.everyCodec(_))
      assert(checked.forall(_ >= 3 * 4), s"$ranks ranks: $checked")
    }
  }

  // What a codec makes of values, no transport sees: one is enough.
  test("the same over tcp") {
    plainly("tcp", 1 to 5, Seq(0, 1, 10007, ClusterChecks.Million))
  }

  // Two ranks, and four: UcxSuite.
  test("the same over ucx, where it is installed, with one, three and five executors") {
    Installed.assumeUcx()
    plainly("ucx", Seq(1, 3, 5), Seq(0, 1, 10007, ClusterChecks.Million))
  }

  // A job of processes for each check: fewer of them.
  test("the same over mpi, where it is installed, with three and five executors") {
    Installed.assumeMpi()
    plainly("mpi", Seq(3), Seq(1, 10007))
    plainly("mpi", Seq(5), Seq(10007))
  }

  private def plainly(transport: String, sizes: Seq[Int], lengths: Seq[Int]): Unit = {
    val settings = RunKeys.resolve(Map("transport" -> transport))
    for (ranks <- sizes) {
      val checked = LocalCluster.ranks(sc, ranks, settings)(ClusterChecks.plain(_, lengths))
      assert(checked.forall(_ >= 3 * lengths.size), s"$transport, $ranks ranks: $checked")
    }
  }
}

/** In an object, so that tasks need nothing of the suite. Each gives the number of checks that this rank has made. */
private object ClusterChecks {
  val Million = 1000003
  private val Few = Seq(0, 1, 10007)

  def everyCodec(group: GroupContext): Int =
    plain(group, Few :+ Million) + Variants.all[Codec].filter(exact).map(codec => check(group, codec, Few)).sum

  def plain(group: GroupContext, lengths: Seq[Int]): Int = check(group, TestCodecs.plain.head, lengths)

  private def check(group: GroupContext, codec: Codec, lengths: Seq[Int]): Int = {
    val parameters = TestCodecs.plain.head
    val checks = for {
      topology <- Variants.all[Topology].filter(_.amongRanks)
      length <- lengths
      if topology.refuses(group.size, codec, parameters).isEmpty
      bucketLength = if (length == Million) 65536 else 3001
    } yield CollectiveCheck(topology, codec, parameters, length, bucketLength, steps = 3)
    checks.foreach(run(group, _))
    checks.size
  }

  private def run(group: GroupContext, one: CollectiveCheck): Unit = {
    val connected = OneStageTransport.of(group.settings).connect(Numbered(group, one.label))
    try one.run(connected): Unit
    catch {
      case error: Throwable =>
        throw new AssertionError(s"${one.label}, rank ${group.rank} of ${group.size}: $error", error)
    } finally connected.close()
  }

  private def exact(codec: Codec): Boolean = !codec.keepsResidual && codec.fixedBytes(1).nonEmpty
}
