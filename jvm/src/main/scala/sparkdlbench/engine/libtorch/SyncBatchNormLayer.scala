package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.{BoolPointer, FloatPointer}
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Tensor, TensorOptional}
import sparkdlbench.model.BatchNormKind
import sparkdlbench.vector.FlatBuffer

/**
 * Batch normalisation over the rows of all ranks, as PyTorch's SyncBatchNorm. C channels, n values of a channel in all ranks' rows:
 * {{{
 * forward   each rank shows: its rows, and of its own values the mean and M2 = Σ (x − mean)²
 *           mean = Σ n_r mean_r / n;  M2 = Σ M2_r + Σ n_r (mean_r − mean)²;  variance = M2 / n     (Chan, Golub and LeVeque 1979)
 * backward  each rank shows: dw = Σ dy · x̂ and db = Σ dy over its own values
 *           dx = w / σ · (dy − Σ db / n − x̂ · Σ dw / n),  x̂ = (x − mean) / σ
 * }}}
 * Sums over ranks are made in their order in double precision: all ranks get the same bits, running statistics too. The weights'
 * gradients are the rank's own, as those of any other layer.
 */
private[libtorch] final class SyncBatchNormLayer(context: LayerContext) extends TorchLayer {
  private val (w, dw) = context.parameters("weight")
  private val (b, db) = context.parameters("bias")
  private val (weight, bias) = (new TensorOptional(w), new TensorOptional(b))
  private val channels = w.size(0).toInt
  private val valuesOfRow = context.inputShape.tail.product.toLong
  private val eps = context.spec.number("eps", BatchNormKind.Eps)
  private val momentum = context.spec.number("momentum", BatchNormKind.Momentum)
  private val runningMean = context.statistics("running_mean")
  private val runningVariance = context.statistics("running_var")
  private val (meanOfAll, varianceOfAll) = (new FlatBuffer(channels), new FlatBuffer(channels))
  private val (meanTensor, varianceTensor) =
    (Tensors.over(meanOfAll, 0, Seq(channels)), Tensors.over(varianceOfAll, 0, Seq(channels)))
  private val (mean, variance) = (new TensorOptional(meanTensor), new TensorOptional(varianceTensor))
  private val (runningMeanOption, runningVarianceOption) =
    (new TensorOptional(runningMean), new TensorOptional(runningVariance))
  private val nothing = new TensorOptional
  private val (slope, shift) = (new FlatBuffer(channels), new FlatBuffer(channels))
  private val alongChannels = Seq(1, channels) ++ context.inputShape.tail.map(_ => 1)
  private val slopeTensor = Tensors.over(slope, 0, alongChannels)
  private val shiftTensor = Tensors.over(shift, 0, alongChannels)
  private val meanAlong = Tensors.over(meanOfAll, 0, alongChannels)
  private val all = new BoolPointer(3L)
  all.put(0L, true).put(1L, true).put(2L, true)
  private val unused = Seq.fill(2)(torch.empty(0L))
  private val unusedOptions = unused.map(new TensorOptional(_))
  private val shown = new Array[Float](BatchNormKind.forwardLength(channels))
  private val shownBack = new Array[Float](BatchNormKind.backwardLength(channels))
  private val read = new Array[Float](channels)

  /** Values of a channel in all ranks' rows of the last forward pass. */
  private var count = 0.0

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = {
      if (context.state.training) {
        val own = torch.batch_norm_update_stats(views.input, nothing, nothing, 0.0)
        shown(0) = views.rows.toFloat
        copy(own.get0(), shown, 1)
        copy(own.get1(), shown, 1 + channels)
        val values = (views.rows * valuesOfRow).toFloat
        (1 + channels until shown.length).foreach(i => shown(i) *= values)
        combine()
      }
      torch.native_batch_norm_out(
        views.output,
        unused.head,
        unused(1),
        views.input,
        weight,
        bias,
        if (context.state.training) mean else runningMeanOption,
        if (context.state.training) variance else runningVarianceOption,
        false,
        0.0,
        eps
      )
      ()
    }

    def backward(): Unit = {
      // With the statistics as constants: dy · w / σ, Σ dy · x̂, Σ dy.
      val own = torch.native_batch_norm_backward(
        views.outputGradient,
        views.input,
        weight,
        mean,
        variance,
        unusedOptions.head,
        unusedOptions(1),
        false,
        eps,
        all
      )
      dw.copy_(own.get1())
      db.copy_(own.get2())
      copy(dw, shownBack, 0)
      copy(db, shownBack, channels)
      shareGradients()
      views.inputGradient.foreach { dx =>
        Tensors.moved(own.get0(), dx)
        dx.addcmul_(views.input.sub(meanAlong), slopeTensor).add_(shiftTensor)
      }
    }
  }

  override def forwardWithoutRows(): Unit = {
    java.util.Arrays.fill(shown, 0f)
    combine()
  }

  override def backwardWithoutRows(): Unit = {
    java.util.Arrays.fill(shownBack, 0f)
    context.state.exchange.gather(shownBack)
    ()
  }

  /** Mean and variance over all ranks, and with them the running ones. */
  private def combine(): Unit = {
    val (gathered, ranks) = (context.state.exchange.gather(shown), context.state.exchange.size)
    def at(rank: Int, place: Int): Double = gathered(rank * shown.length + place).toDouble
    count = (0 until ranks).map(at(_, 0)).sum * valuesOfRow
    var channel = 0
    while (channel < channels) {
      var (sum, squares, rank) = (0.0, 0.0, 0)
      while (rank < ranks) { sum += at(rank, 0) * valuesOfRow * at(rank, 1 + channel); rank += 1 }
      val centre = sum / count
      rank = 0
      while (rank < ranks) {
        val away = at(rank, 1 + channel) - centre
        squares += at(rank, 1 + channels + channel) + at(rank, 0) * valuesOfRow * away * away
        rank += 1
      }
      meanOfAll.floats.put(channel, centre.toFloat)
      varianceOfAll.floats.put(channel, (squares / count).toFloat)
      // The unbiased variance of one value does not exist: such a batch leaves the running statistics as they are.
      if (count > 1) {
        follow(runningMean, channel, centre)
        follow(runningVariance, channel, squares / (count - 1))
      }
      channel += 1
    }
  }

  private def follow(running: Tensor, channel: Int, value: Double): Unit = {
    val place = running.data_ptr_float()
    place.put(channel.toLong, ((1 - momentum) * place.get(channel.toLong) + momentum * value).toFloat)
    ()
  }

  /** What every rank takes from the gradient of its own values: slope · (x − mean) + shift. */
  private def shareGradients(): Unit = {
    val (gathered, ranks) = (context.state.exchange.gather(shownBack), context.state.exchange.size)
    def sum(place: Int): Double =
      (0 until ranks).map(rank => gathered(rank * shownBack.length + place).toDouble).sum
    copy(w, read, 0)
    var channel = 0
    while (channel < channels) {
      val sigma = math.sqrt(varianceOfAll.floats.get(channel).toDouble + eps)
      val scale = read(channel) / sigma
      slope.floats.put(channel, (-scale * sum(channel) / count / sigma).toFloat)
      shift.floats.put(channel, (-scale * sum(channels + channel) / count).toFloat)
      channel += 1
    }
  }

  private def copy(from: Tensor, to: Array[Float], at: Int): Unit = {
    val pointer: FloatPointer = from.data_ptr_float()
    pointer.get(to, at, channels)
    ()
  }

  override def close(): Unit = {
    (Seq(weight, bias, mean, variance, nothing, runningMeanOption, runningVarianceOption) ++ unusedOptions).foreach(
      _.close()
    )
    (Seq(meanTensor, varianceTensor, slopeTensor, shiftTensor, meanAlong) ++ unused).foreach(_.close())
    all.close()
  }
}
