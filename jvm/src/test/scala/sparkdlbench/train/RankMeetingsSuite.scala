package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite

import java.util.UUID
import java.util.concurrent.{Callable, ConcurrentLinkedQueue, CountDownLatch, Executors, TimeUnit, TimeoutException}
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import sparkdlbench.common.RunFailedException

class RankMeetingsSuite extends AnyFunSuite {

  /** The way of one or more ranks to the driver, and what went over it. */
  private class Line extends RendezvousClient {
    private val messages = new ConcurrentLinkedQueue[MeetingMessage]()
    override def ask(message: MeetingMessage): Array[String] = {
      messages.add(message)
      RankMeetings.answer(message)
    }
    override def tell(message: MeetingLeft): Unit = {
      messages.add(message)
      RankMeetings.answer(message): Unit
    }
    def sent: Seq[MeetingMessage] = messages.asScala.toSeq

    /** Whether the rank has left, as the visit in which it came, if it came. */
    def hasLeft(meeting: RankMeeting, rank: Int): Boolean = {
      val visits = sent.filter(each => each.meeting == meeting && each.rank == rank).map(_.visit).distinct
      visits.size == 1 && sent.contains(MeetingLeft(meeting, rank, visits.head))
    }
  }
  private val Visit = 1L

  private def inRun[T](body: String => T): T = {
    val runId = UUID.randomUUID().toString
    RankMeetings.open(runId, attempt = 0)
    try body(runId)
    finally RankMeetings.close(runId)
  }

  private def onRanks[T](size: Int)(body: Int => T): Seq[T] = {
    val threads = Executors.newFixedThreadPool(size)
    val ranks: Seq[Callable[T]] = (0 until size).map(rank => (() => body(rank)): Callable[T])
    try threads.invokeAll(ranks.asJava, 20, TimeUnit.SECONDS).asScala.toSeq.map(_.get)
    finally threads.shutdownNow()
  }

  private def gathered(line: Line, meeting: RankMeeting, rank: Int, text: String): IndexedSeq[String] =
    DriverRendezvous.allGather(line, meeting, rank, text, 20000, isKilled = false).get.get

  test("every rank gets every text, by rank, meeting after meeting, and sends its own once") {
    inRun { runId =>
      for (size <- 1 to 4) {
        val line = new Line
        val texts = onRanks(size) { rank =>
          (1 to 3).map(number => gathered(line, RankMeeting(runId, size, size, number), rank, s"$rank in $number"))
        }
        val expected = (1 to 3).map(number => (0 until size).map(rank => s"$rank in $number"))
        assert(texts == Seq.fill(size)(expected))
        assert(line.sent.count(_.isInstanceOf[MeetingText]) == 3 * size)
        assert(line.sent.count(_.isInstanceOf[MeetingLeft]) == 0)
        assert(RankMeetings.meetings(runId) == 0, "all have read")
      }
    }
  }

  test("a rank asks again after pauses that grow up to a bound, which is higher for many ranks") {
    inRun { runId =>
      def pauses(attempt: Int, ranks: Int, othersAfterMillis: Long): Seq[Long] = {
        val meeting = RankMeeting(runId, attempt, ranks, 1)
        val taken = ArrayBuffer.empty[Long]
        def rest(millis: Long): Unit = {
          taken += millis
          if (taken.sum >= othersAfterMillis)
            for (rank <- 1 until ranks) RankMeetings.answer(MeetingText(meeting, rank, Visit, "here"))
        }
        val line = new Line
        DriverRendezvous.asked(line, meeting, 0, Visit, "here", isOver = false, pause = rest)
        assert(line.sent.size == taken.size + 1)
        taken.toSeq
      }
      assert(pauses(0, 2, othersAfterMillis = 1) == Seq(2L))
      assert(pauses(1, 2, othersAfterMillis = 150) == Seq(2L, 4L, 8L, 16L, 32L, 50L, 50L))
      assert(pauses(2, 100, othersAfterMillis = 600) == Seq(2L, 4L, 8L, 16L, 32L, 64L, 128L, 200L, 200L))
    }
  }

  test("the text of a rank that leaves goes with it: nobody goes on with a rank that is gone") {
    inRun { runId =>
      val line = new Line
      val meeting = RankMeeting(runId, 0, 2, 1)
      assert(line.ask(MeetingText(meeting, 0, Visit, "early")).isEmpty)
      line.tell(MeetingLeft(meeting, 0, Visit))
      assert(RankMeetings.meetings(runId) == 0)
      assert(line.ask(MeetingText(meeting, 1, Visit, "late")).isEmpty)
      assert(line.ask(MeetingPoll(meeting, 1, Visit)).isEmpty)
      assert(RankMeetings.meetings(runId) == 1)
    }
  }

  test("a text that comes after its rank has left is nobody's") {
    inRun { runId =>
      val meeting = RankMeeting(runId, 0, 2, 1)
      assert(RankMeetings.answer(MeetingLeft(meeting, 0, 7L)) == null)
      assert(RankMeetings.answer(MeetingText(meeting, 0, 7L, "of a rank that is gone")) == null)
      assert(RankMeetings.meetings(runId) == 0)
      assert(RankMeetings.answer(MeetingText(meeting, 1, 8L, "here")).isEmpty)
      assert(RankMeetings.answer(MeetingText(meeting, 0, 9L, "again")).toSeq == Seq("again", "here"))
    }
  }

