package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite

import java.util.concurrent.{Callable, Executors, TimeUnit}
import scala.jdk.CollectionConverters._
import sparkdlbench.common.RunFailedException

class LocalRendezvousSuite extends AnyFunSuite {
  private def onRanks[T](size: Int)(body: Int => T): Seq[T] = {
    val threads = Executors.newFixedThreadPool(size)
    val ranks: Seq[Callable[T]] = (0 until size).map(rank => (() => body(rank)): Callable[T])
    try threads.invokeAll(ranks.asJava, 20, TimeUnit.SECONDS).asScala.toSeq.map(_.get)
    finally threads.shutdownNow()
  }

  test("every rank gets every text, by rank, round after round under the same name") {
    for (size <- 1 to 4; _ <- 0 until 3) {
      val gathered =
        onRanks(size)(rank => LocalRendezvous.allGather("again", rank, size, s"text $rank", 20000, isKilled = false))
      assert(gathered.forall(_ == (0 until size).map(rank => s"text $rank")))
    }
  }

  test("a rank that does not come is named, within the time") {
    val message = intercept[RunFailedException](
      LocalRendezvous.allGather("alone", 1, 3, "here", 200, isKilled = false)
    ).getMessage
    assert(message.contains("ranks 0, 2"))
  }

  test("a killed rank does not wait") {
    intercept[CancelledException](LocalRendezvous.allGather("killed", 0, 2, "here", 60000, isKilled = true))
  }

  test("a meeting that is over leaves nothing behind, however it ended") {
    val before = LocalRendezvous.open
    onRanks(3)(rank => LocalRendezvous.allGather("met", rank, 3, "here", 20000, isKilled = false))
    intercept[RunFailedException](LocalRendezvous.allGather("missed", 0, 2, "here", 100, isKilled = false))
    intercept[RunFailedException](LocalRendezvous.allGather("missed", 1, 2, "late", 100, isKilled = false))
    intercept[CancelledException](LocalRendezvous.allGather("ended", 0, 2, "here", 60000, isKilled = true))
    assert(LocalRendezvous.open == before)
  }
}
