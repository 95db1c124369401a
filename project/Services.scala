import sbt._

/**
 * Writes `META-INF/services` from the sources, so that adding a variant is adding one file: every
 * `final class X extends Y` whose `Y` is one of the service traits below becomes a provider of `Y`.
 */
object Services {
  private val traits = Map(
    "Axis" -> "sparkdlbench.config.Axis",
    "KeyGroup" -> "sparkdlbench.config.KeyGroup",
    "Algorithm" -> "sparkdlbench.algorithm.Algorithm",
    "Topology" -> "sparkdlbench.topology.Topology",
    "TransportVariant" -> "sparkdlbench.transport.TransportVariant",
    "Codec" -> "sparkdlbench.codec.Codec",
    "EngineVariant" -> "sparkdlbench.engine.EngineVariant",
    "ModelFamily" -> "sparkdlbench.model.ModelFamily",
    "LayerKind" -> "sparkdlbench.model.LayerKind",
    "ElementwiseKind" -> "sparkdlbench.model.LayerKind",
    "PoolingKind" -> "sparkdlbench.model.LayerKind",
    "TorchLayerKind" -> "sparkdlbench.engine.libtorch.TorchLayerKind",
    "BigDlLayerKind" -> "sparkdlbench.engine.bigdl.BigDlLayerKind",
    "DataSource" -> "sparkdlbench.data.DataSource",
    "OptimizerVariant" -> "sparkdlbench.optimizer.OptimizerVariant",
    "ScheduleVariant" -> "sparkdlbench.optimizer.ScheduleVariant"
  )
  private val Package = """(?m)^package\s+([\w.]+)""".r
  private val Provider = """(?m)^final class (\w+) extends (\w+)""".r

  def generate(sources: Seq[File], target: File): Seq[File] = {
    val found = for {
      source <- sources if source.getName.endsWith(".scala")
      text = IO.read(source)
      name <- Package.findFirstMatchIn(text).map(_.group(1)).toSeq
      provider <- Provider.findAllMatchIn(text) if traits.contains(provider.group(2))
    } yield traits(provider.group(2)) -> s"$name.${provider.group(1)}"
    found.groupBy(_._1).toSeq.map { case (service, providers) =>
      val file = target / "META-INF" / "services" / service
      IO.write(file, providers.map(_._2).sorted.mkString("", "\n", "\n"))
      file
    }
  }
}
