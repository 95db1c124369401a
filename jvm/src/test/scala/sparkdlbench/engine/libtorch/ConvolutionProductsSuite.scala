package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.model.{LayerSpec, Window}

/** Convolutions as products of matrices beside ATen's own, part by part. */
class ConvolutionProductsSuite extends AnyFunSuite {
  import ConvolutionProductsSuite._

  private val cases = Seq(
    ConvolutionShape(inputs = 1, height = 9, width = 8, outputs = 5, Window(5, 1, 0, ceil = false), groups = 1),
    ConvolutionShape(inputs = 3, height = 9, width = 8, outputs = 4, Window(3, 1, 1, ceil = false), groups = 1),
    ConvolutionShape(inputs = 2, height = 9, width = 8, outputs = 6, Window(3, 2, 1, ceil = false), groups = 1),
    ConvolutionShape(inputs = 2, height = 11, width = 7, outputs = 3, Window(4, 3, 2, ceil = false), groups = 1),
    ConvolutionShape(inputs = 4, height = 9, width = 8, outputs = 6, Window(1, 2, 0, ceil = false), groups = 1),
    ConvolutionShape(inputs = 4, height = 5, width = 8, outputs = 6, Window(1, 1, 0, ceil = false), groups = 1),
    ConvolutionShape(inputs = 20, height = 8, width = 8, outputs = 17, Window(3, 1, 1, ceil = false), groups = 1),
    // The window covers the whole input: one pixel.
    ConvolutionShape(inputs = 3, height = 4, width = 4, outputs = 5, Window(4, 1, 0, ceil = false), groups = 1)
  )

  for (each <- cases; bias <- Seq(true, false); rows <- Seq(1, 2, 7); chunkRows <- Seq(1, 3, 100))
    test(s"${described(each)}, bias $bias, $rows rows, at most $chunkRows a chunk: parts are ATen's") {
      val (expected, found) = both(each, bias, rows, chunkRows, partsOf(each))
      val parts = Seq(Output, WeightGradient) ++ (if (bias) Seq(BiasGradient) else Nil) ++
        (if (partsOf(each).inputGradient) Seq(InputGradient) else Nil)
      parts.foreach(part => assertClose(part, found(part), expected(part)))
    }

  for (
    (name, parts, own) <- Seq(
      ("output", ProductParts.none.copy(output = true), Set(Output)),
      ("input gradient", ProductParts.none.copy(inputGradient = true), Set(InputGradient)),
      ("weight gradient", ProductParts.none.copy(weightGradient = true), Set(WeightGradient, BiasGradient))
    )
  ) test(s"a part alone writes what is its own: $name") {
    val each = cases.find(partsOf(_).inputGradient).get
    val (expected, found) = both(each, bias = true, rows = 5, chunkRows = 2, parts)
    Seq(Output, InputGradient, WeightGradient, BiasGradient).foreach { part =>
      if (own(part)) assertClose(part, found(part), expected(part))
      else assert(found(part).forall(_.isNaN), s"$part is written")
    }
    val (_, rest) = both(each, bias = true, rows = 5, chunkRows = 2, parts, restByAten = true)
    Seq(Output, InputGradient, WeightGradient, BiasGradient).foreach { part =>
      assertClose(part, rest(part), expected(part))
    }
  }

  test("a second pass of other rows in the same memory gives what the first would have") {
    for (each <- cases; rows <- Seq(7, 2, 5)) {
      val (expected, found) = both(each, bias = true, rows, chunkRows = 3, partsOf(each), before = Seq(6, 1))
      assertClose(Output, found(Output), expected(Output))
      assertClose(WeightGradient, found(WeightGradient), expected(WeightGradient))
      if (partsOf(each).inputGradient) assertClose(InputGradient, found(InputGradient), expected(InputGradient))
    }
  }

