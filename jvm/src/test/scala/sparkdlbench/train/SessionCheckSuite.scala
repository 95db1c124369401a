package sparkdlbench.train

import org.apache.spark.sparkdlbench.SparkFacts
import org.apache.spark.{SparkConf, SparkContext}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.PythonApi
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys

/** What a session is refused for before any job. (Slots and dynamic allocation: the doctor's suites.) */
class SessionCheckSuite extends AnyFunSuite {
  private def encryption(sessionEncrypts: Boolean, values: (String, String)*): Unit =
    SessionCheck.encryption(sessionEncrypts, RunKeys.resolve(values.toMap))

  test("a session of another Spark line than the jar's is refused with the jar to use") {
    for ((spark, line) <- Seq("4.0.5" -> "4", "4.3.0-mine" -> "4", "3.5.9" -> "3.5")) SessionCheck.version(spark, line)
    def refusal(spark: String, line: String) =
      intercept[ConfigurationException](SessionCheck.version(spark, line)).getMessage
    val newer = refusal("4.1.4", "3.5")
    assert(newer.contains("built for Spark 3.5.x, and the session runs Spark 4.1.4"))
    assert(newer.contains("whose name says spark-4 ("))
    assert(refusal("3.5.9", "4").contains("whose name says spark-3.5 ("))
    assert(refusal("3.4.4", "3.5").contains("Spark 3.5 and 4.x are supported"))
  }

  test("a stopped session is refused, and no other one is made in its place") {
    val conf = new SparkConf().setMaster("local[1]").setAppName("stopped").set("spark.ui.enabled", "false")
    val sc = new SparkContext(conf.set("spark.driver.host", "127.0.0.1"))
    sc.stop()
    for (
      start <- Seq(() => TrainingRun.prepare(sc, Map.empty): Any, () => PythonApi.start(new java.util.HashMap()): Any)
    )
      assert(
        intercept[ConfigurationException](start()).getMessage.startsWith("The Spark session is stopped, so nothing")
      )
    assert(SparkFacts.active.isEmpty)
  }

  test("an engine that this host lacks is refused before any job, with what to install") {
    def refusal(python: String) = intercept[ConfigurationException](
      SessionCheck.engine(RunKeys.resolve(Map("engine.name" -> "torch", "engine.python" -> python)))
    ).getMessage
    val missing = refusal("/no/such/python")
    assert(missing.contains("'/no/such/python' cannot be started"), missing)
    val script = java.nio.file.Files.createTempFile("python", "")
    java.nio.file.Files.writeString(script, "#!/bin/sh\necho torch\n")
    assert(script.toFile.setExecutable(true))
    val lacking = refusal(script.toString)
    assert(lacking.contains(s"'$script' has no package torch. Every host needs a Python with the package"), lacking)
    SessionCheck.engine(RunKeys.resolve(Map.empty))
  }

  test("in a session that encrypts, a transport that does not is refused unless somebody says so") {
    for (name <- Seq("tcp", "ucx", "mpi")) {
      encryption(sessionEncrypts = false, "transport" -> name)
      val refusal = intercept[ConfigurationException](encryption(sessionEncrypts = true, "transport" -> name))
      assert(refusal.getMessage.contains(s"transport $name would send gradients and weights in the clear"))
      assert(refusal.getMessage.contains("allow_plaintext = true"))
      encryption(sessionEncrypts = true, "transport" -> name, "allow_plaintext" -> "true")
    }
  }

  test("a session whose executors refuse blocks once they are decommissioned is told what that costs block-stream") {
    val moves = "spark.storage.decommission.enabled"
    def note(property: (String, String), transport: String): Option[String] =
      SessionCheck.decommissioning(Map(property).get, RunKeys.resolve(Map("transport" -> transport)))
    val told = note(moves -> "true", "block-stream").getOrElse("")
    Seq(s"$moves=true", "block-stream", "newest checkpoint", "spark.decommission.enabled=true alone", "tcp")
      .foreach(words => assert(told.contains(words), told))
    assert(!told.contains('\n'))
    for (name <- Seq("tcp", "block-manager", "shuffle")) assert(note(moves -> "true", name).isEmpty, name)
    assert(note(moves -> "false", "block-stream").isEmpty)
    assert(note("spark.decommission.enabled" -> "true", "block-stream").isEmpty)
  }

  test("one that encrypts, by itself or through Spark, is not") {
    encryption(sessionEncrypts = true, "transport" -> "tcp", "tcp.tls" -> "true")
    for (name <- Seq("block-stream", "block-manager", "shuffle"))
      encryption(sessionEncrypts = true, "transport" -> name)
  }
}
