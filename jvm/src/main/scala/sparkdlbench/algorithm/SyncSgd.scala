package sparkdlbench.algorithm

/** Synchronous mini-batch SGD: all ranks' gradients are summed in every step before any weight changes. */
final class SyncSgd extends Algorithm {
  def name = "sync-sgd"
  def doc = "Gradients of all workers are summed in every step; the same as one worker with the whole batch"
  def staleness = "0"
}
