package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Scalar, ScalarTypeOptional}

final class TorchRelu extends TorchLayerKind {
  def name = "relu"
  private[libtorch] def load(context: LayerContext): TorchLayer = new ReluLayer
}

final class TorchTanh extends TorchLayerKind {
  def name = "tanh"
  private[libtorch] def load(context: LayerContext): TorchLayer = new TanhLayer
}

final class TorchSigmoid extends TorchLayerKind {
  def name = "sigmoid"
  private[libtorch] def load(context: LayerContext): TorchLayer = new SigmoidLayer
}

final class TorchLogSoftmax extends TorchLayerKind {
  def name = "log-softmax"
  private[libtorch] def load(context: LayerContext): TorchLayer = new LogSoftmaxLayer
}

/** An activation whose derivative follows from its output, so it overwrites its input. */
private[libtorch] abstract class InPlaceActivation extends TorchLayer {
  override def worksInPlace: Boolean = true
  override def backwardReadsOutput: Boolean = true
  protected def forward(views: LayerViews): Unit
  protected def backward(views: LayerViews): Unit

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = InPlaceActivation.this.forward(views)
    def backward(): Unit = InPlaceActivation.this.backward(views)
  }
}

/** max(x, 0); dx = dy where the output is above 0, else 0. */
private[libtorch] final class ReluLayer extends InPlaceActivation {
  private val threshold = new Scalar(0.0f)

  protected def forward(views: LayerViews): Unit = { torch.clamp_min_out(views.output, views.input, threshold); () }
  protected def backward(views: LayerViews): Unit =
    views.inputGradient.foreach(torch.threshold_backward_out(_, views.outputGradient, views.output, threshold))
  override def close(): Unit = threshold.close()
}

/** tanh(x); dx = dy · (1 − output²). */
private[libtorch] final class TanhLayer extends InPlaceActivation {
  protected def forward(views: LayerViews): Unit = { torch.tanh_out(views.output, views.input); () }
  protected def backward(views: LayerViews): Unit =
    views.inputGradient.foreach(torch.tanh_backward_out(_, views.outputGradient, views.output))
}

/** 1 / (1 + exp(−x)); dx = dy · output · (1 − output). */
private[libtorch] final class SigmoidLayer extends InPlaceActivation {
  protected def forward(views: LayerViews): Unit = { torch.sigmoid_out(views.output, views.input); () }
  protected def backward(views: LayerViews): Unit =
    views.inputGradient.foreach(torch.sigmoid_backward_out(_, views.outputGradient, views.output))
}

/** log softmax; dx = dy − softmax · Σ dy. */
private[libtorch] final class LogSoftmaxLayer extends TorchLayer {
  private val sameType = new ScalarTypeOptional
  override def backwardReadsOutput: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = { torch.log_softmax_out(views.output, views.input, 1L); () }
    def backward(): Unit = views.inputGradient.foreach { dx =>
      torch.exp_out(dx, views.output)
      dx.mul_(views.outputGradient.sum(Array(1L), true, sameType))
      torch.sub_out(dx, views.outputGradient, dx)
    }
  }

  override def close(): Unit = sameType.close()
}
