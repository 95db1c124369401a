package sparkdlbench.transport.tcp

import scala.util.Try
import sparkdlbench.common.RunFailedException

/** Where a server listens. */
private[tcp] final case class Endpoint(host: String, port: Int) {
  override def toString: String = if (host.contains(':')) s"[$host]:$port" else s"$host:$port"
}

/** What a rank tells the others: its process, and where it listens, best first. Prints and parses. */
private[tcp] final case class Offer(process: String, endpoints: IndexedSeq[Endpoint])

private[tcp] object Offer {
  def print(process: String, endpoints: Seq[Endpoint]): String =
    (process +: endpoints.map(one => s"${one.host} ${one.port}")).mkString(" ")

  def parse(text: String): Offer = Try {
    val words = text.split(' ')
    Offer(words.head, words.tail.grouped(2).map(pair => Endpoint(pair(0), pair(1).toInt)).toIndexedSeq)
  }.getOrElse(unreadable(text))

  /** By rank, the numbers of its endpoints that were reached. */
  def printReached(reached: Seq[Set[Int]]): String = reached.map(_.toSeq.sorted.mkString("+")).mkString("/", "/", "/")

  def parseReached(text: String): IndexedSeq[Set[Int]] = Try(
    text.split("/", -1).drop(1).dropRight(1).toIndexedSeq.map(_.split('+').filter(_.nonEmpty).map(_.toInt).toSet)
  ).getOrElse(unreadable(text))

  private def unreadable(text: String): Nothing = throw new RunFailedException(
    s"A rank announced '$text', which cannot be read. Check that all executors run the same version of this package."
  )
}
