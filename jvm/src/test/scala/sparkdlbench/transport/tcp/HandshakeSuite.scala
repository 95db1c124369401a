package sparkdlbench.transport.tcp

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.data.ParserFuzzSuite
import sparkdlbench.transport.push.StreamId

import java.util.Arrays
import scala.util.Random

class HandshakeSuite extends AnyFunSuite {
  private val secret = Array.tabulate[Byte](32)(_.toByte)
  private val handshake = new Handshake(secret)

  test("a hello carries its fields, and no two are the same") {
    val hello = handshake.hello(StreamId(77, 3, 1), 2, 4)
    assert(hello.length == Handshake.HelloBytes)
    val read = handshake.read(hello).get
    assert((read.stream, read.number, read.of) == ((StreamId(77, 3, 1), 2, 4)))
    assert(!(hello sameElements handshake.hello(StreamId(77, 3, 1), 2, 4)))
    assert(handshake.read(handshake.hello(StreamId(0, 3, 1), 0, 1)).get.isProbe)
  }

  test("bytes that are no hello are not read, whatever they are") {
    val random = new Random(1)
    for (_ <- 0 until 2000) {
      val bytes = new Array[Byte](Handshake.HelloBytes)
      random.nextBytes(bytes)
      assert(handshake.read(bytes).isEmpty)
    }
    val hello = handshake.hello(StreamId(77, 3, 1), 0, 1)
    for (at <- Seq(0, 4, 8, 16, 20, 24, 28)) {
      val broken = hello.clone()
      broken(at) = 0x80.toByte // a negative field, or another magic or version
      assert(handshake.read(broken).isEmpty, at)
    }
  }

  test("a hello with bytes changed is another one or none, and no proof of the one serves for the other") {
    val nonce = Array.fill[Byte](Handshake.NonceBytes)(9)
    val hello = handshake.hello(StreamId(77, 3, 1), 2, 4)
    (hello.length - Handshake.NonceBytes until hello.length).foreach(i => hello(i) = (i * 7).toByte)
    val outcomes = (1 to 500).map { seed =>
      val mutant = Arrays.copyOf(ParserFuzzSuite.mutated(hello, new Random(seed)), Handshake.HelloBytes)
      if (!(mutant sameElements hello))
        assert(!handshake.same(handshake.clientProof(hello, nonce), handshake.clientProof(mutant, nonce)), seed)
      val read = handshake.read(mutant)
      read.foreach(found => assert(found.number < found.of && found.of <= Handshake.MaxConnections, seed))
      read.isDefined
    }
    assert(outcomes.count(identity) > 20 && outcomes.count(!_) > 20, outcomes.count(identity))
  }

  test("a proof depends on the secret, the side, the hello and the nonce") {
    val (hello, nonce) = (handshake.hello(StreamId(77, 3, 1), 0, 1), handshake.freshNonce())
    val proof = handshake.clientProof(hello, nonce)
    assert(proof.length == Handshake.ProofBytes && handshake.same(proof, handshake.clientProof(hello, nonce)))
    val others = Seq(
      handshake.serverProof(hello, nonce),
      handshake.clientProof(handshake.hello(StreamId(77, 3, 1), 0, 1), nonce),
      handshake.clientProof(hello, handshake.freshNonce()),
      new Handshake(secret.updated(0, 1.toByte)).clientProof(hello, nonce)
    )
    others.foreach(other => assert(!handshake.same(proof, other)))
  }

  test("HMAC-SHA-256 as in RFC 4231, test case 2, through another implementation's bytes") {
    // key "Jefe", data "what do ya want for nothing?": the same primitive that the proofs use
    val mac = javax.crypto.Mac.getInstance("HmacSHA256")
    mac.init(new javax.crypto.spec.SecretKeySpec("Jefe".getBytes("US-ASCII"), "HmacSHA256"))
    val bytes = mac.doFinal("what do ya want for nothing?".getBytes("US-ASCII"))
    assert(
      bytes.map(b => f"${b & 0xff}%02x").mkString == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )
  }
}
