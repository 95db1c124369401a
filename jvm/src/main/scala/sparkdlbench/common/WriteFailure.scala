package sparkdlbench.common

/** What could not be written, in one paragraph: which place, why, and what to do. */
object WriteFailure {
  private val Full =
    """(?i)no space left|quota|not enough space|disk(?: is)? full|DiskOutOfSpace|could only be written to 0 of""".r
  private val Depth = 10

  /** Whether a place has no room left, by what file systems say then. */
  def isFull(cause: Throwable): Boolean =
    Iterator
      .iterate(cause)(_.getCause)
      .takeWhile(_ != null)
      .take(Depth)
      .exists(each => Full.findFirstIn(s"${each.getClass.getSimpleName} ${each.getMessage}").isDefined)

  /**
   * @param what
   *   subject of the sentence, with the place
   * @param otherwise
   *   another remedy than making room
   */
  def text(what: String, cause: Throwable, otherwise: String): String = {
    val said = Option(cause.getMessage).getOrElse(cause.getClass.getSimpleName).stripSuffix(".")
    if (isFull(cause))
      s"$what cannot be written, because its disk or quota is full ($said). Make room there, $otherwise."
    else s"$what cannot be written: $said. Check its folder and your permissions, $otherwise."
  }
}
