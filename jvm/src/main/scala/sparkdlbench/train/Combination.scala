package sparkdlbench.train

import sparkdlbench.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}
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
      case _ => ()
    }
}
