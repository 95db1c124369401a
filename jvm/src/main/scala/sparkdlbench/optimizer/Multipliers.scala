package sparkdlbench.optimizer

/**
 * Values [`from`, `until`) of a vector, whose learning rate and weight decay are those of the run times a factor each (Caffe's
 * `lr_mult` and `decay_mult`).
 */
final case class Multiplier(from: Int, until: Int, rate: Float, decay: Float)

/**
 * Factors for every value of a vector or of a slice of one.
 *
 * @param pieces
 *   consecutive, from 0 on, not empty
 */
final class Multipliers private (val pieces: IndexedSeq[Multiplier]) extends Serializable {
  def length: Int = pieces.lastOption.fold(0)(_.until)

  /** Those of values [from, until), as a vector of their own: slices cut tensors anywhere. */
  def slice(from: Int, until: Int): Multipliers = Multipliers.of(pieces.collect {
    case piece if piece.until > from && piece.from < until =>
      piece.copy(from = math.max(piece.from, from) - from, until = math.min(piece.until, until) - from)
  })
}

object Multipliers {

  /** Of consecutive pieces; neighbours with the same factors become one. */
  def of(pieces: Seq[Multiplier]): Multipliers =
    new Multipliers(pieces.filter(piece => piece.until > piece.from).foldLeft(Vector.empty[Multiplier]) {
      case (before :+ last, next) if last.rate == next.rate && last.decay == next.decay =>
        before :+ last.copy(until = next.until)
      case (before, next) => before :+ next
    })
}
