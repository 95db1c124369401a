package sparkdlbench.transport.ucx

import org.apache.spark.internal.Logging
import org.openucx.jucx.UcxException
import sparkdlbench.transport.push.{Mailbox, StreamId}
import sparkdlbench.transport.tcp.Handshake

import java.nio.ByteBuffer
import java.util.concurrent.CompletableFuture
import java.util.concurrent.atomic.AtomicLong

/**
 * Both ends of a stream prove that they know the run's secret before a byte of data, by `tcp`'s handshake in four messages. All
 * replies go to the rank's address as Spark has told it, whoever sent. What proves nothing is counted, logged and forgotten.
 *
 * {{{
 *   from → to   Hello       hello (64 bytes, with 32 bytes of nonce c)
 *   to → from   Challenge   rank, tag of c, nonce s, HMAC(secret, "server" ‖ hello ‖ s)
 *   from → to   Proof       rank, tag of c, HMAC(secret, "client" ‖ hello ‖ s)
 *   to → from   Accepted    rank, tag of c, HMAC(secret, "accepted" ‖ hello ‖ s)
 * }}}
 * The stream's number, which every frame carries, is of HMAC(secret, "stream" ‖ hello ‖ s): nobody else can know it before it is used.
 * Of greetings that wait for their proof the eldest are forgotten where there are too many, so a rank may have to greet more than once.
 * Everything here but `entry` runs on the loop's thread.
 *
 * @param rank
 *   whose handshakes these are
 * @param ranks
 *   of the group
 * @param tell
 *   sends a rank a message of a kind; throws a UcxException where there is no way to it
 * @param admit
 *   makes room for a stream: its number, the rank it comes from, the mailbox it is for
 */
