package sparkdlbench.data

import java.util.StringTokenizer

/** One line of LIBSVM text. */
private[data] object LibsvmLine {
  private val Nowhere = Array.emptyFloatArray

  /**
   * Writes the line's values, zeros between them.
   *
   * @return
   *   the label's text, empty for a line without a record; or what is wrong
   */
  def parse(line: String, values: Array[Float]): Either[String, String] = {
    java.util.Arrays.fill(values, 0f)
    read(line, values.length, values).map(_._1)
  }

  /**
   * The same without the values.
   *
   * @param most
   *   values that a row may have
   * @return
   *   the label's text and the index of the last value, 0 where there is none
   */
  def check(line: String, most: Int): Either[String, (String, Int)] = read(line, most, Nowhere)

  private def read(line: String, most: Int, values: Array[Float]): Either[String, (String, Int)] = {
    val words = tokens(line)
    if (!words.hasMoreTokens) Right(("", 0))
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
        else if (index > most) wrong = s"index $index is over the rows' length of $most (`data.shape`)"
        else if (values.nonEmpty) values(index - 1) = value
        previous = index
      }
      if (wrong == null) Right((label, previous)) else Left(wrong)
    }
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
