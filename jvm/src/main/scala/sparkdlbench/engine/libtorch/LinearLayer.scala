package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch

final class TorchLinear extends TorchLayerKind {
  def name = "linear"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (context.bf16) new Bf16LinearLayer(context) else new LinearLayer(context)
}

/** Y = X·Wᵀ + b; dX = dY·W, dW = dYᵀ·X, db = column sums of dY. X: (rows, in), W: (out, in), Y: (rows, out). */
private[libtorch] final class LinearLayer(context: LayerContext) extends TorchLayer {
  private val (w, dw) = context.parameters("weight")
  private val bias = context.parameters.get("bias")
  private val wTransposed = w.t()
  private val inputs = w.size(1)

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val y = views.output
    private val dy = views.outputGradient
    private val x = views.input.view(-1L, inputs)
    private val dx = views.inputGradient.map(_.view(-1L, inputs))
    private val dyTransposed = dy.t()
    // MKL multiplies into a narrow Y more than twice as fast the other way round: Yᵀ = W·Xᵀ (128 × 1024 by 1024 × 10: 53 µs, not 132).
    private val reversed = if (w.size(0) <= LinearLayer.NarrowOutputs) Some(new Reversed(x, y.size(0))) else None

    def forward(): Unit = reversed match {
      case Some(product) =>
        torch.mm_out(product.yTransposed, w, product.xTransposed)
        bias match {
          case Some((b, _)) => torch.add_out(y, product.y, b)
          case None => y.copy_(product.y)
        }
        ()
      case None =>
        bias match {
          case Some((b, _)) => torch.addmm_out(y, b, x, wTransposed)
          case None => torch.mm_out(y, x, wTransposed)
        }
        ()
    }

    def backward(): Unit = {
      dx.foreach(torch.mm_out(_, dy, w))
      torch.mm_out(dw, dyTransposed, x)
      bias.foreach { case (_, db) => torch.sum_out(db, dy, 0L) }
    }

    override def close(): Unit = {
      reversed.foreach(_.close())
      (Seq(x, dyTransposed) ++ dx).foreach(_.close())
    }
  }

  override def close(): Unit = wTransposed.close()

  /** Yᵀ (out, rows) in memory of its own, and the views of the product. */
  private final class Reversed(x: Tensor, rows: Long) extends AutoCloseable {
    val yTransposed: Tensor = torch.empty(w.size(0), rows)
    val y: Tensor = yTransposed.t()
    val xTransposed: Tensor = x.t()
    def close(): Unit = Seq(y, xTransposed, yTransposed).foreach(_.close())
  }
}

private[libtorch] object LinearLayer {

  /** Layers with at most this many outputs are computed transposed. */
  val NarrowOutputs = 16
}

/** The same products of numbers rounded to bf16; dW and dX are rounded to bf16 once, db is a sum of fp32 numbers. */
private[libtorch] final class Bf16LinearLayer(context: LayerContext) extends TorchLayer {
  import ComputeType.rounded

  private val (w, dw) = context.parameters("weight")
  private val bias = context.parameters.get("bias")

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val x = views.input.view(-1L, w.size(1))
    private val dx = views.inputGradient.map(_.view(-1L, w.size(1)))

    def forward(): Unit = {
      views.output.copy_(rounded(x).mm(rounded(w).t()))
      bias.foreach { case (b, _) => views.output.add_(b) }
    }

    def backward(): Unit = {
      val dy = rounded(views.outputGradient)
      dx.foreach(_.copy_(dy.mm(rounded(w))))
      dw.copy_(dy.t().mm(rounded(x)))
      bias.foreach { case (_, db) => torch.sum_out(db, views.outputGradient, 0L) }
    }

    override def close(): Unit = (x +: dx.toSeq).foreach(_.close())
  }
}
