package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/** The inputs one after the other along their first dimension (channels). */
final class ConcatKind extends LayerKind {
  def name = "concat"
  def doc = "Its inputs one after the other along the channels"
  override def arity: (Int, Int) = (2, Int.MaxValue)

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    if (inputs.map(_.tail).distinct.size > 1) throw JoiningKinds.unequal(layer, inputs, "all dimensions but the first")
    inputs.map(_.head).sum +: inputs.head.tail
  }
}

/** The sum of its inputs, value by value: a residual connection (He et al., CVPR 2016). */
final class AddKind extends LayerKind {
  def name = "add"
  def doc = "The sum of its inputs, value by value: a residual connection"
  override def arity: (Int, Int) = (2, 2)

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    if (inputs.distinct.size > 1) throw JoiningKinds.unequal(layer, inputs, "shapes")
    inputs.head
  }
}

/** Rows of several dimensions as rows of one, row-major. */
final class FlattenKind extends LayerKind {
  def name = "flatten"
  def doc = "Rows of several dimensions become rows of one, row-major"
  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = Seq(inputs.head.product)
  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = 0
}

private[model] object JoiningKinds {
  def unequal(layer: LayerSpec, inputs: Seq[Seq[Int]], what: String): ConfigurationException =
    new ConfigurationException(
      s"Layer '${layer.name}' of kind '${layer.kind}' joins rows of shapes ${inputs.map(_.mkString("×")).mkString(" and ")} (inputs " +
        s"${layer.inputs.mkString(", ")}); their $what must be equal."
    )
}
