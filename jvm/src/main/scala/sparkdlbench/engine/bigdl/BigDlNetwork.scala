package sparkdlbench.engine.bigdl

import sparkdlbench.data.Batch
import sparkdlbench.model.{LayerKinds, LayerSpec, ModelSpec, ParameterSpec}
import sparkdlbench.vector.FlatBuffer

/**
 * The layers of a model along its graph, which we walk ourselves: BigDL's own `Graph` would tell nobody that a layer's
 * gradients are final before all are.
 *
 * @param seed
 *   of dropout masks
 * @param statistics
 *   the engine's running statistics
 */
private[bigdl] final class BigDlNetwork(library: BigDlLibrary, spec: ModelSpec, seed: Long, statistics: FlatBuffer) {

  /** Of value 0, the model's input, and value i + 1, what layer i gives: below the first parameters nobody needs it. */
  private val needsGradient: IndexedSeq[Boolean] =
    spec.layers.zip(spec.graph).foldLeft(Vector(false)) { case (known, (layer, inputs)) =>
      known :+ (LayerKinds.parameterShapes(layer).nonEmpty || inputs.exists(known))
    }

  private val layers: IndexedSeq[BigDlLayer] = spec.layers.indices.map { index =>
    val layer = spec.layers(index)
    val own = BigDlNetwork.tensorsOf(layer, spec.statistics).map { tensor =>
      tensor.name.drop(layer.name.length + 1) -> statistics.floatSlice(tensor.offset, tensor.offset + tensor.length)
    }
    BigDlLayers.create(
      BigDlPlace(
        library,
        layer,
        index,
        BigDlLayers.inputShape(spec, index),
        spec.graph(index).exists(needsGradient),
        seed,
        own.toMap
      )
    )
  }

  /** In the order of the specification, which is that of its parameters. */
  def modules: Seq[BigDlModule] = layers.flatMap(_.modules)

  /** What the last layer makes of the input. */
  def forward(input: BigDlTensor, batch: Batch, training: Boolean): BigDlTensor = {
    val values = new Array[BigDlTensor](layers.size + 1)
    values(0) = input
    layers.indices.foreach { index =>
      values(index + 1) = layers(index).forward(spec.graph(index).map(values(_)), batch, training)
    }
    values.last
  }

  /** From the last layer to the first, after `forward`; `onLayer` is told of each layer whose gradients are final. */
  def backward(last: BigDlTensor, onLayer: Int => Unit): Unit = {
    val gradients = new Array[BigDlTensor](layers.size + 1)
    gradients(layers.size) = last
    layers.indices.reverse.filter(index => needsGradient(index + 1)).foreach { index =>
      val parts = layers(index).backward(gradients(index + 1))
      spec.graph(index).zip(parts).filter { case (value, _) => needsGradient(value) }.foreach { case (value, part) =>
        // To the first part's own memory: the layer that made it has done with it.
        if (gradients(value) == null) gradients(value) = part else gradients(value).add(part)
      }
      onLayer(index)
    }
  }
}

private[bigdl] object BigDlNetwork {

  /** A layer's part of a layout. */
  def tensorsOf(layer: LayerSpec, layout: Seq[ParameterSpec]): Seq[ParameterSpec] =
    layout.filter(tensor => tensor.name.take(tensor.name.lastIndexOf('.')) == layer.name)
}
