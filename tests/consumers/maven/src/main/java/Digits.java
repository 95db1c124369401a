import org.apache.spark.sql.SparkSession;
import sparkdlbench.Trainer;

/** Trains a net on the digits with two workers. Argument: the folder for results. */
public final class Digits {
    public static void main(String[] arguments) {
        SparkSession spark = SparkSession.builder().master("local[2]").appName("digits").getOrCreate();
        Trainer.Fitted fitted = Trainer.builder()
            .set("model.name", "mlp").set("model.hidden", "64").set("data.source", "digits")
            .set("workers", "2").set("batch", "32").set("epochs", "5").set("results", arguments[0])
            .fit(spark);
        System.out.println("test accuracy " + fitted.testAccuracy() + " with " + fitted.weights().size() + " parameters");
        spark.stop();
    }
}
