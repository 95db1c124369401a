package sparkdlbench.optimizer

import sparkdlbench.model.ParameterSpec

/**
 * Values [`from`, `until`) of a model's parameters, in whose hands one optimiser is. Slices cut tensors anywhere.
 *
 * @param layout
 *   of the whole model
 */
final case class ParameterSlice(from: Int, until: Int, layout: Seq[ParameterSpec]) {
  def length: Int = until - from

  /** What learning rate and weight decay of each value are multiplied by. */
  def multipliers: Multipliers = Multipliers
    .of(layout.map { tensor =>
      Multiplier(tensor.offset, tensor.offset + tensor.length, tensor.rate.toFloat, tensor.decay.toFloat)
    })
    .slice(from, until)
}

object ParameterSlice {

  /** A model of one tensor, whole. */
  def tensor(length: Int): ParameterSlice =
    ParameterSlice(0, length, Seq(ParameterSpec("all", Seq(length), 0, "zero")))
}
