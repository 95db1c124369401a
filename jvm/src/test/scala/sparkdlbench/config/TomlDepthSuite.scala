package sparkdlbench.config

import org.scalatest.funsuite.AnyFunSuite

import java.nio.file.Files
import sparkdlbench.common.ConfigurationException

class TomlDepthSuite extends AnyFunSuite {
  private def read(text: String): RunFile = {
    val file = Files.createTempFile("deep", ".toml")
    try { Files.writeString(file, text); RunFile.read(file.toString) }
    finally Files.delete(file)
  }

  test("TOML that is nested 100,000 deep is refused at once, in every way to nest") {
    val deep = 100000
    val texts = Seq(
      "hidden = " + "[" * deep,
      "hidden = " + "[" * deep + "]" * deep,
      "a = " + "{a = " * deep,
      "a." * deep + "a = 1",
      "[" + "a." * deep + "a]",
      "\"a\"." * deep + "a = 1"
    )
    texts.foreach { text =>
      val start = System.nanoTime()
      assert(intercept[ConfigurationException](read(text)).getMessage.contains("nested more than 64 deep"))
      assert(System.nanoTime() - start < 5000000000L, text.take(20))
    }
  }

  test("brackets and dots in texts and comments nest nothing") {
    val text =
      "name = \"" + "[." * 100 + "\"\nother = '" + "{." * 100 + "' # " + "[." * 100 + "\nmodel.hidden = [1.5, 2.5]\n" +
        "quoted = \"\\\"" + "[" * 100 + "\"\nlong = \"\"\"\n" + "[a.\n" * 100 + "\"\"\"\n"
    assert(read(text).settings("model.hidden") == "1.5,2.5")
  }
}
