package sparkdlbench.config

import sparkdlbench.common.ConfigurationException

/**
 * Refuses TOML that is nested beyond what any of our files needs, as Python's `toml_depth` does: its parsers go down a level a call, and end
 * with a stack overflow, or take minutes for a dotted key of thousands of parts.
 */
private[config] object TomlDepth {
  val Limit = 64

  def check(text: String, path: String): Unit = {
    val (brackets, parts) = deepest(text)
    if (brackets > Limit || parts > Limit)
      throw new ConfigurationException(
        s"The file '$path' is nested more than $Limit deep (brackets, or parts of a dotted key). Valid are a table and its keys, such as " +
          "[model] with hidden = [100, 50], and lists of lists. Correct the line."
      )
  }

  /** The deepest nesting of brackets, and the most parts of a dotted key; texts and comments do not count. */
  private def deepest(text: String): (Int, Int) = {
    var (at, depth, brackets, parts, most) = (0, 0, 0, 0, 0)
    while (at < text.length) {
      val char = text.charAt(at)
      char match {
        case '[' | '{' => depth += 1; brackets = math.max(brackets, depth)
        case ']' | '}' => depth = math.max(0, depth - 1)
        case '.' => parts += 1; most = math.max(most, parts)
        case _ => ()
      }
      if (",=[]{}\n#".indexOf(char.toInt) >= 0) parts = 0
      at = char match {
        case '"' | '\'' => afterText(text, at)
        case '#' => endOfLine(text, at)
        case _ => at + 1
      }
    }
    (brackets, most)
  }

  /** Where a text ends that begins at `at`; one that nobody closes ends with its line, and the parser complains. */
  private def afterText(text: String, at: Int): Int = {
    val quote = text.substring(at, at + 1)
    val closing = if (text.startsWith(quote * 3, at)) quote * 3 else quote
    val end = if (closing.length == 3) text.length else endOfLine(text, at)
    var next = at + closing.length
    while (next < end && !text.startsWith(closing, next))
      next += (if (quote == "\"" && text.charAt(next) == '\\') 2 else 1)
    math.min(end, next + closing.length)
  }

  private def endOfLine(text: String, at: Int): Int = {
    val found = text.indexOf('\n'.toInt, at)
    if (found < 0) text.length else found
  }
}