  test("a rank that comes again keeps its place, whatever is still on its way from before") {
    inRun { runId =>
      val meeting = RankMeeting(runId, 0, 2, 1)
      assert(RankMeetings.answer(MeetingText(meeting, 0, 7L, "before")).isEmpty)
      assert(RankMeetings.answer(MeetingText(meeting, 0, 9L, "again")).isEmpty)
      assert(RankMeetings.answer(MeetingPoll(meeting, 0, 7L)) == null)
      assert(RankMeetings.answer(MeetingLeft(meeting, 0, 7L)) == null)
      assert(RankMeetings.answer(MeetingText(meeting, 1, 8L, "here")).toSeq == Seq("again", "here"))
      assert(RankMeetings.answer(MeetingPoll(meeting, 0, 9L)).toSeq == Seq("again", "here"))
      assert(RankMeetings.meetings(runId) == 0)
    }
  }

  test("a rank that is late or killed leaves the meeting, also where the driver does not answer") {
    val never = new CountDownLatch(1)
    val start = System.nanoTime()
    try
      inRun { runId =>
        val silent = new Line {
          override def ask(message: MeetingMessage): Array[String] = {
            super.ask(message): Unit
            never.await()
            null
          }
        }
        for ((line, first) <- Seq((new Line, 1), (silent, 3))) {
          val late = RankMeeting(runId, first, 2, 1)
          assert(DriverRendezvous.allGather(line, late, 0, "here", 500, isKilled = false).isEmpty)
          assert(line.hasLeft(late, 0))
          assert(RankMeetings.meetings(runId) == 0)
          val killed = RankMeeting(runId, first + 1, 2, 1)
          def hasCome: Boolean = RankMeetings.meetings(runId) > 0
          assert(DriverRendezvous.allGather(line, killed, 1, "here", 60000, isKilled = hasCome).isEmpty)
          assert(line.hasLeft(killed, 1))
          assert(RankMeetings.meetings(runId) == 0)
        }
      }
    finally never.countDown()
    assert(System.nanoTime() - start < 20e9)
  }

  test("a rank that nobody waits for any more asks nothing") {
    inRun { runId =>
      val line = new Line
      val meeting = RankMeeting(runId, 0, 2, 1)
      intercept[CancelledException](
        DriverRendezvous.asked(line, meeting, 0, Visit, "here", isOver = true, pause = _ => ())
      )
      assert(line.sent.isEmpty)
    }
  }

  test("ranks of different attempts never meet; a later one ends the meetings of those before it") {
    inRun { runId =>
      val line = new Line
      val before = RankMeeting(runId, 0, 2, 1)
      val now = before.copy(attempt = 1)
      assert(line.ask(MeetingText(before, 0, Visit, "before")).isEmpty)
      assert(line.ask(MeetingText(now, 1, Visit, "now")).isEmpty)
      assert(RankMeetings.meetings(runId) == 1)
      assert(line.ask(MeetingPoll(before, 0, Visit)) == null)
      val message = intercept[RunFailedException](gathered(line, before, 0, "before")).getMessage
      assert(message == "Rank 0 came to meeting 1 of an attempt of the training that was over.")
      assert(gathered(line, now, 0, "now too") == IndexedSeq("now too", "now"))
      assert(line.ask(MeetingPoll(now, 1, Visit)).toSeq == Seq("now too", "now"))
      assert(RankMeetings.meetings(runId) == 0)
    }
  }

  test("meetings of different numbers are different meetings") {
    inRun { runId =>
      val line = new Line
      val first = RankMeeting(runId, 0, 2, 1)
      assert(line.ask(MeetingText(first, 0, Visit, "a")).isEmpty)
      assert(line.ask(MeetingText(first.copy(number = 2), 1, Visit, "b")).isEmpty)
      assert(RankMeetings.meetings(runId) == 2)
    }
  }

  test("after the end of a submission nobody meets, and nothing is left of it") {
    val meeting = inRun { runId =>
      val begun = RankMeeting(runId, 0, 2, 1)
      assert(RankMeetings.answer(MeetingText(begun, 0, Visit, "here")).isEmpty)
      begun
    }
    assert(RankMeetings.answer(MeetingPoll(meeting, 0, Visit)) == null)
    assert(RankMeetings.answer(MeetingText(meeting, 1, Visit, "here")) == null)
    assert(RankMeetings.meetings(meeting.runId) == 0)
    RankMeetings.open(meeting.runId, attempt = 10000)
    try {
      assert(RankMeetings.answer(MeetingText(meeting, 1, Visit, "here")) == null, "a task of the submission before")
      assert(RankMeetings.answer(MeetingText(meeting.copy(attempt = 10000), 1, Visit, "here")).isEmpty)
    } finally RankMeetings.close(meeting.runId)
    assert(RankMeetings.meetings(meeting.runId) == 0)
  }

  test("a driver that does not answer in Spark's time is named") {
    val line = new Line {
      override def ask(message: MeetingMessage): Array[String] = throw new TimeoutException("120 seconds")
    }
    val message = intercept[RunFailedException](gathered(line, RankMeeting("run", 0, 2, 1), 1, "here")).getMessage
    assert(message.startsWith("The driver did not answer rank 1,") && message.contains("spark.rpc.askTimeout"), message)
  }

  test("what is logged of a message does not hold the text") {
    assert(!MeetingText(RankMeeting("run", 0, 2, 1), 0, Visit, "mailbox 4711").toString.contains("4711"))
  }
}
