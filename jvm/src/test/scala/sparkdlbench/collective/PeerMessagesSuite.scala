package sparkdlbench.collective

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.OnOneLine

import java.nio.{ByteBuffer, ByteOrder}

class PeerMessagesSuite extends OnOneLine {
  private val arrivals = Seq(InMemoryConditions(), InMemoryConditions(delaySeed = Some(3)))
  private val lengths = Seq(0, 1, 8, 17, 1001)

  /** In pieces so small that messages need many. Goes on until all ranks have what they want. */
  private def run(size: Int, conditions: InMemoryConditions = InMemoryConditions())(
      body: PeerMessages => Int => Seq[PeerMessage]
  ): Unit = {
    val done = new java.util.concurrent.CountDownLatch(size)
    ThreadGroup.run(size, conditions) { (transport: Transport) =>
      val messages = new PeerMessages(transport, 64)
      val own = body(messages)(transport.rank)
      val end = System.nanoTime() + 20000000000L
      var told = false
      while (done.getCount > 0) {
        assert(System.nanoTime() < end, s"rank ${transport.rank} has ${own.map(_.done)}")
        if (!messages.progress()) Thread.`yield`()
        if (!told && own.forall(_.done)) { told = true; done.countDown() }
      }
      assert(messages.isIdle)
    }: Unit
  }

  private def filled(length: Int, value: Int): ByteBuffer = {
    val data = ByteBuffer.allocateDirect(length).order(ByteOrder.nativeOrder())
    (0 until length).foreach(i => data.put(i, (value + i * 7).toByte))
    data
  }

  private def sent(messages: PeerMessages, to: Int, tag: Int, data: ByteBuffer): PeerMessage = {
    val message = new PeerMessage(Some(to), tag, data)
    messages.send(message)
    message
  }

  private def received(messages: PeerMessages, from: Option[Int], tag: Int, data: ByteBuffer): PeerMessage = {
    val message = new PeerMessage(from, tag, data)
    messages.receive(message)
    message
  }

  test("between all ranks at once, of any length, receives before sends and after them") {
    for (conditions <- arrivals; size <- 2 to 4; receiveFirst <- Seq(true, false)) {
      val results = Array.ofDim[ByteBuffer](size, size, lengths.size)
      run(size, conditions) { messages => rank =>
        val others = (0 until size).filter(_ != rank)
        def receive() = for (other <- others; (length, tag) <- lengths.zipWithIndex) yield {
          results(rank)(other)(tag) = ByteBuffer.allocateDirect(length)
          received(messages, Some(other), tag, results(rank)(other)(tag))
        }
        val early = if (receiveFirst) receive() else Nil
        // In another order than the receives.
        val sends =
          for ((length, tag) <- lengths.zipWithIndex.reverse; other <- others)
            yield sent(messages, other, tag, filled(length, 100 * rank + other))
        early ++ sends ++ (if (receiveFirst) Nil else receive())
      }
      for (rank <- 0 until size; other <- 0 until size if rank != other; (length, tag) <- lengths.zipWithIndex)
        assert(results(rank)(other)(tag) == filled(length, 100 * other + rank), s"$other to $rank, $length bytes")
    }
  }

  test("messages of one sender and tag keep their order; from anybody, each sender's once, and it is named") {
    val inOrder = IndexedSeq.fill(20)(ByteBuffer.allocateDirect(100))
    val fromAnybody = IndexedSeq.fill(4)(ByteBuffer.allocateDirect(50))
    @volatile var any = IndexedSeq.empty[PeerMessage]
    run(3, arrivals(1)) { messages => rank =>
      if (rank == 0) {
        any = fromAnybody.map(received(messages, None, 6, _))
        inOrder.map(received(messages, Some(1), 5, _)) ++ any
      } else {
        val numbered = if (rank == 1) inOrder.indices.map(i => sent(messages, 0, 5, filled(100, i))) else Nil
        numbered ++ (0 until 2).map(i => sent(messages, 0, 6, filled(50, 10 * rank + i)))
      }
    }
    inOrder.zipWithIndex.foreach { case (data, i) => assert(data == filled(100, i)) }
    val sources = any.map(_.source)
    assert(sources.sorted == Seq(1, 1, 2, 2))
    for (sender <- 1 to 2)
      assert(
        fromAnybody.zip(sources).filter(_._2 == sender).map(_._1) == Seq(0, 1).map(i => filled(50, 10 * sender + i))
      )
  }

  test("a receive of another length than the send is told so") {
    val error = intercept[RunFailedException](run(2) { messages => rank =>
      if (rank == 0) Seq(sent(messages, 1, 9, filled(8, 0)))
      else Seq(received(messages, Some(0), 9, ByteBuffer.allocateDirect(12)))
    })
    assert(
      Seq("Rank 1 receives 12 bytes from rank 0", "tag 9", "sends 8").forall(error.getMessage.contains),
      error.getMessage
    )
  }
}