  private def both(
      each: ConvolutionShape,
      bias: Boolean,
      rows: Int,
      chunkRows: Int,
      parts: ProductParts,
      restByAten: Boolean = false,
      before: Seq[Int] = Nil
  ): (Map[String, Seq[Float]], Map[String, Seq[Float]]) = {
    // Loads the libraries.
    EngineFixture.load(EngineFixture.softmax(2, 2), 1).close()
    Tensors.inference {
      val (one, other) = (new Place(each, bias, rows), new Place(each, bias, rows))
      val aten = new AtenConvolution(one.context)
      run(aten.bind(one.views, ProductParts.none))
      aten.close()
      val products =
        new ConvolutionProducts(other.context, chunkRows.toLong * each.terms * each.pixels)
      before.foreach { earlier =>
        val views = new Place(each, bias, earlier).views
        run(products.bind(views, parts))
      }
      if (restByAten) {
        val rest = new AtenConvolution(other.context)
        val ways = Seq(rest.bind(other.views, parts), products.bind(other.views, parts))
        ways.foreach(_.forward())
        ways.foreach(_.backward())
        ways.foreach(_.close())
        rest.close()
      } else run(products.bind(other.views, parts))
      products.close()
      (one.found, other.found)
    }
  }

  private def run(bound: BoundLayer): Unit = {
    bound.forward()
    bound.backward()
    bound.close()
  }

  private def assertClose(part: String, found: Seq[Float], expected: Seq[Float]): Unit = {
    val scale = expected.map(_.abs).max
    assert(scale > 0 && found.size == expected.size, part)
    found.zip(expected).zipWithIndex.foreach { case ((f, e), i) =>
      assert((f - e).abs <= 2e-6 * scale * 5, s"$part, value $i: $f, expected $e")
    }
  }
}

object ConvolutionProductsSuite {
  import EngineFixture.values

  private val Output = "output"
  private val InputGradient = "input gradient"
  private val WeightGradient = "weight gradient"
  private val BiasGradient = "bias gradient"

  private def described(shape: ConvolutionShape): String = {
    import shape._
    s"$inputs × $height × $width to $outputs by ${window.kernel}, stride ${window.stride}, padding ${window.padding}"
  }

  /** All that can be products. */
  private def partsOf(shape: ConvolutionShape): ProductParts =
    ProductParts.every.copy(inputGradient = shape.window.kernel == 1 && shape.window.padding == 0)

  /** A layer's values; what it is to write is NaN before. The same values for the same case and rows. */
  private final class Place(each: ConvolutionShape, bias: Boolean, rows: Int) {
    import each._
    torch.manual_seed(rows.toLong)
    private val weight =
      torch.randn(outputs.toLong, inputs.toLong, window.kernel.toLong, window.kernel.toLong)
    private val biasValues = torch.randn(outputs.toLong)
    private val (weightGradient, biasGradient) = (nan(weight), nan(biasValues))
    private val input = torch.randn(rows.toLong, inputs.toLong, height.toLong, width.toLong)
    private val outputGradient =
      torch.randn(rows.toLong, outputs.toLong, outputHeight.toLong, outputWidth.toLong)
    private val (output, inputGradient) = (nan(outputGradient), nan(input))

    val context: LayerContext = LayerContext(
      LayerSpec(
        "conv",
        "conv2d",
        Map[String, Double](
          "in" -> inputs,
          "out" -> outputs,
          "kernel" -> window.kernel,
          "stride" -> window.stride,
          "padding" -> window.padding,
          "bias" -> (if (bias) 1 else 0)
        )
      ),
      0,
      Seq(inputs, height, width),
      7,
      1L,
      bf16 = false,
      Map("weight" -> (weight -> weightGradient)) ++ (if (bias) Map("bias" -> (biasValues -> biasGradient))
                                                      else Map.empty),
      Map.empty,
      new PassState
    )
    val views: LayerViews = LayerViews(Vector(input), output, outputGradient, Vector(Some(inputGradient)))

    def found: Map[String, Seq[Float]] = Map(
      Output -> values(output),
      InputGradient -> values(inputGradient),
      WeightGradient -> values(weightGradient),
      BiasGradient -> values(biasGradient)
    )

    private def nan(like: Tensor): Tensor = {
      val made = torch.empty_like(like)
      made.fill_(new org.bytedeco.pytorch.Scalar(Float.NaN))
      made
    }
  }
}
