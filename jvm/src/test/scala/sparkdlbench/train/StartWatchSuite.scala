package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.transport.RankGroups

class StartWatchSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("transport" -> "block-stream", "workers" -> "2")
  private val second = 1000000000L

  private def start(rank: Int, attempt: Int, doing: String) =
    StartReport("run", attempt, rank, s"rank $rank on host h (executor $rank)", doing)

  test("ranks that do not meet are named with what they do; ranks that have met are left alone") {
    var now = 0L
    val watch = new StartWatch(prepared("start_timeout" -> "60").setup, () => now)
    def look(): Option[String] = { watch.look(); watch.complaint }
    now = 1000 * second
    assert(look().isEmpty, "no rank has begun")
    watch.receive(start(0, 0, "opens its data"))
    now += 59 * second
    watch.receive(start(0, 0, "connects to the other ranks"))
    assert(look().isEmpty)
    watch.receive(GroupsReport("run", 0, RankGroups.alone(2), RankGroups.alone(2), None, 0))
    now += 1000 * second
    assert(look().isEmpty, "they have met")
    watch.receive(start(1, 1, "opens its data"))
    watch.receive(start(1, 0, "is late"))
    now += 61 * second
    val message = look().get
    assert(message.contains("60 s") && message.contains("(start_timeout)"), message)
    assert(
      message.contains("rank 0 has not said anything; rank 1 on host h (executor 1) opens its data"),
      message
    )
  }

  test("a run whose ranks do not meet in time fails with their places") {
    val message = intercept[sparkdlbench.common.RunFailedException](
      run("start_timeout" -> "1", "data.source" -> "slow-digits")
    ).getMessage
    assert(message.contains("start_timeout") && message.contains("opens its data"), message)
  }
}
