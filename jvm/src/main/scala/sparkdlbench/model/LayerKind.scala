package sparkdlbench.model

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Variant

/**
 * One kind of layer: what it holds and what it does to the shapes of rows. A kind is one class in a file of its own or of its
 * family, found through `ServiceLoader`; an engine that can compute it has a class of its own for it.
 */
trait LayerKind extends Variant {

  /** Names of the options that it reads. */
  def options: Seq[String] = Nil

  /** Least and greatest number of inputs. */
  def arity: (Int, Int) = (1, 1)

  /** Parameter tensors in layout order, as (suffix, shape). */
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = Nil

  /** Running statistics in layout order; only evaluation reads them. */
  def statistics(layer: LayerSpec): Seq[StatisticShape] = Nil

  /**
   * Lengths of the vectors (fp32) that ranks show each other in each training step, in the order of the calls: none for a layer that
   * works on each rank's rows alone.
   */
  def exchanges(layer: LayerSpec): Seq[Int] = Nil

  /** Shape of one output row for input rows of these shapes, as many as `arity` says. */
  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int]

  /** Floating-point operations of the forward pass of one row; a multiplication and its addition are two. */
  def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = LayerKind.values(output)
}

/** A vector of running statistics and the value that it starts from. */
final case class StatisticShape(suffix: String, length: Int, initial: Float)

private[model] object LayerKind {
  def values(shape: Seq[Int]): Long = shape.map(_.toLong).product

  /** Channels, height and width of a layer's input; an error where it has not three dimensions. */
  def image(layer: LayerSpec, input: Seq[Int]): (Int, Int, Int) = input match {
    case Seq(channels, height, width) => (channels, height, width)
    case other =>
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' needs rows of three dimensions (channels × height × width), but is given rows of " +
          s"shape ${other.mkString("×")}. Put it before layers that flatten rows, or give the data set such a shape."
      )
  }

  def mismatch(layer: LayerSpec, option: String, stated: Int, found: Int, what: String): ConfigurationException =
    new ConfigurationException(
      s"Layer '${layer.name}' of kind '${layer.kind}' has the option $option=$stated, but its input rows have $found $what; set $option to $found."
    )
}

/** A kind that works value by value: no parameters, the output's shape is the input's. */
trait ElementwiseKind extends LayerKind {
  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = inputs.head
}
