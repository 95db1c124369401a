package sparkdlbench.config

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException

class SettingsSuite extends AnyFunSuite {
  private val workers = Key.int("workers", "2", 1, "ranks")
  private val hidden = Key.ints("model.hidden", "1024", "widths")
  private val blas = Key.choice("engine.blas", "mkl", Seq("mkl", "openblas"), "library")
  private val local = Key.text("host_local", "auto", "mapped memory")
  private val keys = Seq(workers, hidden, blas, local)

  private def complaint(raw: (String, String)*): String =
    intercept[ConfigurationException](Settings.resolve(raw.toMap, keys)).getMessage

  test("what is not set has its default, what is set is parsed") {
    val settings = Settings.resolve(Map("model.hidden" -> "100, 50", "workers" -> "3"), keys)
    assert(settings(workers) === 3)
    assert(settings(hidden) === Seq(100, 50))
    assert(settings(blas) === "mkl")
  }

  test("a key has one TOML name and one Spark name") {
    assert(local.sparkName === "spark.sparkdl.hostLocal")
    assert(Settings.resolve(Map("spark.sparkdl.hostLocal" -> "off"), keys)(local) === "off")
    assert(Settings.resolve(Map("hostLocal" -> "on"), keys)(local) === "on")
    keys.foreach(key => assert(Key.snakeCase(key.sparkName.stripPrefix(Key.SparkPrefix)) === key.name))
  }

  test("an unknown key is refused with the nearest one") {
    val message = complaint("engine.blass" -> "mkl")
    assert(message.contains("'engine.blass'") && message.contains("Did you mean 'engine.blas'?"))
    // Far words are none's typing errors.
    assert(
      complaint(
        "zzzzzzzz" -> "1"
      ) === "Unknown configuration key 'zzzzzzzz'. `sparkdl-bench list keys` describes all keys."
    )
    for (far <- Seq("gpus", "loss", "hosts", "patience", "metrics"))
      assert(!complaint(far -> "1").contains("Did you mean"), far)
    assert(Settings.suggestion("mpi", Seq("tcp", "ucx")) === "")
    assert(Settings.suggestion("z", Seq("x", "y")) === "")
    assert(Settings.suggestion("tcq", Seq("tcp", "ucx")) === " Did you mean 'tcp'?")
  }

  test("swapped letters are recognised, also where another word takes as many edits") {
    assert(complaint("wrokers" -> "2").contains("Did you mean 'workers'?"))
    assert(complaint("wrkoesr" -> "2").contains("Did you mean 'workers'?"))
    assert(Settings.suggestion("epohcs", Seq("batch", "epochs", "seed")) === " Did you mean 'epochs'?")
    assert(Settings.suggestion("tpc", Seq("mpi", "tcp", "ucx")) === " Did you mean 'tcp'?")
    assert(Settings.suggestion("gradient", Seq("mpi", "tcp", "ucx")) === "")
  }

  test("a value that is not valid is refused with the valid ones and the remedy") {
    assert(complaint("engine.blas" -> "openbls").contains("Did you mean 'openblas'?"))
    assert(complaint("workers" -> "0").contains("at least 1"))
    assert(complaint("workers" -> "two").contains("--set workers=VALUE"))
    assert(complaint("model.hidden" -> "100,-5").contains("whole numbers above 0"))
  }

  test("settings checked once can be changed only to what is valid") {
    val settings = Settings.resolve(Map.empty, keys)
    assert(settings.updated(workers, "5")(workers) === 5)
    intercept[ConfigurationException](settings.updated(workers, "-1"))
  }

  test("what is shown has no users of URIs, and all else as it is") {
    val whole = Seq(
      "https://me:pass@host:5000/x" -> "https://(redacted)@host:5000/x",
      "http://token@host" -> "http://(redacted)@host",
      "s3a://user:secret@bucket/rows" -> "s3a://(redacted)@bucket/rows",
      "s3a://user:se/cret@bucket/rows,hdfs://h:9000/b" -> "s3a://(redacted)@bucket/rows,hdfs://h:9000/b"
    )
    for ((given, shown) <- whole) assert(Redaction.text(given) === shown)
    val harmless =
      Seq("abfss://container@account/rows", "hdfs://host:9000/a@b", "spark://host:7077", "/rows@2", "a:b@c", "")
    for (value <- harmless) assert(Redaction.text(value) === value)
    val settings = Settings.resolve(Map("host_local" -> "http://a:b@c"), keys)
    assert(settings(local) === "http://a:b@c" && settings.shown("host_local") === "http://(redacted)@c")
    assert(settings.shown.keySet === settings.entries.keySet)
  }

  test("every key of the project has a valid default, a documentation and a name of its own") {
    val all = RunKeys.all
    assert(all.map(_.name).distinct.size === all.size)
    all.foreach { key =>
      assert(key.parse(key.default).isDefined, s"default of ${key.name}")
      assert(key.doc.nonEmpty)
    }
  }

  test("a variant that does not exist is refused with those that do") {
    val message = intercept[ConfigurationException](RunKeys.resolve(Map("codec" -> "bf61"))).getMessage
    assert(message.contains("codec called 'bf61'") && message.contains("'bf16'") && message.contains("fp32"))
  }

  test("gloo is no transport, and is told where it is") {
    val message = intercept[ConfigurationException](RunKeys.resolve(Map("transport" -> "gloo"))).getMessage
    assert(message.startsWith("There is no transport called 'gloo'. gloo comes with PyTorch"), message)
    for (words <- Seq("the peer pytorch-ddp", "the peer gloo", "tcp, ucx")) assert(message.contains(words), message)
  }
}
