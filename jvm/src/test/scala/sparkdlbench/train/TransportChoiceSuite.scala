package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys

/** What `transport = auto` takes, without a session. */
class TransportChoiceSuite extends AnyFunSuite {
  private val lacking = Some("the session lacks the plugin")

  private def chosen(obstacle: Option[String], values: (String, String)*): TransportChoice =
    TransportChoice.choose(RunKeys.resolve(values.toMap), obstacle, "executors can push")

  test("auto is the default, and takes streams where the session carries them") {
    val choice = chosen(None)
    assert((choice.name, choice.asked) == (("block-stream", "auto")))
    assert(choice.line.contains("transport block-stream: executors can push"))
  }

  test("without the plugin it takes block-manager and says why") {
    assert(chosen(lacking).line.contains("transport block-manager: the session lacks the plugin"))
  }

  test("jobs that nobody asked for are known as such") {
    assert(chosen(lacking).isSlower && chosen(None, "topology" -> "tree").isSlower)
    assert(!chosen(None).isSlower && !chosen(lacking, "transport" -> "block-manager").isSlower)
  }

  test("a topology of the driver takes the one transport that carries it") {
    assert(chosen(None, "topology" -> "tree").name == "shuffle")
    assert(chosen(lacking, "topology" -> "tree").name == "shuffle")
  }

  test("where none carries the settings in this session, both reasons are told") {
    val message = intercept[ConfigurationException](chosen(lacking, "algorithm" -> "local-sgd")).getMessage
    assert(
      message.startsWith("transport = auto found none that carries these settings in this session. the session lacks")
    )
    assert(message.contains("not 'local-sgd'"))
  }

  test("what no transport carries is refused for its own reason") {
    val settings = Map("on_nonfinite" -> "skip", "codec" -> "topk")
    val message = intercept[ConfigurationException](Combination.check(RunKeys.resolve(settings))).getMessage
    assert(message.startsWith("on_nonfinite = skip leaves a step out on all workers alike, and codec topk keeps what"))
    assert(intercept[ConfigurationException](chosen(None, settings.toSeq: _*)).getMessage == message)
  }

  test("a transport that is named stays, and needs no reason") {
    for (name <- Seq("block-manager", "tcp")) {
      val choice = chosen(lacking, "transport" -> name)
      assert((choice.name, choice.asked, choice.reason, choice.line) == ((name, name, None, None)))
    }
  }

  test("before there is a session the settings alone decide") {
    def name(values: (String, String)*) =
      TransportChoice.beforeStart(RunKeys.resolve(values.toMap))(RunKeys.transport)
    assert(name() == "block-stream" && name("topology" -> "tree") == "shuffle" && name("transport" -> "ucx") == "ucx")
  }
}
