package sparkdlbench.data

/**
 * How a row as it is stored becomes a row of a model. Whoever predicts does to a row what training did to its test rows: value × `factor`,
 * then `change`, then the window in the centre of an image.
 *
 * @param shape
 *   of a stored row
 * @param columns
 *   the columns of a table that hold a row's values, in this order; one name where one column holds them as a list; empty where the rows
 *   came from no table
 * @param factor
 *   from stored values to features (`data.scale`)
 * @param crop
 *   side of the window, pixels; 0: the whole row
 * @param labels
 *   the names of class 0, 1, …; empty where classes have numbers alone
 * @param change
 *   the normalisation, where there is one
 * @param binary
 *   whether each of the model's outputs is the score of an answer, no or yes, and its sigmoid that answer's probability
 */
final case class RowInput(
    shape: Seq[Int],
    columns: Seq[String] = Nil,
    factor: Double = 1,
    crop: Int = 0,
    labels: Seq[String] = Nil,
    change: Option[Normalization.Change] = None,
    binary: Boolean = false
) {

  /** Values of a stored row. */
  val width: Int = shape.product

  /** Of a row as the model gets it. */
  val modelShape: Seq[Int] = if (crop == 0) shape else Seq(shape.head, crop, crop)

  /** Whether each stored value becomes one value of the model's row. */
  private def isWhole: Boolean = modelShape == shape

  /**
   * @param stored
   *   `width` values, which are overwritten
   * @return
   *   the model's row
   */
  def features(stored: Array[Float]): Array[Float] = {
    var i = 0
    if (factor != 1) while (i < stored.length) { stored(i) = (stored(i) * factor).toFloat; i += 1 }
    change.foreach(_.apply(stored, stored))
    if (isWhole) stored else centre(stored)
  }

  private def centre(row: Array[Float]): Array[Float] = {
    val (height, width) = (shape(1), shape(2))
    val (top, left) = ((height - crop) / 2, (width - crop) / 2)
    val out = new Array[Float](modelShape.product)
    for (channel <- 0 until shape.head; y <- 0 until crop)
      System.arraycopy(row, (channel * height + top + y) * width + left, out, (channel * crop + y) * crop, crop)
    out
  }
}
