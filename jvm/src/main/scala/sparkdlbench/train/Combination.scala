package sparkdlbench.train

import sparkdlbench.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{JobTransport, TransportVariant}

/** Refuses combinations of variants that make no sense, with the reason. */
object Combination {
  def check(settings: Settings): Unit =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: JobTransport =>
        val topology = settings(RunKeys.topology)
        if (!transport.topologies.contains(topology))
          throw new ConfigurationException(
            s"Transport ${transport.name} makes a Spark job a step and cannot carry the topology '$topology'. " +
              s"Valid with it: ${transport.topologies.toSeq.sorted.mkString(", ")}."
          )
        transport.refuses(settings).foreach(reason => throw new ConfigurationException(reason))
        if (settings(Checkpointing.folder).nonEmpty || settings(Checkpointing.resume).nonEmpty)
          throw new ConfigurationException(
            s"Transport ${transport.name} makes a Spark job a step and keeps no checkpoints. Leave checkpoint.dir and resume unset, or use " +
              "a transport of the one-stage shape, such as block-stream."
          )
      case _ =>
        Variants
          .find[Topology]("topology", settings(RunKeys.topology))
          .refuses(settings(RunKeys.workers), ChosenCodecs.gradient(settings), ChosenCodecs.parameters(settings))
          .foreach(reason => throw new ConfigurationException(reason))
    }
}
