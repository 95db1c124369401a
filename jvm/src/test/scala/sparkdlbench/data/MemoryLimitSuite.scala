package sparkdlbench.data

import org.apache.spark.SparkConf
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

/** Which sets are mapped from disk, and what is counted of them. */
class MemoryLimitSuite extends AnyFunSuite {
  private def limit(text: String*): Settings =
    Settings.resolve(text.map(DataKeys.memoryLimit.name -> _).toMap, RunKeys.own :+ DataKeys.memoryLimit)

  test("by itself a set over half of the executor's heap is mapped, and its labels stay on the heap") {
    val most = ExecutorHeap.bytes / 2 / 100
    assert(!Pipeline.isMapped(most, 96, limit()) && Pipeline.isMapped(most + 1, 96, limit()))
    assert(Pipeline.heldBytes(most, 96, limit()) == most * 100)
    assert(Pipeline.heldBytes(most + 1, 96, limit()) == (most + 1) * 4)
    assert(limit("auto")(DataKeys.memoryLimit).isEmpty)
  }

  test("a number is the limit, and 0 is none") {
    assert(!Pipeline.isMapped(10, 96, limit("1000")) && Pipeline.isMapped(11, 96, limit("1000")))
    assert(Pipeline.heldBytes(11, 96, limit("1000")) == 44)
    assert(!Pipeline.isMapped(1L << 40, 96, limit("0")))
    assert(Pipeline.heldBytes(1L << 40, 96, limit("0")) == 100L << 40)
    Seq("-1", "half", "1g").foreach { text =>
      assert(intercept[ConfigurationException](limit(text)).getMessage.contains("auto, or a whole number"))
    }
  }

  test("driver and executors of a cluster find the heap that the session gives its executors") {
    def heap(entries: (String, String)*) = ExecutorHeap.of(new SparkConf(false).setAll(entries))
    val own = Runtime.getRuntime.maxMemory
    assert(heap("spark.master" -> "local") == own && heap("spark.master" -> "local[4]") == own)
    assert(heap("spark.master" -> "local-cluster[2,1,4096]", "spark.executor.memory" -> "3g") == 3L << 30)
    assert(heap("spark.master" -> "yarn") == 1L << 30)
  }
}
