package sparkdlbench.topology

/**
 * Each rank owns 1/N of the vector: everybody sends the owner its part of the gradient (reduce-scatter), the owner updates
 * its weights and sends them to everybody (all-gather). Bytes a worker sends a step: 2(N-1)/N · S. Optimiser state is
 * sharded at the owner. Source: BigDL (Dai et al., SoCC 2019, section 3.3).
 */
final class Sliced extends Topology {
  def name = "sliced"
  def doc = "Each worker owns 1/N of the weights and of the optimiser's state: reduce-scatter, then all-gather"
}
