package sparkdlbench.collective

/** How values of all ranks become one. */
sealed abstract class Reduction(val name: String)

object Reduction {
  case object Sum extends Reduction("sum")
  case object Product extends Reduction("product")

  /** A not-a-number of any rank wins, as in NumPy. */
  case object Min extends Reduction("min")

  /** A not-a-number of any rank wins, as in NumPy. */
  case object Max extends Reduction("max")

  /** The sum divided by the number of ranks; floating point alone. */
  case object Average extends Reduction("average")

  /** Bit by bit; integers and bool alone, as the two that follow. */
  case object BitAnd extends Reduction("band")
  case object BitOr extends Reduction("bor")
  case object BitXor extends Reduction("bxor")

  val all: Seq[Reduction] = Seq(Sum, Product, Min, Max, Average, BitAnd, BitOr, BitXor)
}
