package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

import java.io.IOException
import scala.util.Try

/**
 * Numbers in text, one row a line: CSV as RFC 4180 has it (but for line ends inside quotes), any delimiter, with or without a line of
 * names. One column is the label; the others in their order are the row, or those that `data.columns` names. Large files are decoded in parts, by byte ranges.
 */
final class Csv extends DataSource with FileSource {
  import Csv._

  def name = "csv"
  def doc = "Delimited text with or without a line of names, from any Hadoop file system, decoded in parts"
  override def givesNumbers: Boolean = true
  def ownKeys: Seq[Key[_]] = FileSource.path ++
    Seq(
      header,
      TableKeys.label,
      TableKeys.columns,
      delimiter,
      TableKeys.labelNames,
      TableKeys.heldAs,
      DataKeys.shape,
      FileSource.splitBytes
    )

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] =
    FileSource.files(settings, hadoop).flatMap { case (file, test) =>
      Split.ranges(file, test, settings(FileSource.splitBytes))
    }

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout = {
    val file = splits.head.file
    val names = Try(TextLines.first(file, hadoop))
      .recover { case _: IOException => None }
      .get
      .map(CsvLine.fields(_, settings(delimiter)))
      .filter(_.nonEmpty)
      .getOrElse(throw new ConfigurationException(s"File '${file.path}' is empty, or cannot be read as text."))
    val label = labelColumns(names, file, settings)
    if (names.length < 1 + label.size) {
      val columns = if (names.length == 1) "one column" else s"${names.length} columns"
      throw new ConfigurationException(
        s"The first line of '${file.path}' has $columns; a row needs a label and at least one value. `data.delimiter` is '${settings(delimiter)}'."
      )
    }
    val width = valuePlaces(names.toSeq, label, file, settings).length
    val counted =
      if (settings(TableKeys.columns).isEmpty) s"'${file.path}' has $width columns besides the label"
      else s"`data.columns` names $width columns of '${file.path}'"
    RecordLayout(
      DataKeys.shapeOf(settings, width, counted),
      ValueKind.named(settings(TableKeys.heldAs)).get,
      TableKeys.classes(settings),
      s"CSV of ${names.length} columns from ${settings(DataKeys.path)}",
      TableKeys.names(settings, label.size, if (settings(header)) label.map(names(_)) else Nil),
      if (settings(header)) names.toList else Nil,
      fileColumns = names.length,
      ignored = TableKeys.ignored(settings),
      binary = TableKeys.isBinary(settings)
    )
  }

  /** Rows of a file whose columns come in another order would be rows of other values. */
  override def unfit(
      file: DataFile,
      layout: RecordLayout,
      settings: Settings,
      hadoop: Configuration
  ): Option[String] = {
    def some(names: Seq[String]) = names.take(20).mkString(", ") + (if (names.size > 20) ", …" else "")
    if (layout.columns.isEmpty) None
    else
      try
        TextLines
          .first(file, hadoop)
          .map(CsvLine.fields(_, settings(delimiter)).toList)
          .filter(_ != layout.columns.toList)
          .map { names =>
            s"its line of names differs from the first file's: it is ${some(names)}, and that is ${some(layout.columns)}; all files of a set " +
              "have the same columns in the same order (`data.header`)"
          }
      catch { case cause: IOException => Some(s"its line of names cannot be read (${cause.getMessage})") }
  }

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    val named = sink.layout.columns.nonEmpty
    val columns = sink.layout.fileColumns
    val names = sink.layout.columns.padTo(columns, "")
    val at = labelColumns(names.toArray, split.file, settings).toArray
    val others = new Array[Int](at.length - 1)
    sink.otherLabels = others
    val places = valuePlaces(names, at.toSeq, split.file, settings)
    val parser = CsvLine.parser(settings(delimiter), columns)
    val values = new Array[Float](sink.layout.width)
    TextLines.foreach(split, hadoop, sink) { (line, record, offset) =>
      // The line of names is no row, and `unfit` has looked at it.
      if (!named || offset > 0) {
        val fields = parser.parse(line)
        if (fields.length != columns)
          sink.bad(record, offset, s"the line has ${fields.length} columns, and the first line of the set has $columns")
        else
          labelOf(fields, at, others, sink.layout) match {
            case Right(label) =>
              Csv.convert(fields, places, values) match {
                case -1 => sink.floats(values, label, record, offset)
                case wrong =>
                  val column = if (named) s"$wrong ('${names(wrong)}')" else s"$wrong"
                  sink.bad(record, offset, s"column $column is '${fields(wrong)}', which is no finite number")
              }
            case Left(wrong) => sink.bad(record, offset, s"the label is '$wrong'; ${sink.layout.labelsSay(wrong)}")
          }
      }
    }
  }

  /** The first label of a line, the bits of the others to `others`; or the text that is none. */
  private def labelOf(
      fields: Array[String],
      at: Array[Int],
      others: Array[Int],
      layout: RecordLayout
  ): Either[String, Int] = {
    var wrong = -1
    var place = at.length - 1
    while (place > 0) {
      layout.label(fields(at(place))).fold { wrong = at(place) }(others(place - 1) = _)
      place -= 1
    }
    val first = layout.label(fields(at(0)))
    if (first.isEmpty) Left(fields(at(0))) else if (wrong >= 0) Left(fields(wrong)) else Right(first.get)
  }

  /** The numbers of the columns that hold a row's values, in its order. @param names without `data.header` they count for nothing */
  private def valuePlaces(names: Seq[String], label: Seq[Int], file: DataFile, settings: Settings): Array[Int] = {
    val known = if (settings(header)) names else names.map(_ => "")
    val found = settings(TableKeys.columns).map { column =>
      TableKeys.numberOf(column, known) match {
        case -1 =>
          throw new ConfigurationException(
            s"Configuration key 'data.columns' names the column '$column', which '${file.path}' does not have." +
              s"${if (settings(header)) Settings.suggestion(column, names) else ""} Its ${names.length} columns are " +
              (if (settings(header)) s"${names.take(20).mkString(", ")}; give their names, or "
               else "not named (`data.header` = false); give ") +
              s"numbers from 0 to ${names.length - 1}."
          )
        case at if label.contains(at) =>
          throw new ConfigurationException(
            s"Configuration key 'data.columns' names the column '$column', which is the label's (`data.label`). Leave it out there."
          )
        case at => at
      }
    }
    (if (found.nonEmpty) found else names.indices.filterNot(label.toSet)).toArray
  }

  private def labelColumns(names: Array[String], file: DataFile, settings: Settings): Seq[Int] =
    TableKeys.labels(settings).map(labelColumn(_, names, file, settings))

  private def labelColumn(wanted: String, names: Array[String], file: DataFile, settings: Settings): Int = {
    val byName = if (settings(header)) names.indexOf(wanted) else -1
    if (byName >= 0) byName
    else
      TableKeys.position(wanted, names.length) match {
        case at if at >= 0 && at < names.length => at
        case _ =>
          throw new ConfigurationException(
            s"Configuration key 'data.label' is '$wanted', and '${file.path}' has no such column." +
              s"${if (settings(header)) Settings.suggestion(wanted, names.toSeq) else ""} Its ${names.length} columns are " +
              (if (settings(header)) s"${names.take(20).mkString(", ")}; give one of these names, or "
               else "not named (`data.header` = false); give ") +
              s"a number from 0 to ${names.length - 1}, or from -1 (the last) back."
          )
      }
  }
}

private object Csv {

  val header: Key[Boolean] = Key.flag("data.header", "false", "The first line of each file names the columns")
  val delimiter: Key[String] = Key(
    "data.delimiter",
    ",",
    "one character, or tab",
    "What separates columns",
    text => if (text == "tab") Some("\t") else Some(text).filter(_.length == 1)
  )

  /** @return the first column of `places` that is no finite number, or -1 */
  def convert(fields: Array[String], places: Array[Int], values: Array[Float]): Int = {
    var at = 0
    var wrong = -1
    while (at < places.length && wrong < 0) {
      val value = Numbers.float(fields(places(at)))
      if (value.isNaN || value.isInfinite) wrong = places(at)
      values(at) = value
      at += 1
    }
    wrong
  }
}
