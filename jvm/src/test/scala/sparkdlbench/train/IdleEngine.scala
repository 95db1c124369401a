package sparkdlbench.train

import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, Evaluation, RankGather}

import java.nio.FloatBuffer

/** An engine that computes nothing, for tests of what is done around one. */
trait IdleEngine extends Engine {
  def join(exchange: RankGather): Unit = ()
  def step(batch: Batch, weight: Float, onBucketReady: (Int, Int) => Unit): Double = 0.0
  def evaluate(batch: Batch): Evaluation = Evaluation(0, 0.0, 0)
  def predict(batch: Batch, scores: FloatBuffer): Unit = ()
  def facts: Map[String, String] = Map.empty
  def close(): Unit = ()
}
