package sparkdlbench.model

import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.EngineVariant

/** Settings with the seed and the keys of models and engines alone. */
object RunKeysForTests {
  def settings(entries: (String, String)*): Settings =
    Settings.resolve(
      entries.toMap,
      Variants.all[ModelFamily].flatMap(_.keys) ++ Variants
        .all[EngineVariant]
        .flatMap(_.keys) ++ ModelFamily.keys :+ RunKeys.seed :+ RunKeys.engine :+ RunKeys.model
    )
}
