package sparkdlbench

import org.apache.spark.{SparkConf, SparkContext}
import org.scalatest.{BeforeAndAfterAll, Suite}
import sparkdlbench.common.Json
import sparkdlbench.train.RunResult

import scala.jdk.CollectionConverters._

/** A Spark application in this JVM, for the tests of one suite. `LocalCluster` has those with executors of their own. */
trait LocalSpark extends BeforeAndAfterAll { this: Suite =>
  protected var sc: SparkContext = _

  protected def cores: Int = 4
  protected def logLevel: String = "ERROR"
  protected def sparkSettings: Seq[(String, String)] = Nil

  override def beforeAll(): Unit = {
    val conf = new SparkConf()
      .setMaster(s"local[$cores]")
      .setAppName(suiteName)
      .set("spark.ui.enabled", "false")
      .set("spark.driver.host", "127.0.0.1")
      .set("spark.driver.bindAddress", "127.0.0.1")
    sc = new SparkContext(conf.setAll(sparkSettings))
    sc.setLogLevel(logLevel)
  }

  override def afterAll(): Unit = sc.stop()

  /** The training loss of each epoch. */
  protected def losses(result: RunResult): Seq[Double] =
    Json.read(result.summary).path("history").elements.asScala.map(_.path("train_loss").asDouble).toSeq
}
