package sparkdlbench.config

import scala.collection.immutable.ListMap

/**
 * What all valid texts of a key have in common, as facts that a program without a JVM can check: the command line refuses what is
 * none before it starts one. A text that a kind allows may still be refused by the key.
 */
sealed abstract class Kind(val name: String, val bounds: ListMap[String, Any])

object Kind {
  case object Text extends Kind("text", ListMap.empty)
  case object Flag extends Kind("flag", ListMap.empty)

  /** Whole numbers separated by commas. */
  case object Wholes extends Kind("whole-numbers", ListMap.empty)
  final case class Choice(values: Seq[String]) extends Kind("choice", ListMap("values" -> values))
  final case class Whole(min: Long, max: Long) extends Kind("whole-number", ListMap("min" -> min, "max" -> max))

  /** A whole number, or two of them as the bounds of a range, the lower one first: `2..8`. */
  final case class WholeOrRange(min: Long, max: Long)
      extends Kind("whole-number-or-range", ListMap("min" -> min, "max" -> max))
  final case class Number(min: Double, below: Option[Double])
      extends Kind("number", ListMap[String, Any]("min" -> min) ++ below.map("below" -> _))
}
