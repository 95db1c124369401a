package sparkdlbench.engine

import sparkdlbench.config.Key

/** Where an engine computes; several engines read this key. */
object EngineDevice {
  val Cpu = "cpu"

  val key: Key[String] = Key(
    "engine.device",
    Cpu,
    "cpu, cuda, cuda:N",
    "Where the engine computes: cpu, or of engine torch also cuda (the host's first GPU) or cuda:N (GPU N, from 0 on)",
    text => Some(text).filter(name => name == Cpu || name.matches("cuda(:[0-9]{1,3})?"))
  )
}
