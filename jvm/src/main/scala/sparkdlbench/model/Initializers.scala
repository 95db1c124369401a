package sparkdlbench.model

import sparkdlbench.ConfigurationException
import sparkdlbench.engine.FlatBuffer

import java.nio.FloatBuffer

/**
 * Initial weights. Every value is a pure function of (seed, index of the parameter tensor in the layout, index of the value in
 * the tensor), so any engine, rank or language makes the same bits, in any order:
 * {{{
 *   key   = mix(seed + G · (parameter + 1))              all in 64-bit wrapping arithmetic
 *   bits  = mix(key + G · (element + 1))
 *   unit  = (bits >>> 40) · 2⁻²⁴                         in [0, 1), exact in fp32
 *   value = (2 · unit − 1) · bound                       one fp32 multiplication; bound = fp32(√…)
 * }}}
 * with G = 0x9E3779B97F4A7C15 and `mix` the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014). Bounds: docs/models.md.
 */
object Initializers {
  private val Gamma = 0x9e3779b97f4a7c15L

  /** Name → half width of the uniform distribution, from (fan-in, fan-out). */
  private val uniformBounds: Map[String, (Double, Double) => Double] = Map(
    "xavier-uniform" -> ((fanIn, fanOut) => math.sqrt(6.0 / (fanIn + fanOut))),
    "he-uniform" -> ((fanIn, _) => math.sqrt(6.0 / fanIn)),
    "lecun-uniform" -> ((fanIn, _) => math.sqrt(3.0 / fanIn))
  )
  private val constants: Map[String, Float] = Map("zero" -> 0f, "one" -> 1f)

  def names: Seq[String] = (uniformBounds.keys ++ constants.keys).toSeq.sorted

  /** All initial parameters of a model, in its layout; overwrites the first `spec.parameterCount` values of `target`. */
  def fill(spec: ModelSpec, seed: Long, target: FlatBuffer): Unit =
    spec.layout.zipWithIndex.foreach { case (parameter, index) => fillParameter(parameter, index, seed, target.floats) }

  /** The value of one element; `parameter` is the tensor's index in the layout, `element` is row-major. */
  def value(initializer: String, shape: Seq[Int], seed: Long, parameter: Int, element: Int): Float =
    constants.getOrElse(initializer, uniform(key(seed, parameter), element) * bound(initializer, shape))

  private def fillParameter(parameter: ParameterSpec, index: Int, seed: Long, target: FloatBuffer): Unit =
    constants.get(parameter.initializer) match {
      case Some(constant) => for (i <- 0 until parameter.length) target.put(parameter.offset + i, constant)
      case None =>
        val tensorKey = key(seed, index)
        val halfWidth = bound(parameter.initializer, parameter.shape)
        var i = 0
        while (i < parameter.length) {
          target.put(parameter.offset + i, uniform(tensorKey, i) * halfWidth)
          i += 1
        }
    }

  private def key(seed: Long, parameter: Int): Long = mix(seed + Gamma * (parameter + 1L))

  private def uniform(key: Long, element: Int): Float =
    2f * ((mix(key + Gamma * (element + 1L)) >>> 40).toFloat * (1f / (1 << 24))) - 1f

  private def mix(value: Long): Long = {
    val first = (value ^ (value >>> 30)) * 0xbf58476d1ce4e5b9L
    val second = (first ^ (first >>> 27)) * 0x94d049bb133111ebL
    second ^ (second >>> 31)
  }

  /** Fans as PyTorch counts them: weights are (out, in, receptive field …). */
  private def bound(initializer: String, shape: Seq[Int]): Float = {
    val formula = uniformBounds.getOrElse(
      initializer,
      throw new ConfigurationException(
        s"There is no initialiser called '$initializer'. Valid: ${names.mkString(", ")}; docs/models.md has their formulas."
      )
    )
    if (shape.size < 2)
      throw new ConfigurationException(
        s"The initialiser '$initializer' needs a tensor of at least two dimensions, not of shape (${shape.mkString(", ")}); " +
          "use 'zero' or 'one' for it."
      )
    val receptiveField = shape.drop(2).map(_.toDouble).product
    formula(shape(1) * receptiveField, shape.head * receptiveField).toFloat
  }
}
