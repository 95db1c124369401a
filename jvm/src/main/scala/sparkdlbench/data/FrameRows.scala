package sparkdlbench.data

import org.apache.hadoop.fs.Path
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.functions.input_file_name
import org.apache.spark.sql.types._
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

/**
 * Rows of DataFrames as rows of a data set. A row's values are either several numeric columns, or one column: an array of
 * numbers, a vector of MLlib's, or binary (JPEG or PNG files, or with `data.binary` = raw bytes).
 */
private[data] object FrameRows {
  val binary: Key[String] = Key.choice(
    "data.binary",
    "image",
    Seq("image", "raw"),
    "What a binary column holds: JPEG or PNG files, or unsigned bytes"
  )
  val keys: Seq[Key[_]] =
    Seq(
      TableKeys.label,
      TableKeys.weight,
      TableKeys.columns,
      binary,
      TableKeys.labelNames,
      TableKeys.heldAs,
      DataKeys.shape
    )

  /** The session that there is; an application with a Spark context alone gets one over it. Its settings stay as they are. */
  def session(): SparkSession = SparkSession.builder().getOrCreate()

  def reading[T](what: String)(use: => T): T =
    try use
    catch {
      case cause: org.apache.spark.sql.AnalysisException =>
        throw new ConfigurationException(
          s"$what cannot be read: ${cause.getMessage.linesIterator.take(2).mkString(" ")}",
          cause
        )
    }

  /**
   * @param description
   *   of the set, for people
   * @param fromFiles
   *   whether the frames' rows come straight from files, whose names errors then have
   */
  def plan(
      train: DataFrame,
      test: Option[DataFrame],
      identity: Option[Seq[String]],
      description: String,
      fromFiles: Boolean,
      settings: Settings
  ): RecordPlan = {
    val picked = pick(train, settings)
    val layout = layoutOf(picked, description, settings)
    val columns = TableKeys.labels(settings).size
    val converter =
      new RowConverter(layout, columns, valuesOf(picked, settings).map(_.dataType), settings(binary) == "raw")
    def decoded(frame: DataFrame, testing: Boolean) = {
      val rows = s"the ${if (testing) "test" else "training"} rows${if (fromFiles) "" else s" ($description)"}"
      decoding(frame, converter, testing, rows, fromFiles)
    }
    def work(): RDD[DecodeWork] = {
      val parts = decoded(picked, testing = false) +:
        test.map(frame => decoded(same(pick(frame, settings), picked), testing = true)).toSeq
      train.sparkSession.sparkContext.union(parts)
    }
    RecordPlan(layout, identity, ordered = false, () => work(), testsNamed = test.isDefined)
  }

  /** Whether the frame's columns are the same is told before any job. */
  private def same(test: DataFrame, train: DataFrame): DataFrame = {
    def types(frame: DataFrame) = frame.schema.fields.map(field => (field.name, field.dataType.simpleString)).toSeq
    if (types(test) != types(train))
      throw new ConfigurationException(
        s"The rows to test on have the columns ${types(test).mkString(", ")}, the rows to train on ${types(train).mkString(", ")}; they must be the same."
      )
    test
  }

  /** @param what the frame's rows, for people */
  private def decoding(
      frame: DataFrame,
      converter: RowConverter,
      testing: Boolean,
      what: String,
      fromFiles: Boolean
  ): RDD[DecodeWork] = {
    // The file's name comes last, where the converter does not look.
    val named = if (fromFiles) frame.select(frame.col("*"), input_file_name()) else frame
    named.rdd.mapPartitionsWithIndex { (index, rows) =>
      Iterator(
        new DecodeWork(
          testing,
          sink => {
            sink.countedIn = s"partition $index of $what"
            var address = ""
            rows.zipWithIndex.foreach { case (row, number) =>
              if (fromFiles && row.getString(row.length - 1) != address) {
                address = row.getString(row.length - 1)
                sink.file = readable(address)
              }
              converter.send(row, number.toLong, sink)
            }
          }
        )
      )
    }
  }

  /** The path that Spark names as a URI, as DataFiles writes paths. */
  private def readable(address: String): String =
    scala.util.Try(new Path(new java.net.URI(address)).toString).getOrElse(address)

  private def valuesOf(picked: DataFrame, settings: Settings): Seq[StructField] =
    picked.schema.fields.toSeq
      .drop(TableKeys.labels(settings).size)
      .dropRight(if (settings(TableKeys.weight).isEmpty) 0 else 1)

  /** The labels' columns first, then those of the values, and the weight's. */
  private def pick(frame: DataFrame, settings: Settings): DataFrame = {
    val names = frame.columns.toSeq
    def unknown(key: String, name: String) = throw new ConfigurationException(
      s"Configuration key '$key' names the column '$name', which is not there.${Settings.suggestion(name, names)} The columns are ${names.take(20).mkString(", ")}" +
        s"${if (names.size > 20) ", …" else ""}."
    )
    val labels = TableKeys.labels(settings).map { wanted =>
      if (names.contains(wanted)) wanted
      else
        scala.util
          .Try(wanted.toInt)
          .toOption
          .flatMap(at => names.lift(if (at < 0) names.size + at else at))
          .getOrElse(unknown(TableKeys.label.name, wanted))
    }
    val weight = Some(settings(TableKeys.weight)).filter(_.nonEmpty)
    weight.foreach { name =>
      if (!names.contains(name)) unknown(TableKeys.weight.name, name)
      if (labels.contains(name))
        throw new ConfigurationException(
          s"Column '$name' is that of the label (`data.label`) and of the weights (`data.weight`). Name another column in one of them."
        )
      frame.schema(name).dataType match {
        case _: NumericType => ()
        case other =>
          throw new ConfigurationException(
            s"Column '$name' (`data.weight`) is of type ${other.simpleString}; the rows' weights are numbers of at least 0. Cast it, or name another column."
          )
      }
    }
    val values =
      if (settings(TableKeys.columns).nonEmpty) settings(TableKeys.columns)
      else names.filterNot(name => labels.contains(name) || weight.contains(name))
    values.find(!names.contains(_)).foreach(unknown(TableKeys.columns.name, _))
    values.find(name => labels.contains(name) || weight.contains(name)).foreach { name =>
      val (whose, key) =
        if (labels.contains(name)) ("the label's", TableKeys.label) else ("the weights'", TableKeys.weight)
      throw new ConfigurationException(
        s"Configuration key '${TableKeys.columns.name}' names the column '$name', which is $whose (`${key.name}`). Leave it out there, or name another one."
      )
    }
    if (values.isEmpty)
      throw new ConfigurationException(
        s"There is no column besides the label's, '${labels.mkString("', '")}'${weight
            .fold("")(name => s", and the weights', '$name'")}; a row needs at least one value."
      )
    frame.select((labels ++ values ++ weight).map(name => frame.col(s"`${name.replace("`", "``")}`")): _*)
  }

  private def layoutOf(picked: DataFrame, description: String, settings: Settings): RecordLayout = {
    val values = valuesOf(picked, settings)
    val single = values.size == 1 && !RowConverter.isNumber(values.head.dataType)
    values.find(field => !RowConverter.isNumber(field.dataType)).filterNot(_ => single).foreach { field =>
      throw new ConfigurationException(
        s"Column '${field.name}' is of type ${field.dataType.simpleString}. A row's values are either numeric columns, or one column: an array of numbers, a vector or binary. " +
          (if (field.dataType == StringType)
             "Turn words into numbers first (StringIndexer and OneHotEncoder of pyspark.ml.feature), or leave such columns out: "
           else "") +
          s"name those that count with `data.columns`, and the label's with `data.label`."
      )
    }
    val image = single && values.head.dataType == BinaryType && settings(binary) == "image"
    if (image) Images.checkShape(settings)
    val kind =
      if (single && values.head.dataType == BinaryType) ValueKind.UInt8
      else ValueKind.named(settings(TableKeys.heldAs)).get
    val shape =
      if (!single) DataKeys.shapeOf(settings, values.size, s"there are ${values.size} columns of values")
      else if (settings(DataKeys.shape).nonEmpty) settings(DataKeys.shape)
      else Seq(firstLength(picked, values.head.name, description, "; or set `data.shape`"))
    val columns = TableKeys.labels(settings)
    val classes =
      if (columns.size == 1 && isList(picked)) listed(picked, description, settings) else TableKeys.classes(settings)
    RecordLayout(
      shape,
      kind,
      classes,
      description,
      TableKeys.names(settings, classes, columns),
      if (single) Nil else values.map(_.name),
      if (single) values.head.name else "",
      weighted = settings(TableKeys.weight).nonEmpty,
      ignored = TableKeys.ignored(settings),
      binary = TableKeys.isBinary(settings)
    )
  }

  /** Whether the first column, the label's, holds arrays or vectors. */
  private def isList(picked: DataFrame): Boolean = picked.schema.head.dataType match {
    case _: ArrayType | _: UserDefinedType[_] => true
    case _ => false
  }

  /** How many labels a row has, which are a list in one column. */
  private def listed(picked: DataFrame, description: String, settings: Settings): Int = {
    val column = picked.schema.head
    if (!TableKeys.isBinary(settings))
      throw new ConfigurationException(
        s"Column '${column.name}' (`data.label`) is of type ${column.dataType.simpleString}; a list holds several labels of a row, each 0 or 1. Set " +
          "loss.name=binary-cross-entropy, or name a column with one label."
      )
    val count = firstLength(picked, column.name, description, "")
    if (count == 1)
      throw new ConfigurationException(
        s"Column '${column.name}' (`data.label`) of the $description holds lists of one number. Make it a column of numbers: frame.withColumn(…, element_at(…, 1))."
      )
    count
  }

  private def firstLength(picked: DataFrame, column: String, description: String, remedy: String): Int = {
    val first = picked.filter(picked.col(s"`${column.replace("`", "``")}`").isNotNull).limit(1).collect()
    first.headOption
      .flatMap(row => RowConverter.length(row.get(row.fieldIndex(column))))
      .filter(_ > 0)
      .getOrElse(
        throw new ConfigurationException(
          if (picked.isEmpty) Materializer.noRows(description, "")
          else
            s"Column '$column' of the $description is null in each row, or not of a kind that can be read, so its length is not known. Give rows with " +
              s"values: an array of numbers, a vector or binary$remedy."
        )
      )
  }
}

/**
 * Turns rows of a DataFrame (the labels, the values, and where the layout has it the weight) into records.
 *
 * @param columns
 *   how many the labels have: one for each, or one with a list
 * @param types
 *   of the values' columns
 */
private[data] final class RowConverter(layout: RecordLayout, columns: Int, types: Seq[DataType], raw: Boolean)
    extends Serializable {
  import RecordSink.NoOffset
  @transient private lazy val images = new ImageDecoder(layout.shape)
  @transient private lazy val values = new Array[Float](layout.width)
  private val numeric = types.forall(RowConverter.isNumber)

  def send(row: Row, number: Long, sink: RecordSink): Unit = {
    val weight = if (layout.weighted) RowConverter.float(row.get(columns + types.size)) else 1f
    if (!(weight >= 0) || weight.isInfinite)
      sink.bad(
        number,
        NoOffset,
        s"the weight is ${row.get(columns + types.size)}; weights (`data.weight`) are finite numbers of at least 0"
      )
    else {
      sink.weight = weight
      sendValues(row, number, sink)
    }
  }

  private def sendValues(row: Row, number: Long, sink: RecordSink): Unit =
    labelOf(row, sink) match {
      case Left(reason) => sink.bad(number, NoOffset, reason)
      case Right(label) if numeric => sendNumbers(row, label, number, sink)
      case Right(label) =>
        row.get(columns) match {
          case null => sink.bad(number, NoOffset, "the value is null")
          case bytes: Array[Byte] if raw =>
            if (bytes.length == layout.width) sink.bytes(bytes, label, number, NoOffset)
            else sink.bad(number, NoOffset, wrongLength(bytes.length))
          case bytes: Array[Byte] =>
            images
              .decode(bytes)
              .fold(reason => sink.bad(number, NoOffset, s"the image $reason"), sink.bytes(_, label, number, NoOffset))
          case other => sendList(RowConverter.numbers(other), label, number, sink)
        }
    }

  private def sendNumbers(row: Row, label: Int, number: Long, sink: RecordSink): Unit = {
    var column = 0
    while (column < values.length && !row.isNullAt(columns + column)) {
      values(column) = RowConverter.float(row.get(columns + column))
      column += 1
    }
    if (column < values.length)
      sink.bad(number, NoOffset, s"column '${layout.columns.lift(column).getOrElse(column.toString)}' is null")
    else sink.floats(values, label, number, NoOffset)
  }

  private def sendList(found: Array[Float], label: Int, number: Long, sink: RecordSink): Unit =
    if (found.length == layout.width) sink.floats(found, label, number, NoOffset)
    else sink.bad(number, NoOffset, wrongLength(found.length))

  private def wrongLength(found: Int): String =
    s"the row has $found values, and a row of shape ${layout.shape.mkString(" × ")} has ${layout.width}"

  /** What labels must be, and how this one becomes such. */
  private def labelsSay(value: Any): String = {
    val text = Option(value).fold("")(_.toString)
    val remedy =
      if (value == null) "; leave rows without a label out: frame.dropna(subset=[…])"
      else if (layout.labelNames.nonEmpty) ""
      else
        Numbers.double(text) match {
          case None if layout.hasNumbers => ""
          case None =>
            "; number words with StringIndexer of pyspark.ml.feature (and set `data.label` to its output), or name the classes in " +
              "`data.label_names`"
          case Some(number) if !layout.hasNumbers && number == math.rint(number) && number >= layout.classes =>
            "; set `data.classes` to one more than the largest label"
          case _ => ""
        }
    layout.labelsSay(text) + remedy
  }

  /** The first label, the others where the sink takes them; or why there is none. */
  private def labelOf(row: Row, sink: RecordSink): Either[String, Int] = if (layout.labels == 1) oneLabel(row.get(0))
  else {
    val found: Seq[Any] =
      if (columns > 1) (0 until columns).map(row.get)
      else if (row.isNullAt(0)) Seq(null)
      else RowConverter.numbers(row.get(0)).toSeq
    if (found.size != layout.labels && found != Seq(null))
      Left(s"the row has ${found.size} labels, and the first row has ${layout.labels}")
    else {
      val all = found.map(oneLabel)
      all.collectFirst { case wrong @ Left(_) => wrong }.getOrElse {
        sink.otherLabels = all.tail.map(_.getOrElse(0)).toArray
        all.head
      }
    }
  }

  private def oneLabel(value: Any): Either[String, Int] =
    numbered(value).toRight(s"the label is '$value'; ${labelsSay(value)}")

  private def numbered(value: Any): Option[Int] = value match {
    case null => None
    case flag: Boolean if !layout.hasNumbers => Some(if (flag) 1 else 0)
    case flag: Boolean => layout.label(if (flag) "1" else "0")
    case other => layout.label(other.toString)
  }
}

private[sparkdlbench] object RowConverter {
  def isNumber(kind: DataType): Boolean = kind.isInstanceOf[NumericType] || kind == BooleanType

  def float(value: Any): Float = value match {
    case number: java.lang.Number => number.floatValue
    case flag: java.lang.Boolean => if (flag) 1f else 0f
    case _ => Float.NaN
  }

  /** The values of an array or a vector; a null among them is NaN. */
  def numbers(value: Any): Array[Float] = value match {
    case items: scala.collection.Seq[_] => items.iterator.map(float).toArray
    case vector => dense(vector).fold(Array.emptyFloatArray)(_.map(_.toFloat))
  }

  def length(value: Any): Option[Int] = value match {
    case bytes: Array[Byte] => Some(bytes.length)
    case items: scala.collection.Seq[_] => Some(items.size)
    case null => None
    case vector => dense(vector).map(_.length)
  }

  /** A vector of MLlib's, old or new; by name, because sessions without MLlib are to work too. */
  private def dense(vector: Any): Option[Array[Double]] =
    if (!vector.getClass.getName.matches("""org\.apache\.spark\.(ml|mllib)\.linalg\.\w+""")) None
    else
      vector.getClass.getMethod("toArray").invoke(vector) match {
        case values: Array[Double] => Some(values)
        case _ => None
      }
}