private[ucx] final class UcxHandshakes(
    rank: Int,
    ranks: Int,
    tell: (Int, Int, Array[Byte]) => Unit,
    handshake: Handshake,
    admit: (Long, Int, Mailbox) => Unit
) extends Logging {
  import UcxHandshakes._
  private val leaving = new java.util.HashMap[Long, Leaving]
  private val arriving = new java.util.LinkedHashMap[Long, Arriving] {
    override def removeEldestEntry(eldest: java.util.Map.Entry[Long, Arriving]): Boolean =
      size() > MaxStrangers + ranks
  }
  private val refusals = new AtomicLong

  /** Messages that were refused so far. */
  def refused: Long = refusals.get

  /** A stream that shall begin. */
  def entry(stream: StreamId): Leaving = new Leaving(stream.to, handshake.hello(stream, 0, 1))

  /** Greets the rank that a stream is for; again, until it answers. */
  def greet(one: Leaving): Unit = if (!one.done.isDone) {
    leaving.put(tag(one.hello), one)
    tell(one.to, Hello, one.hello)
  }

  /** Nobody waits for the stream any more. */
  def forget(one: Leaving): Unit = leaving.remove(tag(one.hello)): Unit

  def receive(kind: Int, bytes: ByteBuffer): Unit = kind match {
    case Hello if bytes.remaining == Handshake.HelloBytes => greet(take(bytes, Handshake.HelloBytes))
    case Challenge if bytes.remaining == Reply.HeaderBytes + Handshake.NonceBytes + Handshake.ProofBytes =>
      val from = Reply.read(bytes)
      prove(from, take(bytes, Handshake.NonceBytes), take(bytes, Handshake.ProofBytes))
    case Proof if bytes.remaining == Reply.HeaderBytes + Handshake.ProofBytes =>
      val from = Reply.read(bytes)
      check(from, take(bytes, Handshake.ProofBytes))
    case Accepted if bytes.remaining == Reply.HeaderBytes + Handshake.ProofBytes =>
      val from = Reply.read(bytes)
      finish(from, take(bytes, Handshake.ProofBytes))
    case _ => refuse(s"a message of kind $kind and ${bytes.remaining} bytes, which no rank sends")
  }

  def refuse(why: String): Unit = {
    val count = refusals.incrementAndGet()
    if (count <= LoggedRefusals) logWarning(s"Rank $rank refused something that came by UCX: $why.")
  }

  private def greet(hello: Array[Byte]): Unit = handshake.read(hello) match {
    case Some(read) if isOther(read.stream.from) && read.stream.to == rank && !read.isProbe =>
      val known = arriving.remove(tag(hello))
      // Who greets again may have the answer to the first greeting by now: it must stay true.
      val one =
        if (known != null && known.hello.sameElements(hello)) known
        else new Arriving(read.stream, hello, handshake.freshNonce())
      arriving.put(tag(hello), one)
      val answer = Reply.print(rank, tag(hello), one.nonce ++ handshake.serverProof(hello, one.nonce))
      try tell(read.stream.from, Challenge, answer)
      catch {
        // Whoever asked in that rank's name: the streams that there are must not fail for it.
        case error: UcxException =>
          arriving.remove(tag(hello))
          refuse(s"a greeting from rank ${read.stream.from}, to which there is no way (${error.getMessage})")
      }
    case Some(read) => refuse(s"a greeting from rank ${read.stream.from} to rank ${read.stream.to}")
    case None => refuse("a greeting that makes no sense")
  }

  private def prove(from: Reply, nonce: Array[Byte], proof: Array[Byte]): Unit = {
    val one = leaving.get(from.tag)
    if (one == null || one.to != from.rank) refuse(s"an answer for rank ${from.rank} that was not asked for")
    else if (!handshake.same(proof, handshake.serverProof(one.hello, nonce)))
      refuse(s"an answer of rank ${from.rank} that does not know the run's secret")
    else if (one.nonce == null || !one.nonce.sameElements(nonce)) { // else it is proved: we have greeted more than once
      one.nonce = nonce
      tell(from.rank, Proof, Reply.print(rank, from.tag, handshake.clientProof(one.hello, nonce)))
    }
  }

  private def check(from: Reply, proof: Array[Byte]): Unit = {
    val one = arriving.get(from.tag)
    if (one == null || one.stream.from != from.rank) refuse(s"a proof of rank ${from.rank} without a greeting")
    else if (!handshake.same(proof, handshake.clientProof(one.hello, one.nonce)))
      refuse(s"a proof of rank ${from.rank} that does not know the run's secret")
    else {
      arriving.remove(from.tag)
      Mailbox.find(one.stream.inbox, rank) match {
        case None => refuse(s"a stream of rank ${from.rank} that belongs to another attempt")
        case Some(mailbox) =>
          admit(handshake.streamNumber(one.hello, one.nonce), from.rank, mailbox)
          val accepted = handshake.acceptedProof(one.hello, one.nonce)
          tell(from.rank, Accepted, Reply.print(rank, from.tag, accepted))
      }
    }
  }

  private def finish(from: Reply, proof: Array[Byte]): Unit = {
    val one = leaving.get(from.tag)
    val expected = one != null && one.to == from.rank && one.nonce != null &&
      handshake.same(proof, handshake.acceptedProof(one.hello, one.nonce))
    if (!expected) refuse(s"an acceptance of rank ${from.rank} that was not asked for")
    else {
      leaving.remove(from.tag)
      one.done.complete(handshake.streamNumber(one.hello, one.nonce)): Unit
    }
  }

  private def isOther(from: Int): Boolean = from >= 0 && from < ranks && from != rank
}

private[ucx] object UcxHandshakes {
  val Hello = 1
  val Challenge = 2
  val Proof = 3
  val Accepted = 4
  val Kinds: Seq[Int] = Seq(Hello, Challenge, Proof, Accepted)

  /** Greetings at most that wait for their proof. */
  val MaxStrangers = 256
  private val LoggedRefusals = 100

  /** A stream that shall begin; `done` gets its number. */
  final class Leaving(val to: Int, private[ucx] val hello: Array[Byte]) {
    val done = new CompletableFuture[Long]
    private[ucx] var nonce: Array[Byte] = _
  }

  private final class Arriving(val stream: StreamId, val hello: Array[Byte], val nonce: Array[Byte])

  /** By which both sides know which greeting a message is about: the beginning of the greeting's nonce. */
  private def tag(hello: Array[Byte]): Long =
    ByteBuffer.wrap(hello).getLong(Handshake.HelloBytes - Handshake.NonceBytes)

  private def take(bytes: ByteBuffer, count: Int): Array[Byte] = {
    val taken = new Array[Byte](count)
    bytes.get(taken)
    taken
  }

  private final case class Reply(rank: Int, tag: Long)

  private object Reply {
    val HeaderBytes = 12
    def read(bytes: ByteBuffer): Reply = Reply(bytes.getInt(), bytes.getLong())
    def print(rank: Int, tag: Long, rest: Array[Byte]): Array[Byte] =
      ByteBuffer.allocate(HeaderBytes + rest.length).putInt(rank).putLong(tag).put(rest).array
  }
}
