package sparkdlbench.predict

import org.apache.spark.ml.linalg.SQLDataTypes
import org.apache.spark.sparkdlbench.HeldRow
import org.apache.spark.sql.types.{ArrayType, DataType, StructType}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.data.{RowConverter, RowInput}

/**
 * Where a DataFrame's rows have the model's values: one column with a list of them, or a numeric column each.
 *
 * @param places
 *   of the columns in a row
 * @param kinds
 *   their types
 */
private[predict] final class FeatureColumns private (
    names: Seq[String],
    places: Array[Int],
    kinds: Array[DataType],
    isList: Boolean,
    input: RowInput
) extends Serializable {

  /**
   * Reads the row's values, as they are stored.
   *
   * @param found
   *   gets them; of the model's `input.width`
   * @return
   *   why there are none
   */
  def read(row: HeldRow, found: Array[Float]): Option[String] =
    (if (isList) list(row, found) else numbers(row, found)).orElse(infinite(found))

  private def list(row: HeldRow, found: Array[Float]): Option[String] = {
    val (place, kind) = (places.head, kinds.head)
    if (row.isNullAt(place)) Some(s"column '${names.head}' is null")
    else {
      // A sparse vector of another size is not made dense: it may be of any size.
      val size = row.size(place, kind)
      if (size == input.width) { row.read(place, kind, found); None }
      else Some(s"column '${names.head}' has $size values, and the model takes rows of ${FeatureColumns.values(input)}")
    }
  }

  private def numbers(row: HeldRow, found: Array[Float]): Option[String] = {
    var at = 0
    while (at < places.length && !row.isNullAt(places(at))) {
      found(at) = row.float(places(at), kinds(at))
      at += 1
    }
    if (at == places.length) None else Some(s"column '${names(at)}' is null")
  }

  private def infinite(found: Array[Float]): Option[String] = if (HeldRow.areFinite(found)) None
  else {
    // A difference of what is not finite is NaN.
    val wrong = found.indexWhere(value => value - value != 0f)
    val place = if (isList) s"value $wrong of column '${names.head}'" else s"column '${names(wrong)}'"
    Some(s"$place is ${if (isList && found(wrong).isNaN) "null or NaN" else found(wrong).toString}, no finite number")
  }
}

private[predict] object FeatureColumns {

  /** Looks at names and types alone; a ConfigurationException where they are not what the model takes. */
  def of(schema: StructType, asked: Seq[String], input: RowInput): FeatureColumns = {
    val names = if (asked.nonEmpty) asked else if (input.columns.nonEmpty) input.columns else unnamed(schema, input)
    val places = names.map { name =>
      schema.fieldNames.count(_ == name) match {
        case 1 => schema.fieldIndex(name)
        case 0 => missing(name, schema, asked.isEmpty)
        case count =>
          throw new ConfigurationException(
            s"The DataFrame has $count columns with the name '$name', one of the features. Rename or drop the others first."
          )
      }
    }
    val types = places.map(schema(_).dataType)
    val lists = isList(types.head) && names.size == 1
    if (!lists) types.zip(names).find { case (kind, _) => !RowConverter.isNumber(kind) }.foreach { case (kind, name) =>
      throw new ConfigurationException(
        s"Column '$name' is of type ${kind.simpleString}. Features are one column with an array of numbers or a vector, or several numeric columns; the " +
          s"model takes rows of ${values(input)}. " + remedy(kind)
      )
    }
    if (!lists && names.size != input.width)
      throw new ConfigurationException(
        s"The features are ${names.size} numeric column${if (names.size == 1) "" else "s"} (${some(names)}), and the model takes rows of ${values(input)}. " +
          (if (input.columns.size == input.width) s"It was trained on ${some(input.columns)}."
           else "Name as many numeric columns, or one column with an array or a vector of them.")
      )
    new FeatureColumns(names, places.toArray, types.toArray, lists, input)
  }

  /** How many values a row has, for people. */
  def values(input: RowInput): String = {
    val shape = if (input.shape.size == 1) "" else s" (${input.shape.mkString(" × ")})"
    s"${input.width} value${if (input.width == 1) "" else "s"}$shape"
  }

  private def isList(kind: DataType): Boolean = kind match {
    case ArrayType(element, _) => RowConverter.isNumber(element)
    // Of the older MLlib, too, by name.
    case other => other == SQLDataTypes.VectorType || other.getClass.getName.endsWith(".mllib.linalg.VectorUDT")
  }

  private def remedy(kind: DataType): String = kind.typeName match {
    case "string" =>
      "Turn words into numbers as for the training: StringIndexer and OneHotEncoder of pyspark.ml.feature."
    case "binary" => "Decode images into arrays of numbers first, in the order channel, row, column."
    case _ => "Name other columns as features."
  }

  private def unnamed(schema: StructType, input: RowInput): Nothing = throw new ConfigurationException(
    s"The model was not trained on columns with names, so it does not know where a row's ${values(input)} are. Say so with features: one column with an " +
      s"array or a vector, or numeric columns. The DataFrame has ${some(schema.fieldNames.toSeq)}."
  )

  private def missing(name: String, schema: StructType, fromTraining: Boolean): Nothing =
    throw new ConfigurationException(
      s"The DataFrame has no column '$name', " +
        (if (fromTraining)
           "which the model was trained on. Rename its columns as they were then, or name the features: features=…"
         else "which is named as a feature") + s". Its columns are ${some(schema.fieldNames.toSeq)}."
    )

  private def some(names: Seq[String]): String = names.take(20).mkString(", ") + (if (names.size > 20) ", …" else "")
}
