package sparkdlbench.loss

/**
 * For classes: −log softmax(scores)[label], in nats; its gradient with respect to the scores is softmax(scores) − onehot(label). Each
 * engine has it in its own kernels.
 */
final class CrossEntropy extends Loss {
  def name = "cross-entropy"
  def doc = "Softmax cross-entropy of the class scores, in nats: labels are classes 0, 1, …"
  def isRegression: Boolean = false
}
