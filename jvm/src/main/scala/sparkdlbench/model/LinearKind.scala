package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/** y = x·Wᵀ + b; W is (out, in), b is (out). Rows of several dimensions are flattened, row-major. */
final class LinearKind extends LayerKind {
  def name = "linear"
  def doc = "y = x·Wᵀ + b; rows of several dimensions are flattened"
  override def options: Seq[String] = Seq("in", "out", "bias")

  override def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] =
    ("weight" -> Seq(layer.int("out"), layer.int("in"))) +:
      (if (layer.flag("bias", default = true)) Seq("bias" -> Seq(layer.int("out"))) else Nil)

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    val expected = layer.int("in")
    val input = inputs.head
    if (LayerKind.values(input) != expected)
      throw new ConfigurationException(
        s"Layer '${layer.name}' expects rows of $expected values, but is given rows of shape ${input.mkString("×")} " +
          s"(${LayerKind.values(input)} values); set its option 'in' to the number of values before it."
      )
    Seq(layer.int("out"))
  }

  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long =
    2L * layer.int("in") * layer.int("out")
}
