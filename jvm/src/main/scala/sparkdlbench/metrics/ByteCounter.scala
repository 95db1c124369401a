package sparkdlbench.metrics

/** Payload bytes sent, by channel name. Used by one thread. */
final class ByteCounter {
  private val counts = scala.collection.mutable.Map.empty[String, Long].withDefaultValue(0L)
  def add(channel: String, bytes: Long): Unit = counts(channel) += bytes
  def toMap: Map[String, Long] = counts.toMap
}

object ByteCounter {
  def sum(maps: Iterable[Map[String, Long]]): Map[String, Long] =
    maps.flatten.groupBy(_._1).map { case (channel, counts) => channel -> counts.map(_._2).sum }
}
