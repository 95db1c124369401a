import org.apache.spark.sql.SparkSession
import sparkdlbench.Trainer

/** Trains a net on the digits with two workers. Argument: the folder for results. */
object Digits {
  def main(arguments: Array[String]): Unit = {
    val spark = SparkSession.builder().master("local[2]").appName("digits").getOrCreate()
    val fitted = Trainer
      .builder()
      .set("model.name", "mlp")
      .set("model.hidden", "64")
      .set("data.source", "digits")
      .set("workers", "2")
      .set("batch", "32")
      .set("epochs", "5")
      .set("results", arguments(0))
      .fit(spark)
    println(s"test accuracy ${fitted.testAccuracy} with ${fitted.weights.size} parameters")
    spark.stop()
  }
}
