package sparkdlbench.data

import com.univocity.parsers.common.TextParsingException
import com.univocity.parsers.csv.{CsvParser, CsvParserSettings}

/** Cuts lines into fields, by the parser that Spark's own CSV reader uses. One thread. */
private[data] final class CsvLine(parser: CsvParser) {

  /** The fields, quotes and escapes undone; empty where the line is no record. A missing value is the empty text. */
  def parse(line: String): Array[String] =
    try {
      val fields = parser.parseLine(line)
      if (fields == null) Array.empty else fields
    } catch { case _: TextParsingException => Array.empty }
}

private[data] object CsvLine {
  private val MostCharacters = 1 << 16

  /** The fields of one line, of which nobody knows how many there are. */
  def fields(line: String, delimiter: String): Array[String] =
    parser(delimiter, 1 + line.count(_ == delimiter.charAt(0))).parse(line)

  /** @param columns expected; a line may have a few more, so that it can be told how many they were */
  def parser(delimiter: String, columns: Int): CsvLine = {
    val settings = new CsvParserSettings
    settings.getFormat.setDelimiter(delimiter.charAt(0))
    settings.getFormat.setComment('\u0000')
    settings.setMaxColumns(columns + 16)
    settings.setMaxCharsPerColumn(MostCharacters)
    settings.setNullValue("")
    settings.setEmptyValue("")
    settings.setIgnoreLeadingWhitespaces(true)
    settings.setIgnoreTrailingWhitespaces(true)
    new CsvLine(new CsvParser(settings))
  }
}
