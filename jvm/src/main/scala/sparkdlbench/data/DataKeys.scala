package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Kind, Settings}

import scala.util.Try

/** Keys that several data sources read. */
object DataKeys {
  private val MaxWidth = 1L << 28

  val path: Key[String] =
    Key.text("data.path", "", "The data set: a path, or a URI of any file system that Hadoop knows")
  val classes: Key[Int] = Key.int("data.classes", "10", 2, "Number of classes; labels are 0 until this")

  /** Empty: as the rows are. */
  val shape: Key[Seq[Int]] = {
    val numbers =
      Key.ints("data.shape", "auto", "Shape of one row, such as 784 or 3,32,32; auto: one dimension (synthetic: 784)")
    numbers.copy(
      valid = s"auto, or one or more whole numbers above 0, separated by commas, whose product is at most $MaxWidth",
      parse = text =>
        if (text == "auto") Some(Nil)
        else numbers.parse(text).filter(sizes => sizes.nonEmpty && sizes.map(_.toDouble).product <= MaxWidth),
      kind = Kind.Text
    )
  }

  /** The shape of rows of `width` values; `found` says where that width comes from. */
  def shapeOf(settings: Settings, width: Int, found: String): Seq[Int] = {
    val chosen = settings(shape)
    if (chosen.nonEmpty && chosen.product != width)
      throw new ConfigurationException(
        s"Configuration key 'data.shape' is ${chosen.mkString(",")}, that is ${chosen.product} values, and $found. Set it to a shape of $width values."
      )
    if (chosen.isEmpty) Seq(width) else chosen
  }

  /** None: as the stored values ask for. */
  val scale: Key[Option[Double]] = Key(
    "data.scale",
    "auto",
    "a number, at least 0, or auto",
    "Factor from stored values (synthetic: those made) to features; auto: 1/255 where unsigned bytes are stored, otherwise 1",
    text =>
      if (text == "auto") Some(None) else Try(text.toDouble).toOption.filter(n => n >= 0 && !n.isInfinite).map(Some(_))
  )
  def scaleOf(settings: Settings, kind: ValueKind): Double =
    settings(scale).getOrElse(if (kind == ValueKind.UInt8) 0.00392156862745098 else 1.0)

  /** None: what the executor's heap allows. 0: no limit. */
  val memoryLimit: Key[Option[Long]] = Key(
    "data.memory_limit",
    "auto",
    "auto, or a whole number, at least 0",
    "Heap that the decoded rows may take in an executor, bytes; a larger set is mapped from a file on the executor's local disk. auto: half of the " +
      "executor's heap; 0: no limit",
    text => if (text == "auto") Some(None) else Try(text.toLong).toOption.filter(_ >= 0).map(Some(_))
  )
  val onError: Key[String] =
    Key.choice(
      "data.on_error",
      "fail",
      Seq("fail", "skip"),
      "What a bad record does: end the run, or be left out and counted"
    )

  /** TakenRows says which rows these are. */
  val share: Key[Double] = Key(
    "data.share",
    "1",
    "a number above 0, at most 1",
    "Share of the training rows that the run trains on: the same ones for any seed and workers; test rows are all used",
    text => Try(text.toDouble).toOption.filter(n => n > 0 && n <= 1)
  )

  /** Which of the rows train, and what is done to rows on their way to a model; every source reads these. */
  val changes: Seq[Key[_]] = Seq[Key[_]](share, Normalization.mode) ++ Augmentation.keys

  /** Those of every source that reads rows from files or tables. */
  val pipeline: Seq[Key[_]] = memoryLimit +: changes
}

/** From rows as they are stored to rows as a model gets them: every source's facts and rows come through here. */
private[data] object Pipeline {

  /** @param stored with all training rows that there are */
  def facts(stored: DataFacts, settings: Settings): DataFacts =
    shaped(stored, settings).copy(trainRows = TakenRows.of(stored.trainRows, settings).rows)

  /** The same where nobody has counted the rows. */
  def shaped(stored: DataFacts, settings: Settings): DataFacts =
    stored.copy(
      shape = Augmentation.of(stored.shape, settings).fold(stored.shape)(_.outShape),
      input = stored.input.copy(shape = stored.shape, crop = settings(Augmentation.crop))
    )

  /**
   * @param training
   *   training rows that there are
   * @param shape
   *   of a stored row
   * @param stored
   *   the sets as they are stored, of the training rows those that are taken
   */
  def taking(training: Int, shape: Seq[Int], settings: Settings)(stored: TakenRows => DataSets): DataSets =
    augmented(Normalization.of(stored(TakenRows.of(training, settings)), shape, settings), shape, settings)

  /** The same of sets that a change which is known already normalises. */
  def changed(stored: DataSets, change: Option[Normalization.Change], shape: Seq[Int], settings: Settings): DataSets =
    augmented(change.fold(stored)(Normalization.changed(stored, _)), shape, settings)

  private def augmented(normal: DataSets, shape: Seq[Int], settings: Settings): DataSets = {
    val augmentation = Augmentation.of(shape, settings)
    normal.copy(test = augmentation.fold(normal.test)(_.testing(normal.test)), augmentation = augmentation)
  }

  /** The same of sets that fewer rows would not make smaller. */
  def sets(stored: DataSets, shape: Seq[Int], settings: Settings): DataSets =
    taking(stored.train.rows, shape, settings)(taken => stored.copy(train = taken.in(stored.train)))

  /**
   * Memory for the values of rows: the heap, or a mapped file where all rows are over `data.memory_limit` together.
   *
   * @param all
   *   rows of the training and the test set
   */
  def allocate(rows: Int, rowBytes: Int, all: Long, settings: Settings): RowBlocks =
    if (isMapped(all, rowBytes, settings)) RowBlocks.inFile(rows, rowBytes, Scratch.folder)
    else RowBlocks.onHeap(rows, rowBytes)

  /** Heap that `rows` rows of `rowBytes` bytes take with their labels, which stay there where the values are mapped. */
  def heldBytes(rows: Long, rowBytes: Int, settings: Settings): Long =
    rows * (if (isMapped(rows, rowBytes, settings)) LabelBytes else rowBytes + LabelBytes)

  def isMapped(rows: Long, rowBytes: Int, settings: Settings): Boolean = {
    val limit = settings(DataKeys.memoryLimit).getOrElse(ExecutorHeap.bytes / 2)
    limit > 0 && rows * (rowBytes + LabelBytes) > limit
  }

  private val LabelBytes = 4L
}
