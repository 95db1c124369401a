package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch
import sparkdlbench.engine.FlatBuffer
import sparkdlbench.model.{LayerKinds, ModelSpec, ParameterSpec}

import java.nio.FloatBuffer

/**
 * The layers of a model over its flat buffers, and the memory between them: for each layer an output and a gradient of the
 * output, for the largest number of rows, allocated once. Call within `Tensors.inference`.
 *
 * @param logits
 *   output of the last layer, maxRows × classes
 * @param logitGradients
 *   d loss / d logits, the same shape; written by the loss before `Pass.backward`
 */
private[libtorch] final class TorchNetwork(
    spec: ModelSpec,
    maxRows: Int,
    parameters: FlatBuffer,
    gradients: FlatBuffer,
    logits: FlatBuffer,
    logitGradients: FlatBuffer
) extends AutoCloseable {

  /** Memory of the values between two layers. */
  private final class Boundary(val value: Tensor, val gradient: Tensor)

  private val parameterTensors: Seq[(Tensor, Tensor)] = spec.layout.map { parameter =>
    (
      Tensors.over(parameters, parameter.offset, parameter.shape),
      Tensors.over(gradients, parameter.offset, parameter.shape)
    )
  }
  private val parametersOfLayer: Seq[Seq[(ParameterSpec, (Tensor, Tensor))]] = {
    val counts = spec.layers.map(layer => LayerKinds.parameterShapes(layer).size)
    val all = spec.layout.zip(parameterTensors)
    counts.scanLeft(0)(_ + _).zip(counts).map { case (start, count) => all.slice(start, start + count) }
  }
  private val layers: IndexedSeq[TorchLayer] = spec.layers
    .zip(parametersOfLayer)
    .map { case (layer, own) =>
      TorchLayer.of(layer, own.map { case (parameter, tensors) => TorchLayer.suffix(parameter) -> tensors }.toMap)
    }
    .toIndexedSeq

  /** Range of each layer's parameters in the flat buffers; None where it has none. */
  private val ranges: IndexedSeq[Option[(Int, Int)]] = parametersOfLayer.map { own =>
    if (own.isEmpty) None else Some((own.head._1.offset, own.last._1.offset + own.last._1.length))
  }.toIndexedSeq
  private val firstWithParameters = ranges.indexWhere(_.isDefined)
  private val boundaries: IndexedSeq[Boundary] = makeBoundaries()

  /** A pass over `rows` rows whose features lie in `features` (rows × input shape). Costs some allocations: keep it. */
  def pass(rows: Int, features: FloatBuffer): Pass = new Pass(rows, features)

  def close(): Unit = {
    layers.foreach(_.close())
    (parameterTensors ++ boundaries.distinct.map(boundary => (boundary.value, boundary.gradient))).foreach {
      case (value, gradient) =>
        value.close()
        gradient.close()
    }
  }

  /** Boundary i is the output of layer i. From the last to the first, so that layers in place share the memory of what follows. */
  private def makeBoundaries(): IndexedSeq[Boundary] = {
    val last = new Boundary(over(logits, spec.shapes.last), over(logitGradients, spec.shapes.last))
    layers.indices.init.foldRight(Vector(last)) { (index, following) =>
      val next = layers(index + 1)
      val shared = next.worksInPlace && !layers(index).backwardReadsOutput
      (if (shared) following.head
       else new Boundary(empty(spec.shapes(index + 1)), empty(spec.shapes(index + 1)))) +: following
    }
  }

  private def over(buffer: FlatBuffer, shape: Seq[Int]): Tensor = Tensors.over(buffer, 0, maxRows +: shape)
  private def empty(shape: Seq[Int]): Tensor = torch.empty(Tensors.sizes(maxRows +: shape): _*)

  /** Forward and backward over a fixed number of rows at a fixed place; all views are made here, none in a step. */
  final class Pass private[TorchNetwork] (rows: Int, features: FloatBuffer) extends AutoCloseable {
    private val input = Tensors.over(features, rows +: spec.inputShape)
    private val values = input +: boundaries.map(boundary => Tensors.rows(boundary.value, rows))
    private val valueGradients = boundaries.map(boundary => Tensors.rows(boundary.gradient, rows))
    private val bound: IndexedSeq[BoundLayer] = layers.zipWithIndex.map { case (layer, index) =>
      // Below the first layer that has parameters nobody needs a gradient.
      val inputGradient =
        if (firstWithParameters >= 0 && index > firstWithParameters) Some(valueGradients(index - 1)) else None
      layer.bind(LayerViews(values(index), values(index + 1), valueGradients(index), inputGradient))
    }

    def forward(): Unit = bound.foreach(_.forward())

    /** From the last layer to the first; `onReady(from, until)` after a layer's gradients are final and its weights no longer read. */
    def backward(onReady: (Int, Int) => Unit): Unit = {
      var index = bound.size - 1
      while (firstWithParameters >= 0 && index >= firstWithParameters) {
        bound(index).backward()
        ranges(index).foreach { case (from, until) => onReady(from, until) }
        index -= 1
      }
    }

    def close(): Unit = {
      bound.foreach(_.close())
      (values ++ valueGradients).foreach(_.close())
    }
  }
}
