package sparkdlbench.bench

import sparkdlbench.codec.Codec
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.transport.{ForwardingTransport, InMemoryConditions, InMemoryGroup, Lane, ThreadGroup, Transport}
import sparkdlbench.OnOneLine

import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}
import scala.jdk.CollectionConverters._

class NetBenchSuite extends OnOneLine {
  private val effort = NetEffort(warmupCount = 2, sampleCount = 3)
  private val codecs = Variants.all[Codec]

  /** Gives `told` every message before it is sent; what `told` returns is sent. */
  private class Through(inner: Transport, told: (Lane, Long, ByteBuffer) => ByteBuffer)
      extends ForwardingTransport(inner) {
    override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit =
      super.send(lane, sequence, told(lane, sequence, data))
  }

  /** What the ranks of a group of threads find. @param around what stands before a connection, by its name */
  private def measure(codec: String, size: Int, elements: Int)(
      around: (String, Transport) => Transport
  ): IndexedSeq[NetRankResult] = {
    val groups = new ConcurrentHashMap[String, InMemoryGroup]
    val settings = RunKeys.resolve(Map("codec" -> codec, "workers" -> size.toString, "transport" -> "block-stream"))
    ThreadGroup.run(size) { own =>
      def connect(part: String): Transport = {
        val group = groups.computeIfAbsent(part, _ => new InMemoryGroup(size, InMemoryConditions()))
        around(part, group.connect(own.rank))
      }
      new NetRank(settings, elements, 40, connect).measure(effort)
    }
  }

  for (codec <- codecs)
    test(s"${codec.name}: the sums are right, with what the codec has kept") {
      for (size <- 1 to 4; elements <- Seq(0, 1, 1003)) {
        val results = measure(codec.name, size, elements)((_, transport) => transport)
        assert(results.forall(_.correct), s"$size ranks, $elements values")
        assert(results.forall(_.nanos.length == 3))
      }
    }

  for (codec <- codecs)
    test(s"${codec.name}: a message that got lost makes them wrong") {
      for (wrong <- if (codec.keepsResidual) Seq("before", "timed") else Seq("timed")) {
        val results = measure(codec.name, 2, 1003) { (part, transport) =>
          if (part != wrong) transport
          else
            new Through(
              transport,
              (lane, _, data) =>
                if (!lane.purpose.startsWith("gradient")) data
                else ByteBuffer.allocateDirect(data.remaining).order(ByteOrder.nativeOrder())
            )
        }
        assert(results.exists(!_.correct), wrong)
      }
    }

  test("the timed iterations send nothing that the check has left") {
    val sizes = new ConcurrentLinkedQueue[(Long, Int)]
    measure("threshold", 2, 1003) { (part, transport) =>
      if (part != "timed") transport
      else
        new Through(
          transport,
          (lane, sequence, data) => {
            if (lane.purpose.startsWith("gradient")) sizes.add(sequence -> data.remaining)
            data
          }
        )
    }
    val (timed, check) = sizes.asScala.toSeq.partition(_._1 < 5)
    assert(timed.nonEmpty && timed.forall(_._2 == 8), "a message of threshold without values has 8 bytes")
    assert(check.nonEmpty && check.forall(_._2 > 8))
  }

  test("what has no all-reduce is refused with its reason, and what there is none of with the nearest") {
    def refusal(settings: (String, String)*) = NetBench.refusal((settings.toMap + ("workers" -> "3")).asJava)
    assert(refusal("transport" -> "block-stream", "topology" -> "ring", "codec" -> "topk").isEmpty)
    assert(refusal("transport" -> "tcp", "topology" -> "ring", "codec" -> "threshold").contains("partial sums"))
    assert(refusal("transport" -> "shuffle").contains("trains by Spark jobs"))
    assert(refusal("transport" -> "tcp", "topology" -> "ps", "ps.place" -> "own").contains("ps.place = workers"))
    val error = intercept[ConfigurationException](refusal("transport" -> "tcpp"))
    assert(error.getMessage.contains("Did you mean 'tcp'?"))
  }
}
