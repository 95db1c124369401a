package sparkdlbench.config

import org.apache.commons.text.similarity.LevenshteinDistance
import sparkdlbench.ConfigurationException

/**
 * The complete, checked configuration of one run: every known key has a value. Immutable and serialisable; tasks receive
 * it whole.
 */
final class Settings private (val entries: Map[String, String]) extends Serializable {
  def apply[T](key: Key[T]): T = Settings.parsed(key, entries.getOrElse(key.name, key.default))

  def updated(key: Key[_], value: String): Settings = {
    Settings.parsed(key, value)
    new Settings(entries.updated(key.name, value))
  }

  /** The entries as results keep and show them: without secrets. */
  def shown: Map[String, String] = entries.map { case (name, value) => name -> Redaction.value(name, value) }
}

object Settings {

  /**
   * @param raw
   *   what the user set, by TOML or Spark name
   * @param keys
   *   every key that there is
   */
  def resolve(raw: Map[String, String], keys: Seq[Key[_]]): Settings = {
    val known: Map[String, Key[_]] = keys.map(key => (key.name, key: Key[_])).toMap[String, Key[_]]
    val named = Settings.named(raw)
    named.keys.toSeq.sorted.filterNot(known.contains).foreach { name =>
      throw new ConfigurationException(
        s"Unknown configuration key '$name'.${suggestion(name, known.keys.toSeq)} " +
          s"Valid keys are: ${known.keys.toSeq.sorted.mkString(", ")}."
      )
    }
    val complete = keys.map(key => key.name -> named.getOrElse(key.name, key.default)).toMap
    keys.foreach(key => parsed(key, complete(key.name)))
    new Settings(complete)
  }

  /** The same settings under their TOML names, whichever way they were written. */
  def named(raw: Map[String, String]): Map[String, String] =
    raw.map { case (name, value) => Key.snakeCase(name.stripPrefix(Key.SparkPrefix)) -> value }

  def parsed[T](key: Key[T], value: String): T = key
    .parse(value)
    .getOrElse(
      throw new ConfigurationException(
        s"Configuration key '${key.name}' has the value '$value', which is not valid." +
          s"${suggestion(value, key.valid.split(", ").toSeq)} Valid: ${key.valid}. Set it with --set ${key.name}=VALUE, in the " +
          s"run's TOML file, or as ${key.sparkName}."
      )
    )

  /**
   * " Did you mean 'x'?" for the nearest candidate, or nothing when none is near. Nearest is one of the same letters in
   * another order: each swap of two counts as two edits, so that others would seem as near.
   */
  def suggestion(typed: String, candidates: Seq[String]): String =
    candidates
      .map(candidate => candidate -> edits(typed, candidate))
      .filter { case (candidate, distance) => distance <= math.max(2, candidate.length / 3) }
      .sortBy(_._2)
      .headOption
      .fold("") { case (candidate, _) => s" Did you mean '$candidate'?" }

  private def edits(typed: String, candidate: String): Int =
    if (typed.sorted == candidate.sorted) 0
    else LevenshteinDistance.getDefaultInstance.apply(typed, candidate).intValue
}
