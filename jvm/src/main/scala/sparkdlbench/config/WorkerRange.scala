package sparkdlbench.config

import scala.util.Try

/** The numbers of workers that a run may have, both bounds included; written `2..8`. */
final case class WorkerRange(least: Int, most: Int) {
  override def toString: String = s"$least..$most"
}

object WorkerRange {
  private val Written = """\s*(\d+)\s*\.\.\s*(\d+)\s*""".r

  /** None where the text is no range of numbers from 1 on. */
  def read(text: String): Option[WorkerRange] = text match {
    case Written(from, to) =>
      Try(WorkerRange(from.toInt, to.toInt)).toOption.filter(range => range.least >= 1 && range.least <= range.most)
    case _ => None
  }
}
