package sparkdlbench.data

import java.util.StringTokenizer

/** One line of LIBSVM text. */
private[data] object LibsvmLine {

  /**
   * Writes the line's values, zeros between them.
   *
   * @return
   *   the label's text, empty for a line without a record; or what is wrong
   */
  def parse(line: String, values: Array[Float]): Either[String, String] = {
    val words = tokens(line)
    java.util.Arrays.fill(values, 0f)
    if (!words.hasMoreTokens) Right("")
    else {
      val label = words.nextToken()
      var previous = 0
      var wrong: String = null
      while (words.hasMoreTokens && wrong == null) {
        val word = words.nextToken()
        val index = indexOf(word)
        val value = if (index > 0) Numbers.float(word.substring(word.indexOf(':') + 1)) else Float.NaN
        if (index <= 0 || value.isNaN || value.isInfinite)
          wrong = s"'${word.take(40)}' is no index:value with an index from 1 on and a finite number"
        else if (index <= previous) wrong = s"index $index comes after index $previous; indices must ascend"
        else if (index > values.length)
          wrong = s"index $index is over the rows' length of ${values.length} (`data.shape`)"
        else values(index - 1) = value
        previous = index
      }
      if (wrong == null) Right(label) else Left(wrong)
    }
  }

  /** The index of the line's last value. */
  def lastIndex(line: String): Option[Int] = {
    val words = tokens(line)
    var last = 0
    while (words.hasMoreTokens) last = math.max(last, indexOf(words.nextToken()))
    Some(last).filter(_ > 0)
  }

  private def tokens(line: String): StringTokenizer = {
    val comment = line.indexOf('#')
    new StringTokenizer(if (comment >= 0) line.substring(0, comment) else line)
  }

  /** 0 where there is none. */
  private def indexOf(word: String): Int = {
    val colon = word.indexOf(':')
    if (colon < 1) 0 else Numbers.whole(word.substring(0, colon)).getOrElse(0)
  }
}
