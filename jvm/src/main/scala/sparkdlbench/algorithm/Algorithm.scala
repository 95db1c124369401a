package sparkdlbench.algorithm

import sparkdlbench.config.Variant

/** When workers exchange, and what. */
trait Algorithm extends Variant {

  /** Steps by which the weights a gradient was computed on may be behind the newest ones; 0 for synchronous algorithms. */
  def staleness: String
}
