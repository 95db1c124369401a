package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.BoolPointer
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{LongOptional, Scalar, Tensor, TensorOptional}
import sparkdlbench.model.{BatchNormKind, LocalResponseNormKind}

final class TorchBatchNorm extends TorchLayerKind {
  def name = "batch-norm"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (BatchNormKind.isSynchronized(context.spec)) new SyncBatchNormLayer(context) else new BatchNormLayer(context)
}

final class TorchLocalResponseNorm extends TorchLayerKind {
  def name = "local-response-norm"
  private[libtorch] def load(context: LayerContext): TorchLayer = new LocalResponseNormLayer(context)
}

/** ATen's own kernels; running statistics are written straight to the engine's buffer. */
private[libtorch] final class BatchNormLayer(context: LayerContext) extends TorchLayer {
  private val (w, dw) = context.parameters("weight")
  private val (b, db) = context.parameters("bias")
  private val (weight, bias) = (new TensorOptional(w), new TensorOptional(b))
  private val mean = new TensorOptional(context.statistics("running_mean"))
  private val variance = new TensorOptional(context.statistics("running_var"))
  private val eps = context.spec.number("eps", BatchNormKind.Eps)
  private val momentum = context.spec.number("momentum", BatchNormKind.Momentum)
  private val all = new BoolPointer(3L)
  all.put(0L, true).put(1L, true).put(2L, true)

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val saved = Seq.fill(2)(torch.empty(w.size(0)))
    private val savedOptions = saved.map(new TensorOptional(_))
    private val unused = Seq.fill(2)(torch.empty(0L))

    // The unbiased variance of one value does not exist: such a batch leaves the running statistics as they are.
    private val valuesOfChannel = views.rows * context.inputShape.tail.product
    private val usedMomentum = if (valuesOfChannel > 1) momentum else 0.0
    private val (trainedMean, trainedVariance) =
      if (valuesOfChannel > 1) (mean, variance) else (new TensorOptional, new TensorOptional)

    def forward(): Unit = {
      val written = if (context.state.training) saved else unused
      torch.native_batch_norm_out(
        views.output,
        written.head,
        written(1),
        views.input,
        weight,
        bias,
        if (context.state.training) trainedMean else mean,
        if (context.state.training) trainedVariance else variance,
        context.state.training,
        usedMomentum,
        eps
      )
      ()
    }

    def backward(): Unit = {
      val gradients = torch.native_batch_norm_backward(
        views.outputGradient,
        views.input,
        weight,
        trainedMean,
        trainedVariance,
        savedOptions.head,
        savedOptions(1),
        true,
        eps,
        all
      )
      views.inputGradient.foreach(Tensors.moved(gradients.get0(), _))
      dw.copy_(gradients.get1())
      db.copy_(gradients.get2())
      ()
    }

    override def close(): Unit = (saved ++ savedOptions ++ unused).foreach(_.close())
  }

  override def close(): Unit = Seq(weight, bias, mean, variance, all).foreach(_.close())
}

/**
 * y = x / s^beta with s = k + alpha · (mean of x² over the neighbouring channels, zeros outside);
 * dx = dy / s^beta − 2 · alpha · beta · x · (mean over the neighbours of dy · y / s).
 */
private[libtorch] final class LocalResponseNormLayer(context: LayerContext) extends TorchLayer {
  private val spec = context.spec
  private val size = spec.int("size", LocalResponseNormKind.Size).toLong
  private val alpha = spec.number("alpha", LocalResponseNormKind.Alpha)
  private val beta = spec.number("beta", LocalResponseNormKind.Beta)
  private val factor = new Scalar(alpha)
  private val k = new Scalar(spec.number("k", LocalResponseNormKind.K))
  private val power = new Scalar(-beta)
  private val gradientFactor = new Scalar(2 * alpha * beta)
  private val ownDivisor = new LongOptional

  override def backwardReadsOutput: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val sizes = views.rows +: Tensors.sizes(context.inputShape)
    private val lifted = Array(views.rows, 1L) ++ sizes.tail
    private val s = torch.empty(sizes: _*)

    def forward(): Unit = {
      s.copy_(neighbours(views.input.mul(views.input)))
      s.mul_(factor).add_(k)
      torch.pow_out(views.output, s, power)
      views.output.mul_(views.input)
      ()
    }

    def backward(): Unit = views.inputGradient.foreach { dx =>
      val shared = neighbours(views.outputGradient.mul(views.output).div_(s)).mul_(views.input).mul_(gradientFactor)
      torch.pow_out(dx, s, power)
      dx.mul_(views.outputGradient).sub_(shared)
    }

    private def neighbours(values: Tensor): Tensor = torch
      .avg_pool3d(
        values.view(lifted: _*),
        Array(size, 1L, 1L),
        Array(1L, 1L, 1L),
        Array(size / 2, 0L, 0L),
        false,
        true,
        ownDivisor
      )
      .view(sizes: _*)

    override def close(): Unit = s.close()
  }

  override def close(): Unit = Seq(factor, k, power, gradientFactor, ownDivisor).foreach(_.close())
}
