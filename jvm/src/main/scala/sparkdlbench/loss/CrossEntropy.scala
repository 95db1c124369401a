package sparkdlbench.loss

import sparkdlbench.config.Key

/**
 * For classes: −log softmax(scores)[label], in nats; its gradient with respect to the scores is softmax(scores) − onehot(label). Each
 * engine has it in its own kernels. With `loss.class_weights` both are multiplied by the weight of the row's class; those of
 * rows with `loss.ignore_label` are 0.
 */
final class CrossEntropy extends Loss {
  def name = "cross-entropy"
  def doc = "Softmax cross-entropy of the class scores, in nats: labels are classes 0, 1, …"
  override def keys: Seq[Key[_]] = Seq(ClassWeights.key, IgnoredLabel.key)
  def isRegression: Boolean = false
}
