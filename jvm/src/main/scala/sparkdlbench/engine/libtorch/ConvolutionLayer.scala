package sparkdlbench.engine.libtorch

final class TorchConvolution extends TorchLayerKind {
  def name = "conv2d"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (PointwiseConvolutionLayer.fits(context)) new PointwiseConvolutionLayer(context)
    else new ConvolutionLayer(context)
}

/** A convolution, each part of which is ATen's convolution or a product of matrices, as `ProductParts` says. */
private[libtorch] final class ConvolutionLayer(context: LayerContext) extends TorchLayer {
  private val shape = ConvolutionShape.of(context)
  private val convolution = new AtenConvolution(context)
  private val products = if (context.bf16 || shape.groups > 1) None else Some(new ConvolutionProducts(context))

  def bind(views: LayerViews): BoundLayer = {
    val parts = products.fold(ProductParts.none)(_ => ProductParts.of(shape, views.rows))
    val ways =
      (if (parts.all) Nil else Seq(convolution.bind(views, parts))) ++
        (if (parts.any) products.map(_.bind(views, parts)) else None)
    new BoundLayer {
      def forward(): Unit = ways.foreach(_.forward())
      def backward(): Unit = ways.foreach(_.backward())
      override def close(): Unit = ways.foreach(_.close())
    }
  }

  override def close(): Unit = {
    convolution.close()
    products.foreach(_.close())
  }
}
