package sparkdlbench.data

import sparkdlbench.common.{ConfigurationException, SplitMix}
import sparkdlbench.config.{Key, RunKeys, Settings}

/**
 * Random crops and mirrorings of training images, as the CIFAR-10 literature does them (He et al., CVPR 2016, section 4.2):
 * `padding` zeros around the image, a window of `crop` × `crop` from a random place, mirrored every second time. What
 * happens to a row depends on (seed, epoch, row id) alone: not on workers, ranks or the batch. Test images are cropped in
 * their centre. After normalisation, so that zero is the mean where a mean is subtracted.
 */
final class Augmentation(shape: Seq[Int], padding: Int, crop: Int, flip: Boolean, seed: Long) extends Serializable {
  private val (channels, height, width) = (shape.head, shape(1), shape(2))
  private val side = (if (crop > 0) crop else height, if (crop > 0) crop else width)
  val outShape: Seq[Int] = Seq(channels, side._1, side._2)
  private val (rooms, columns) = (height + 2 * padding - side._1 + 1, width + 2 * padding - side._2 + 1)

  /** The training rows of an epoch. */
  def training(store: RowStore, epoch: Int): RowStore = {
    val state = SplitMix.mix(SplitMix.mix(seed ^ Augmentation.Stream) ^ SplitMix.mix(epoch.toLong))
    new ChangedRows(
      store,
      outShape.product,
      (id: Int, row: Array[Float], out: Array[Float]) => {
        val random = new SplitMix(SplitMix.mix(state ^ SplitMix.mix(id.toLong)))
        val (top, left) = (random.nextInt(rooms) - padding, random.nextInt(columns) - padding)
        window(row, out, top, left, flip && random.nextLong() < 0)
      }
    )
  }

  /** The test rows: the window in the centre, without padding. */
  def testing(store: RowStore): RowStore =
    if (outShape == shape) store
    else
      new ChangedRows(
        store,
        outShape.product,
        (_: Int, row: Array[Float], out: Array[Float]) =>
          window(row, out, (height - side._1) / 2, (width - side._2) / 2, mirrored = false)
      )

  private def window(row: Array[Float], out: Array[Float], top: Int, left: Int, mirrored: Boolean): Unit = {
    var (channel, at) = (0, 0)
    while (channel < channels) {
      var y = top
      while (y < top + side._1) {
        val line = (channel * height + y) * width
        val inside = y >= 0 && y < height
        var i = 0
        while (i < side._2) {
          val x = left + (if (mirrored) side._2 - 1 - i else i)
          out(at) = if (inside && x >= 0 && x < width) row(line + x) else 0f
          at += 1
          i += 1
        }
        y += 1
      }
      channel += 1
    }
  }
}

object Augmentation {
  val padding: Key[Int] =
    Key.int("data.padding", "0", 0, "Zeros around a training image before its random crop, pixels a side")
  val crop: Key[Int] =
    Key.int(
      "data.crop",
      "0",
      0,
      "Side of the window taken from each image, pixels: a random place in training, the centre in testing; 0: the image's own size"
    )
  val flip: Key[Boolean] = Key.flag("data.flip", "false", "Mirror every second training image, at random")
  val keys: Seq[Key[_]] = Seq(padding, crop, flip)

  /** Keeps these draws apart from those of the order of the rows. */
  private val Stream = 0x6175676d656e74L

  /** None where the settings ask for none; a ConfigurationException where the rows cannot be cropped so. */
  def of(shape: Seq[Int], settings: Settings): Option[Augmentation] = {
    val (pad, side, mirror) = (settings(padding), settings(crop), settings(flip))
    if (pad == 0 && side == 0 && !mirror) None
    else {
      if (shape.size != 3)
        throw new ConfigurationException(
          s"`data.padding` = $pad, `data.crop` = $side and `data.flip` = $mirror change images of channels × height × width, and " +
            s"a row of this data set is ${shape.mkString(" × ")}. Leave them at 0 and false."
        )
      if (side > math.min(shape(1), shape(2)))
        throw new ConfigurationException(
          s"`data.crop` = $side is larger than the images of ${shape(1)} × ${shape(2)} pixels. Set it to " +
            s"${math.min(shape(1), shape(2))} or less; zeros around training images are `data.padding`."
        )
      Some(new Augmentation(shape, pad, side, mirror, settings(RunKeys.seed)))
    }
  }
}
