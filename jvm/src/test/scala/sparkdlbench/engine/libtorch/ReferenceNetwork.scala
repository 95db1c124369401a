package sparkdlbench.engine.libtorch

import sparkdlbench.model.ModelSpec

/** The same mathematics in plain Scala and double precision: slow, obvious, and independent of libtorch. */
final class ReferenceNetwork(spec: ModelSpec) {

  /** Sum of losses and the gradient of `weight` × that sum; rows of `features` are flat. */
  def lossAndGradient(
      parameters: Array[Double],
      features: Array[Array[Double]],
      labels: Array[Int],
      weight: Double
  ): (Double, Array[Double]) = {
    val gradient = new Array[Double](parameters.length)
    val losses = features.zip(labels).map { case (row, label) => accumulate(parameters, row, label, weight, gradient) }
    (losses.sum, gradient)
  }

  /** Class scores of one row. */
  def logits(parameters: Array[Double], row: Array[Double]): Array[Double] = activations(parameters, row).last

  private def offsets: Seq[Int] = spec.layers.scanLeft(0) { (offset, layer) =>
    offset + sparkdlbench.model.LayerKinds.parameterShapes(layer).map(_._2.product).sum
  }

  private def activations(parameters: Array[Double], row: Array[Double]): Seq[Array[Double]] =
    spec.layers.zip(offsets).scanLeft(row) { case (x, (layer, offset)) =>
      layer.kind match {
        case "relu" => x.map(math.max(_, 0.0))
        case "tanh" => x.map(math.tanh)
        case "linear" =>
          val (in, out) = (layer.options("in").toInt, layer.options("out").toInt)
          Array.tabulate(out) { o =>
            parameters(offset + out * in + o) + (0 until in).map(i => parameters(offset + o * in + i) * x(i)).sum
          }
      }
    }

  private def accumulate(
      p: Array[Double],
      row: Array[Double],
      label: Int,
      weight: Double,
      gradient: Array[Double]
  ): Double = {
    val values = activations(p, row)
    val scores = values.last
    val logSum = scores.max + math.log(scores.map(score => math.exp(score - scores.max)).sum)
    var dy = scores.zipWithIndex.map { case (score, k) =>
      weight * (math.exp(score - logSum) - (if (k == label) 1 else 0))
    }
    for (index <- spec.layers.indices.reverse) {
      val (x, y, offset) = (values(index), values(index + 1), offsets(index))
      dy = spec.layers(index).kind match {
        case "relu" => dy.zip(y).map { case (d, value) => if (value > 0) d else 0.0 }
        case "tanh" => dy.zip(y).map { case (d, value) => d * (1 - value * value) }
        case "linear" =>
          val (in, out) = (x.length, y.length)
          for (o <- 0 until out; i <- 0 until in) gradient(offset + o * in + i) += dy(o) * x(i)
          for (o <- 0 until out) gradient(offset + out * in + o) += dy(o)
          Array.tabulate(in)(i => (0 until out).map(o => dy(o) * p(offset + o * in + i)).sum)
      }
    }
    logSum - scores(label)
  }
}
