package sparkdlbench;

import java.io.IOException;
import java.io.InputStream;
import java.util.Optional;
import java.util.Properties;

/**
 * What spark-submit starts: sees whether this jar was built for the Spark and the Scala that run, then calls CommandLine.
 * In Java because classes of another Scala do not even link: they would end with a NoClassDefFoundError before they could
 * say why.
 */
public final class Main {
  private static final int WRONG_USAGE = 2;

  private Main() {}

  public static void main(String[] arguments) throws IOException {
    Properties built = resource("/sparkdlbench/build.properties");
    Optional<String> refusal =
        mismatch(
            built.getProperty("spark_line", ""),
            built.getProperty("scala", ""),
            resource("/spark-version-info.properties").getProperty("version", ""),
            scala.util.Properties.versionNumberString());
    if (refusal.isPresent()) {
      System.err.println("sparkdl-bench: " + refusal.get());
      System.exit(WRONG_USAGE);
    }
    CommandLine.start(arguments);
  }

  /**
   * What is wrong where a jar does not fit, and nothing where it does.
   *
   * @param builtLine the Spark line that the jar was built for: 3.5 or 4
   * @param builtScala the version of Scala that it was built for
   * @param spark the version of the Spark that runs; empty where it does not tell, which is no reason to refuse it
   * @param scalaVersion the version of the Scala that runs
   */
  static Optional<String> mismatch(
      String builtLine, String builtScala, String spark, String scalaVersion) {
    boolean lineFits = spark.isEmpty() || spark.startsWith(builtLine + ".");
    if (lineFits && binary(builtScala).equals(binary(scalaVersion))) return Optional.empty();
    return Optional.of(
        String.format(
            "This jar of sparkdl-bench was built for Spark %s.x with Scala %s, and Spark %s with Scala %s runs it. Use "
                + "sparkdl-bench-spark-3.5_2.12 with Spark 3.5 (Scala 2.12), and sparkdl-bench-spark-4_2.13 with Spark "
                + "4.x (Scala 2.13); the spark-submit of another Spark lies in that Spark's own bin folder.",
            builtLine, binary(builtScala), spark.isEmpty() ? "of an unknown version" : spark, scalaVersion));
  }

  /** 2.13 of 2.13.16: classes of one binary version link. */
  private static String binary(String version) {
    String[] parts = version.split("\\.");
    return parts.length < 2 ? version : parts[0] + "." + parts[1];
  }

  /** Empty where there is none. */
  private static Properties resource(String name) throws IOException {
    Properties properties = new Properties();
    try (InputStream stream = Main.class.getResourceAsStream(name)) {
      if (stream != null) properties.load(stream);
    }
    return properties;
  }
}
