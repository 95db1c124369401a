package sparkdlbench.transport

import org.apache.spark.SparkContext
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.{Bf16, Codec}
import sparkdlbench.config.Settings
import sparkdlbench.topology.{CollectiveCheck, Ring, Sliced, TestCodecs, Topology}
import sparkdlbench.transport.push.{BlockStream, HostLocal}

/** Two executor processes with two ranks each sum in memory first, and the network carries what one rank each would send. */
class RankGroupsClusterSuite extends AnyFunSuite {
  private val length = 100003
  private val steps = 3
  private val plain = TestCodecs.plain.head

  /** Bytes by channel over all ranks, and the groups, which all ranks must see alike. Every value is checked at every rank. */
  private def collective(sc: SparkContext, topology: Topology, codec: Codec, inMemoryFirst: String) = {
    val keys = Map("host_local" -> "off", "in_memory_first" -> inMemoryFirst)
    val settings = Settings.resolve(keys, Seq(HostLocal.mode, RankGroups.inMemoryFirst))
    val (name, lossy) = (topology.name, !codec.lossless)
    val results = LocalCluster.ranks(sc, 4, settings) { group =>
      // Variants and codecs of tests are no values that Spark could send.
      val (edges, bytes) =
        (if (name == "ring") new Ring else new Sliced, if (lossy) new Bf16 else TestCodecs.plain.head)
      val transport = new BlockStream().connect(group)
      try {
        CollectiveCheck(edges, bytes, bytes, 100003, 16384, 3).run(transport)
        (transport.bytesSent, transport.groups)
      } finally transport.close()
    }
    assert(results.map(_._2).distinct.size == 1)
    val bytes = results.flatMap(_._1).groupBy(_._1).map { case (channel, sent) => channel -> sent.map(_._2).sum }
    (bytes, results.head._2)
  }

  private def between(topology: Topology, codec: Codec, groups: RankGroups): Long = steps *
    (0 until groups.size).map(topology.bytesPerStep(_, groups, length, 16384, codec, codec).betweenGroups.get).sum

  test("socket bytes are those of one rank an executor") {
    LocalCluster.run(2, 2, LocalCluster.prepared: _*) { sc =>
      for ((topology, codec) <- Seq[(Topology, Codec)]((new Sliced, plain), (new Ring, new Bf16))) {
        val (together, groups) = collective(sc, topology, codec, "on")
        assert(groups.members.map(_.size) == Seq(2, 2))
        val leaders = between(topology, codec, RankGroups.alone(2))
        assert(together("block-stream") == leaders && leaders == between(topology, codec, groups))
        val (apart, alone) = collective(sc, topology, codec, "off")
        assert(alone.alone)
        assert(apart("block-stream") + apart.getOrElse("in-process", 0L) == between(topology, codec, alone))
        assert(apart("block-stream") > leaders)
      }
    }
  }
}
