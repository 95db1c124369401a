package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys

class UnreadKeysSuite extends AnyFunSuite {
  private def refusal(settings: (String, String)*): String =
    intercept[ConfigurationException](RunKeys.resolve(settings.toMap)).getMessage

  test("a key that asks for rows that the source does not give is refused, with the sources that read it") {
    val message = refusal("data.source" -> "digits", "data.shape" -> "3,8,8")
    Seq("'data.shape' is '3,8,8'", "'digits' does not read it", "csv", "synthetic").foreach { part =>
      assert(message.contains(part), s"'$part' is not in: $message")
    }
    assert(!message.contains('\n'))
    Seq(
      Seq("data.source" -> "digits", "data.scale" -> "2"),
      Seq("data.decoded_dir" -> "/somewhere"),
      Seq("data.source" -> "synthetic", "data.label_names" -> "a,b"),
      Seq("data.source" -> "idx", "data.path" -> "/x", "data.shape" -> "784"),
      Seq("data.source" -> "cifar10", "data.held_as" -> "uint8"),
      Seq("data.source" -> "libsvm", "data.header" -> "true")
    ).foreach(settings => assert(refusal(settings: _*).contains(s"'${settings.last._1}'")))
  }

  test("files beside a source that reads none are refused") {
    for (source <- Seq("digits", "synthetic", "table"); key <- Seq("data.path", "data.test_path")) {
      val message = refusal("data.source" -> source, key -> "data/mnist")
      assert(message.contains(s"'$key' is 'data/mnist', and the data source '$source' does not read it"), message)
      assert(message.contains("csv"), message)
    }
    assert(refusal("data.path" -> "data/mnist").contains("idx"), "the digits are the default")
    assert(refusal("data.source" -> "idx", "data.path" -> "/x", "data.test_path" -> "/y").contains("'data.test_path'"))
    // What a session's configuration says a run can take back.
    RunKeys.resolve(Map("data.source" -> "digits", "data.path" -> ""))
  }

  test("what says how rows are read and kept may stand beside any source, and so may defaults") {
    RunKeys.resolve(
      Map(
        "data.source" -> "digits",
        "data.cache_dir" -> "/cache",
        "data.memory_limit" -> "1000",
        "data.split_bytes" -> "4096",
        "data.on_error" -> "skip",
        "data.max_skipped" -> "7",
        "data.test_rows" -> "2",
        "data.shape" -> "auto",
        "data.rows" -> "010000",
        "data.header" -> "FALSE",
        "data.classes" -> "10"
      )
    )
    RunKeys.resolve(Map("data.source" -> "digits", "data.normalize" -> "channel", "data.padding" -> "1"))
    RunKeys.resolve(Map("data.source" -> "synthetic", "data.scale" -> "1", "data.flip" -> "true"))
    RunKeys.resolve(Map("data.source" -> "lmdb", "data.path" -> "/x", "data.share" -> "0.5"))
  }
}
