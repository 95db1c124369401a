package sparkdlbench.codec

import sparkdlbench.config.{RunKeys, Settings, Variants}

/** The codecs of a run. */
object ChosenCodecs {

  /** In which bytes gradients travel. */
  def gradient(settings: Settings): Codec = Variants.find[Codec]("codec", settings(RunKeys.codec)).configured(settings)

  /** In which bytes weights travel: a codec that leaves values out is for gradients alone. */
  def parameters(settings: Settings): Codec = {
    val codec = gradient(settings)
    if (codec.fixedBytes(1).isDefined && !codec.keepsResidual) codec else Variants.find[Codec]("codec", "fp32")
  }
}
