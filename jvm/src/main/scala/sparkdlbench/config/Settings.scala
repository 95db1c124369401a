package sparkdlbench.config

import org.apache.commons.text.similarity.LevenshteinDistance
import sparkdlbench.common.ConfigurationException

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
        s"Unknown configuration key '$name'.${nearestKeys(name, known.keys.toSeq)} `sparkdl-bench list keys` describes all keys."
      )
    }
    val complete = keys.map(key => key.name -> named.getOrElse(key.name, key.default)).toMap
    keys.foreach(key => parsed(key, complete(key.name)))
    new Settings(complete)
  }

  /** The same settings under their TOML names, whichever way they were written (Aliases). */
  def named(raw: Map[String, String]): Map[String, String] = {
    val found = raw.toSeq.sortBy(_._1).map { case (written, text) =>
      val key = Aliases.key(Key.snakeCase(written.stripPrefix(Key.SparkPrefix)))
      (written, key, Aliases.value(key, text))
    }
    found.groupBy(_._2).foreach { case (key, same) =>
      if (same.map(_._3).distinct.size > 1)
        throw new ConfigurationException(
          s"The key '$key' is set more than once: ${same.map { case (written, _, text) => s"$written = $text" }.mkString(", ")}. Set it once."
        )
    }
    found.map { case (_, key, text) => key -> text }.toMap
  }

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
      .filter { case (candidate, distance) => isNear(typed, candidate.length, distance) }
      .sortBy(_._2)
      .headOption
      .fold("") { case (candidate, _) => s" Did you mean '$candidate'?" }

  /** " Did you mean 'x'?" for the nearest key, also by its last part, or nothing when none is near. */
  private[config] def nearestKeys(typed: String, keys: Seq[String]): String = {
    def parts(key: String) = if (typed.contains('.')) Seq(key) else Seq(key, key.substring(key.lastIndexOf('.') + 1))
    val ranked =
      keys.sorted.map(key => (key, parts(key).map(part => edits(typed, part) -> part.length).min)).sortBy(_._2)
    ranked.headOption match {
      case Some((key, (distance, length))) if isNear(typed, length, distance) => s" Did you mean '$key'?"
      case _ => ""
    }
  }

  /** One wrong letter of three, two of six, and no more than three: `mpi` is no typing error of `tcp`. */
  private def isNear(typed: String, length: Int, edits: Int): Boolean =
    edits < math.max(typed.length, length) && edits <= math.min(3, math.max(1, math.max(typed.length, length) / 3))

  private def edits(typed: String, candidate: String): Int =
    if (typed.sorted == candidate.sorted) 0
    else LevenshteinDistance.getDefaultInstance.apply(typed, candidate).intValue
}
