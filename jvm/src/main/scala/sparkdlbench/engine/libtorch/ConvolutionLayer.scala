package sparkdlbench.engine.libtorch

final class TorchConvolution extends TorchLayerKind {
  def name = "conv2d"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (PointwiseConvolutionLayer.fits(context)) new PointwiseConvolutionLayer(context)
    else new ConvolutionLayer(context, ProductParts.of)
}

/**
 * A convolution, each part of which is ATen's convolution or a product of matrices.
 *
 * @param parts
 *   which are products, of a pass of so many rows; none where products are computed in bf16
 */
private[libtorch] final class ConvolutionLayer(context: LayerContext, parts: (ConvolutionShape, Long) => ProductParts)
    extends TorchLayer {
  private val shape = ConvolutionShape.of(context)
  private val convolution = new AtenConvolution(context)
  private lazy val products = new ConvolutionProducts(context)
  private var multiplies = false

  def bind(views: LayerViews): BoundLayer = {
    val chosen = if (context.bf16) ProductParts.none else parts(shape, views.rows)
    multiplies ||= chosen.any
    val ways =
      (if (chosen.all) Nil else Seq(convolution.bind(views, chosen))) ++
        (if (chosen.any) Seq(products.bind(views, chosen)) else Nil)
    new BoundLayer {
      def forward(): Unit = ways.foreach(_.forward())
      def backward(): Unit = ways.foreach(_.backward())
      override def close(): Unit = ways.foreach(_.close())
    }
  }

  override def close(): Unit = {
    convolution.close()
    if (multiplies) products.close()
  }
}
