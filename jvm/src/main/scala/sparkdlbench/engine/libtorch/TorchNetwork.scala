package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch
import sparkdlbench.model.{LayerKinds, ModelSpec, ParameterSpec}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer

/**
 * The layers of a model over its flat buffers, and the memory between them, allocated once for the largest number of rows as
 * `MemoryPlan` says. Call within `Tensors.inference`.
 *
 * @param logits
 *   output of the last layer, maxRows × classes
 * @param logitGradients
 *   d loss / d logits, the same shape; written by the loss before `Pass.backward`
 */
private[libtorch] final class TorchNetwork(
    spec: ModelSpec,
    maxRows: Int,
    seed: Long,
    bf16: Boolean,
    parameters: FlatBuffer,
    gradients: FlatBuffer,
    statistics: FlatBuffer,
    logits: FlatBuffer,
    logitGradients: FlatBuffer,
    state: PassState
) extends AutoCloseable {
  private val parameterTensors: Seq[(Tensor, Tensor)] = spec.layout.map { parameter =>
    (
      Tensors.over(parameters, parameter.offset, parameter.shape),
      Tensors.over(gradients, parameter.offset, parameter.shape)
    )
  }
  private val statisticTensors: Seq[Tensor] =
    spec.statistics.map(statistic => Tensors.over(statistics, statistic.offset, statistic.shape))
  private val parametersOfLayer: Seq[Seq[(ParameterSpec, (Tensor, Tensor))]] =
    dealt(spec.layers.map(LayerKinds.parameterShapes(_).size), spec.layout.zip(parameterTensors))
  private val layers: IndexedSeq[TorchLayer] = {
    val ofLayer = dealt(spec.layers.map(LayerKinds.statistics(_).size), spec.statistics.zip(statisticTensors))
    spec.layers.indices.map { index =>
      TorchLayer.of(
        LayerContext(
          spec.layers(index),
          index,
          spec.shapes(spec.graph(index).head),
          maxRows,
          seed,
          bf16,
          parametersOfLayer(index).map { case (parameter, tensors) => TorchLayer.suffix(parameter) -> tensors }.toMap,
          ofLayer(index).map { case (statistic, tensor) => TorchLayer.suffix(statistic) -> tensor }.toMap,
          state
        )
      )
    }
  }

  /** Range of each layer's parameters in the flat buffers; None where it has none. */
  private val ranges: IndexedSeq[Option[(Int, Int)]] = parametersOfLayer.map { own =>
    if (own.isEmpty) None else Some((own.head._1.offset, own.last._1.offset + own.last._1.length))
  }.toIndexedSeq
  private val widths = spec.shapes.map(_.map(_.toLong).product)
  private val plan = new MemoryPlan(
    layers.indices.map { index =>
      val layer = layers(index)
      PlannedLayer(
        spec.graph(index),
        ranges(index).isDefined,
        layer.worksInPlace,
        layer.backwardReadsOutput,
        layer.keepsValues,
        layer.passesGradient
      )
    },
    widths
  )

  /** maxRows × width values each, by the number of the memory. */
  private val valueMemory: Map[Int, Tensor] = plan.memory.distinct
    .filter(_ > 0)
    .map { memory =>
      memory -> (if (memory == plan.memory.last) over(logits) else torch.empty(maxRows.toLong, widths(memory)))
    }
    .toMap
  private val lastGradient = over(logitGradients)
  private val arenas: IndexedSeq[Tensor] = plan.arenas.map(width => torch.empty(maxRows * width))

  /** A pass over `rows` rows whose features lie in `features` (rows × input shape). Costs some allocations: keep it. */
  def pass(rows: Int, features: FloatBuffer): Pass = new Pass(rows, features)

  /** Takes part in what the other ranks exchange in a pass, in their order, without rows. */
  def passWithoutRows(): Unit = {
    layers.foreach(_.forwardWithoutRows())
    layers.reverse.foreach(_.backwardWithoutRows())
  }

  def close(): Unit = {
    layers.foreach(_.close())
    parameterTensors.foreach { case (value, gradient) => value.close(); gradient.close() }
    (statisticTensors ++ valueMemory.values ++ arenas :+ lastGradient).foreach(_.close())
  }

  private def over(buffer: FlatBuffer): Tensor = Tensors.over(buffer, 0, Seq(maxRows, spec.classes))

  private def dealt[T](counts: Seq[Int], all: Seq[T]): Seq[Seq[T]] =
    counts.scanLeft(0)(_ + _).zip(counts).map { case (start, count) => all.slice(start, start + count) }

  /** Forward and backward over a fixed number of rows at a fixed place; all views are made here, none in a step. */
  final class Pass private[TorchNetwork] (rows: Int, features: FloatBuffer) extends AutoCloseable {
    private val input = Tensors.over(features, rows +: spec.inputShape)
    private val values: IndexedSeq[Tensor] = spec.shapes.indices.map { value =>
      if (value == 0) input else Tensors.rows(valueMemory(plan.memory(value)), rows, spec.shapes(value))
    }
    private val valueGradients: IndexedSeq[Tensor] = spec.shapes.indices.map { value =>
      if (plan.memory(value) == plan.memory.last) Tensors.rows(lastGradient, rows, spec.shapes(value))
      else plan.gradientArena(value).map(arena(_, value)).orNull
    }

    /** For each layer the gradients that it writes beside those of other layers: what it writes, and what that is added to. */
    private val added: IndexedSeq[Seq[(Tensor, Tensor)]] = layers.indices.map { index =>
      spec.graph(index).zip(plan.targets(index)).collect { case (value, Some(MemoryPlan.Added(from))) =>
        (arena(from, value), valueGradients(value))
      }
    }
    private val bound: IndexedSeq[BoundLayer] = layers.indices.map { index =>
      val parts = added(index).map(_._1).iterator
      val inputGradients = spec.graph(index).zip(plan.targets(index)).map {
        case (_, None | Some(MemoryPlan.Shared)) => None
        case (_, Some(MemoryPlan.Added(_))) => Some(parts.next())
        case (value, Some(_)) => Some(valueGradients(value))
      }
      layers(index).bind(
        LayerViews(
          spec.graph(index).map(values).toIndexedSeq,
          values(index + 1),
          // Nothing reads it where there is no gradient; layers make views of it all the same.
          Option(valueGradients(index + 1)).getOrElse(values(index + 1)),
          inputGradients.toIndexedSeq
        )
      )
    }

    def forward(): Unit = Tensors.scoped(bound.foreach(_.forward()))

    /** From the last layer to the first; `onReady(from, until)` after a layer's gradients are final and its weights no longer read. */
    def backward(onReady: (Int, Int) => Unit): Unit = {
      var index = bound.size - 1
      while (index >= 0) {
        if (plan.needsGradient(index + 1)) {
          Tensors.scoped {
            bound(index).backward()
            added(index).foreach { case (part, sum) => sum.add_(part) }
          }
          ranges(index).foreach { case (from, until) => onReady(from, until) }
        }
        index -= 1
      }
    }

    def close(): Unit = {
      bound.foreach(_.close())
      (values ++ valueGradients.filter(_ != null) ++ added.flatten.map(_._1)).foreach(_.close())
    }

    private def arena(index: Int, value: Int): Tensor = {
      val flat = arenas(index).narrow(0L, 0L, rows * widths(value))
      try flat.view(Tensors.sizes(rows +: spec.shapes(value)): _*)
      finally flat.close()
    }
  }
}
