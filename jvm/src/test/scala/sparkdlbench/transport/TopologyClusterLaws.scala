package sparkdlbench.transport

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Codec
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.topology.{CollectiveCheck, TestCodecs, Topology}

/**
 * The laws of `TopologyLaws` between real executor processes, in one Spark application: every topology with every codec that carries
 * small whole numbers exactly, 1 to 5 ranks, no value, one, a prime number and a million.
 */
class TopologyClusterLaws extends AnyFunSuite {
  test("sums and parameters are exact over block-stream and tcp, with one to five executors") {
    LocalCluster.run(5, 1, LocalCluster.prepared: _*) { sc =>
      for {
        (name, settings) <- Seq(
          "block-stream" -> RunKeys.resolve(Map("host_local" -> "off")),
          "tcp" -> RunKeys.resolve(Map("transport" -> "tcp"))
        )
        ranks <- 1 to 5
      } {
        val checked = LocalCluster.ranks(sc, ranks, settings)(ClusterChecks.all(name, _))
        assert(checked.forall(_ >= 3 * 4), s"$name, $ranks ranks: $checked")
      }
    }
  }
}

/** In an object, so that tasks need nothing of the suite. */
private object ClusterChecks {
  private val Million = 1000003

  /** The number of checks that this rank has made. */
  def all(transport: String, group: GroupContext): Int = {
    val plain = TestCodecs.plain.head
    val each = for {
      topology <- Variants.all[Topology].filter(_.amongRanks)
      codec <- plain +: Variants.all[Codec].filter(exact)
      length <- Seq(0, 1, 10007) ++ (if (codec eq plain) Seq(Million) else Nil)
      if topology.refuses(group.size, codec, plain).isEmpty
      check = CollectiveCheck(topology, codec, plain, length, if (length == Million) 65536 else 3001, steps = 3)
    } yield {
      val connected = connect(transport, Numbered(group, check.label))
      try check.run(connected)
      catch {
        case error: Throwable =>
          throw new AssertionError(s"${check.label}, rank ${group.rank} of ${group.size}: $error", error)
      } finally connected.close()
    }
    each.size
  }

  private def connect(name: String, group: GroupContext): Transport =
    (Seq[OneStageTransport](new BlockStream, new Tcp).find(_.name == name).get).connect(group)

  private def exact(codec: Codec): Boolean = !codec.keepsResidual && codec.fixedBytes(1).nonEmpty
}
