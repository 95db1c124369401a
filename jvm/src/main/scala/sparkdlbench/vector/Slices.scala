package sparkdlbench.vector

/**
 * How a vector of `length` values is cut into `parts` consecutive slices: the first `length % parts` slices are one
 * value longer than the others. Slices may be empty.
 */
final case class Slices(length: Int, parts: Int) {
  require(length >= 0 && parts >= 1, s"length $length, parts $parts")
  def from(part: Int): Int = (part.toLong * (length / parts) + math.min(part, length % parts)).toInt
  def until(part: Int): Int = from(part + 1)
  def size(part: Int): Int = until(part) - from(part)
  def maxSize: Int = size(0)
}
