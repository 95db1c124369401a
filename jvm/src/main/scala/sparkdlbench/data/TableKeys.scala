package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.loss.{IgnoredLabel, Loss}

import scala.util.Try

/** Keys of the sources whose rows are columns of a table. */
private[data] object TableKeys {
  private def words(text: String): Option[Seq[String]] = Some(text.split(',').map(_.trim).filter(_.nonEmpty).toList)

  val labelNames: Key[Seq[String]] = Key(
    "data.label_names",
    "",
    "words separated by commas",
    "Labels that are words, or numbers other than 0, 1, …: the classes in this order",
    words
  )
  val heldAs: Key[String] = Key.choice(
    "data.held_as",
    "float32",
    ValueKind.all.map(_.name).reverse,
    "How values are stored: float32, or uint8 (whole numbers from 0 to 255) in a quarter of the memory"
  )

  /** How many there are; where labels are numbers RecordLayout.Regression. */
  def classes(settings: Settings): Int =
    if (Loss.of(settings).hasNumbers) {
      refuseClasses(settings)
      math.max(RecordLayout.Regression, labels(settings).size)
    } else
      settings(labelNames) match {
        case Seq() => settings(DataKeys.classes)
        case Seq(only) =>
          throw new ConfigurationException(
            s"data.label_names is '$only', one class, so there is nothing to tell apart. Name two classes or more, " +
              "or choose another column with data.label."
          )
        case names => names.size
      }

  /** A label besides the classes; none of a regression. */
  def ignored(settings: Settings): Option[Int] =
    IgnoredLabel.beside(settings, if (Loss.of(settings).isBinary) 2 else classes(settings))

  /** Whether labels are answers, no and yes: 0 and 1. */
  def isBinary(settings: Settings): Boolean = Loss.of(settings).isBinary

  /**
   * The names of classes, of no and yes, or of the labels where a row has several: then those of their columns, unless others are given.
   *
   * @param labels
   *   of a row
   */
  def names(settings: Settings, labels: Int, columns: Seq[String]): Seq[String] = {
    val named = settings(labelNames)
    val wanted = if (labels == 1) 2 else labels
    if (!isBinary(settings)) named
    else if (named.isEmpty) { if (labels > 1 && columns.size == labels) columns else Nil }
    else if (named.size == wanted) named
    else
      throw new ConfigurationException(
        s"data.label_names is '${named.mkString(",")}', and with loss.name=${settings(RunKeys.loss)} " +
          (if (labels == 1)
             "labels are 0 or 1. Name two, that of 0 first, or set loss.name=cross-entropy to tell more classes apart."
           else s"a row has $labels labels. Name each of them, or leave it out.")
      )
  }

  private def refuseClasses(settings: Settings): Unit = Seq(labelNames, DataKeys.classes)
    .filterNot(key => key == labelNames && isBinary(settings))
    .find(key => settings.entries.getOrElse(key.name, key.default) != key.default)
    .foreach { key =>
      throw new ConfigurationException(
        s"Configuration key '${key.name}' is '${settings.entries(key.name)}', and loss.name=${settings(RunKeys.loss)} is for labels that are " +
          s"numbers and no classes. Leave ${key.name} out, or set loss.name=cross-entropy to tell classes apart."
      )
    }

  val label: Key[String] =
    Key.text(
      "data.label",
      "0",
      "The label's column: its name, or its number from 0 on (-1: the last); with binary-cross-entropy also several, separated by commas"
    )

  val weight: Key[String] = Key.text(
    "data.weight",
    "",
    "The column with the rows' weights, numbers of at least 0, by which their losses are multiplied; empty: all rows count alike"
  )

  val columns: Key[Seq[String]] = Key(
    "data.columns",
    "",
    "names of columns, separated by commas",
    "The columns that hold the row's values, by name (csv: or by number, from 0 on); empty: all but the label's and the weight's",
    words
  )

  /** The columns of a row's labels: one, or those that are named where labels are answers. */
  def labels(settings: Settings): Seq[String] =
    if (!Loss.of(settings).isBinary || settings(label).isEmpty) Seq(settings(label))
    else words(settings(label)).get.distinct

  /** A column by number, negative ones from the end; -1 where it is none. */
  def position(column: String, columns: Int): Int = numbered(column, columns)

  /** The number of the column of this name, or with this text as its number (-1: the last); -1 where there is none. */
  def numberOf(column: String, names: Seq[String]): Int = {
    val byName = names.indexOf(column)
    if (byName >= 0) byName else numbered(column, names.size)
  }

  /** The columns of a file that hold a row's values: those that are asked for, or all of them but the label's. */
  def valueColumns(names: Seq[String], settings: Settings): Seq[String] =
    if (settings(columns).nonEmpty) settings(columns).flatMap(column => names.lift(numberOf(column, names)))
    else {
      val own = labels(settings).map(numberOf(_, names)).toSet
      names.indices.filterNot(own).map(names)
    }

  private def numbered(text: String, columns: Int): Int = Try(text.toInt).toOption match {
    case Some(at) if at >= -columns && at < columns => if (at < 0) columns + at else at
    case _ => -1
  }
}
