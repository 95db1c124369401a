package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Tensor, TensorVector}

final class TorchConcat extends TorchLayerKind {
  def name = "concat"
  private[libtorch] def load(context: LayerContext): TorchLayer = new ConcatLayer
}

final class TorchAdd extends TorchLayerKind {
  def name = "add"
  private[libtorch] def load(context: LayerContext): TorchLayer = new AddLayer
}

final class TorchFlatten extends TorchLayerKind {
  def name = "flatten"
  private[libtorch] def load(context: LayerContext): TorchLayer = new SameValuesLayer
}

/** Each input's gradient is its part of the output's. */
private[libtorch] final class ConcatLayer extends TorchLayer {
  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val inputs = new TensorVector(views.inputs: _*)
    private val parts: IndexedSeq[Tensor] = {
      val channels = views.inputs.map(_.size(1))
      val starts = channels.scanLeft(0L)(_ + _)
      channels.indices.map(input => views.outputGradient.narrow(1L, starts(input), channels(input)))
    }

    def forward(): Unit = { torch.cat_out(views.output, inputs, 1L); () }
    def backward(): Unit =
      views.inputGradients.zip(parts).foreach { case (dx, part) => dx.foreach(_.copy_(part)) }
    override def close(): Unit = { inputs.close(); parts.foreach(_.close()) }
  }
}

/** Both inputs' gradients are the output's. */
private[libtorch] final class AddLayer extends TorchLayer {
  override def passesGradient: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = { torch.add_out(views.output, views.inputs(0), views.inputs(1)); () }
    def backward(): Unit = views.inputGradients.foreach(_.foreach(_.copy_(views.outputGradient)))
  }
}

/** The same values, under another shape perhaps: nothing is computed where it works in place. */
private[libtorch] final class SameValuesLayer extends TorchLayer {
  override def worksInPlace: Boolean = true
  override def keepsValues: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val flat = views.input.view_as(views.output)
    private val flatGradient = views.inputGradient.map(_.view_as(views.output))
    private val inPlace = Tensors.sameMemory(views.input, views.output)

    def forward(): Unit = if (!inPlace) { views.output.copy_(flat); () }
    def backward(): Unit = if (!inPlace) flatGradient.foreach(_.copy_(views.outputGradient))
    override def close(): Unit = (flat +: flatGradient.toSeq).foreach(_.close())
  }
}
