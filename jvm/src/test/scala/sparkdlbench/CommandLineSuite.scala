package sparkdlbench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunFile

/** The words behind the run file on the jar's command line. (Whole runs through spark-submit: tests/test_doors.py.) */
class CommandLineSuite extends AnyFunSuite {
  private val file = RunFile(Map("name" -> "digits"), Map.empty)

  private def settings(words: String*): Map[String, String] =
    CommandLine.options(words.toList, file, trains = true).settings

  private def refusal(trains: Boolean, words: String*): String =
    intercept[ConfigurationException](CommandLine.options(words.toList, file, trains)).getMessage

  test("--set changes a key, --resume is the key resume, and the last word holds") {
    assert(settings() == file.settings)
    assert(settings("--set", "workers=3") == file.settings + ("workers" -> "3"))
    assert(settings("--resume", "hdfs://host/a=b")("resume") == "hdfs://host/a=b")
    val both = settings("--resume", "one", "--set", "workers=3", "--resume", "two")
    assert(both == file.settings ++ Map("resume" -> "two", "workers" -> "3"))
  }

  test("what is no option, or lacks its value, is refused with the usage") {
    assert(refusal(trains = true, "--resum", "x").startsWith("'--resum' is not an option of run. Usage: run CONF"))
    assert(refusal(trains = true, "--resume").startsWith("'--resume' needs a value"))
    assert(refusal(trains = true, "--set").startsWith("'--set' needs a value"))
    assert(refusal(trains = false, "--resume", "x").startsWith("'--resume' is not an option of data stats"))
  }
}
