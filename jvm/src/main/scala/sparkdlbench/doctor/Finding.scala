package sparkdlbench.doctor

import scala.collection.immutable.ListMap
import sparkdlbench.common.ConfigurationException

/**
 * Something that would go wrong.
 *
 * @param check
 *   what was looked at, one word
 * @param message
 *   one paragraph: what, which value, what is valid, what to do
 */
final case class Finding(check: String, message: String) {
  def toMap: ListMap[String, Any] = ListMap[String, Any]("check" -> check, "message" -> message)
}

object Finding {

  /** What a check complains about that throws. */
  def of(check: String)(body: => Any): Seq[Finding] = orElse(check)(body).left.toSeq

  /** The same, or what the check gives. */
  def orElse[T](check: String)(body: => T): Either[Finding, T] =
    try Right(body)
    catch { case error: ConfigurationException => Left(Finding(check, error.getMessage)) }
}
