package sparkdlbench.model

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.util.Try

/**
 * Initial weights. Every value is a pure function of (seed, index of the parameter tensor in the layout, index of the value in
 * the tensor), so any engine, rank or language makes the same bits, in any order. All in 64-bit wrapping arithmetic:
 * {{{
 *   key      = mix(seed + G · (parameter + 1))
 *   word(i)  = mix(key + G · (i + 1))
 *   uniform  = 2 · (word(element) >>> 40) · 2⁻²⁴ − 1                       in [−1, 1), exact in fp32
 *   normal   = (Σ of the twelve 16-bit fields of word(3 · element), word(3 · element + 1), word(3 · element + 2)
 *               − 393,210) · 2⁻¹⁶                                          exact in fp32
 *   value    = (uniform or normal) · scale                                 one fp32 multiplication; scale = fp32(…)
 * }}}
 * with G = 0x9E3779B97F4A7C15 and `mix` the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014). The sum of twelve uniform values has mean 0, variance 1 and excess kurtosis −0.1, and lies within
 * ±6: a normal distribution for this purpose, made without logarithms, whose last bit differs between languages. Scales: docs/reference/models.md.
 */
object Initializers {
  private val Gamma = 0x9e3779b97f4a7c15L

  /** Values of one tensor from their index and the tensor's key. */
  private sealed trait Rule { def value(key: Long, element: Int): Float }
  private final case class Constant(constant: Float) extends Rule {
    def value(key: Long, element: Int): Float = constant
  }
  private final case class Uniform(bound: Float) extends Rule {
    def value(key: Long, element: Int): Float = uniform(key, element) * bound
  }
  private final case class Normal(deviation: Float) extends Rule {
    def value(key: Long, element: Int): Float = normal(key, element) * deviation
  }

  /** A variance: `numerator` / `denominator`(fan-in, fan-out). */
  private final case class Variance(numerator: Double, denominator: (Double, Double) => Double)

  /** By name; `-uniform` and `-normal` name the distribution. */
  private val variances: Map[String, Variance] = Map(
    "xavier" -> Variance(2, (fanIn, fanOut) => fanIn + fanOut),
    "he" -> Variance(2, (fanIn, _) => fanIn),
    "he-out" -> Variance(2, (_, fanOut) => fanOut),
    "lecun" -> Variance(1, (fanIn, _) => fanIn),
    "torch" -> Variance(1, (fanIn, _) => 3 * fanIn)
  )
  private val constants: Map[String, Float] = Map("zero" -> 0f, "one" -> 1f)
  private val Number = """(constant|gaussian|uniform)-([0-9.eE-]+)""".r

  def names: Seq[String] = (variances.keys.flatMap(name => Seq(s"$name-uniform", s"$name-normal")) ++ constants.keys ++
    Seq("constant-VALUE", "gaussian-DEVIATION", "uniform-BOUND")).toSeq.sorted

  /** All initial parameters of a model, in its layout; overwrites the first `spec.parameterCount` values of `target`. */
  def fill(spec: ModelSpec, seed: Long, target: FlatBuffer): Unit = fill(spec.layout, seed, target)

  /** What running statistics start from. */
  def fillStatistics(spec: ModelSpec, target: FlatBuffer): Unit = fill(spec.statistics, 0, target)

  /** The value of one element; `parameter` is the tensor's index in the layout, `element` is row-major. */
  def value(initializer: String, shape: Seq[Int], seed: Long, parameter: Int, element: Int): Float =
    values(initializer, shape, seed, parameter)(element)

  /** The values of one tensor by their row-major index. */
  def values(initializer: String, shape: Seq[Int], seed: Long, parameter: Int): Int => Float = {
    val (found, tensorKey) = (rule(initializer, shape), key(seed, parameter))
    element => found.value(tensorKey, element)
  }

  private def fill(layout: Seq[ParameterSpec], seed: Long, target: FlatBuffer): Unit =
    layout.zipWithIndex.foreach { case (parameter, index) => fillParameter(parameter, index, seed, target.floats) }

  private def fillParameter(parameter: ParameterSpec, index: Int, seed: Long, target: FloatBuffer): Unit = {
    val made = values(parameter.initializer, parameter.shape, seed, index)
    var i = 0
    while (i < parameter.length) {
      target.put(parameter.offset + i, made(i))
      i += 1
    }
  }

  private def key(seed: Long, parameter: Int): Long = mix(seed + Gamma * (parameter + 1L))

  private def uniform(key: Long, element: Int): Float =
    2f * ((mix(key + Gamma * (element + 1L)) >>> 40).toFloat * (1f / (1 << 24))) - 1f

  private def normal(key: Long, element: Int): Float = {
    val first = 3L * element + 1
    val sum =
      fields(mix(key + Gamma * first)) + fields(mix(key + Gamma * (first + 1))) + fields(mix(key + Gamma * (first + 2)))
    (sum - 393210).toFloat * (1f / (1 << 16))
  }

  /** Sum of the four 16-bit fields. */
  private def fields(word: Long): Int =
    ((word & 0xffff) + ((word >>> 16) & 0xffff) + ((word >>> 32) & 0xffff) + (word >>> 48)).toInt

  private def mix(value: Long): Long = {
    val first = (value ^ (value >>> 30)) * 0xbf58476d1ce4e5b9L
    val second = (first ^ (first >>> 27)) * 0x94d049bb133111ebL
    second ^ (second >>> 31)
  }

  private def rule(initializer: String, shape: Seq[Int]): Rule = initializer match {
    case name if constants.contains(name) => Constant(constants(name))
    case Number("constant", value) => Constant(number(initializer, value).toFloat)
    case Number("gaussian", deviation) => Normal(number(initializer, deviation).toFloat)
    case Number("uniform", bound) => Uniform(number(initializer, bound).toFloat)
    case name if variances.contains(name.stripSuffix("-uniform")) && name.endsWith("-uniform") =>
      Uniform(scale(name, "-uniform", shape, factor = 3))
    case name if variances.contains(name.stripSuffix("-normal")) && name.endsWith("-normal") =>
      Normal(scale(name, "-normal", shape, factor = 1))
    case other => throw unknown(other)
  }

  private def number(initializer: String, text: String): Double =
    Try(text.toDouble).getOrElse(throw unknown(initializer))

  /**
   * √(factor · variance). Fans as PyTorch counts them: weights are (out, in, receptive field …).
   *
   * @param factor
   *   3 for a uniform distribution's bound, 1 for a deviation
   */
  private def scale(initializer: String, suffix: String, shape: Seq[Int], factor: Double): Float = {
    if (shape.size < 2)
      throw new ConfigurationException(
        s"The initialiser '$initializer' needs a tensor of at least two dimensions, not of shape (${shape.mkString(", ")}); " +
          "use 'zero', 'one' or 'constant-VALUE' for it."
      )
    val receptiveField = shape.drop(2).map(_.toDouble).product
    val variance = variances(initializer.stripSuffix(suffix))
    math
      .sqrt(factor * variance.numerator / variance.denominator(shape(1) * receptiveField, shape.head * receptiveField))
      .toFloat
  }

  private def unknown(initializer: String) = new ConfigurationException(
    s"There is no initialiser called '$initializer'.${Settings.suggestion(initializer, names)} Valid: ${names.mkString(", ")} (such as " +
      "gaussian-0.01); docs/reference/models.md has their formulas."
  )
}
