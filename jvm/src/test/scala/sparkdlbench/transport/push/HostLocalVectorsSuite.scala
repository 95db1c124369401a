package sparkdlbench.transport
package push

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ProcessMark, RunFailedException}

import java.nio.ByteBuffer
import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

class HostLocalVectorsSuite extends AnyFunSuite {
  private def withFolder[T](body: Path => T): T = {
    assume(ProcessMark.own.isDefined, "/proc does not tell this process' number")
    val folder = Files.createTempDirectory("vectors-suite")
    try body(folder)
    finally {
      val left = Files.list(folder)
      try assert(left.iterator.asScala.isEmpty, "files were left")
      finally left.close()
      Files.delete(folder)
    }
  }

  private def offer(vector: sparkdlbench.vector.FlatBuffer): VectorOffer = {
    val file = vector.file.get
    VectorOffer(file.path, file.bytes, file.identity)
  }

  test("a vector has no name, and others see its values while it is not released, and keep seeing them") {
    withFolder { folder =>
      val vector = new HostLocalVectors(folder, 2).vector(1000)
      assert(Files.list(folder).iterator.asScala.isEmpty)
      assert(vector.length == 1000 && vector.toArray.forall(_ == 0f))
      val there = MappedVectors.attach(offer(vector)).get
      vector.floats.put(999, 3f)
      assert(there.getFloat(4 * 999) == 3f && there.capacity == 4000)
      there.putFloat(0, 7f)
      assert(vector.floats.get(0) == 7f)
      vector.file.get.release()
      vector.file.get.release()
      assert(MappedVectors.attach(offer(vector)).isEmpty)
      there.putFloat(4, 8f)
      assert(vector.floats.get(1) == 8f)
    }
  }

  test("two vectors are two memories; one that was mapped is not mapped again") {
    withFolder { folder =>
      val memory = new HostLocalVectors(folder, 2)
      val (one, other) = (memory.vector(10), memory.vector(10))
      assert(one.file.get.identity != other.file.get.identity)
      val known = new MappedVectors
      val first = known.map(offer(one)).get
      one.file.get.release()
      assert(known.map(offer(one)).get eq first)
      other.floats.put(0, 5f)
      assert(known.map(offer(other)).get.getFloat(0) == 5f && first.getFloat(0) == 0f)
      other.file.get.release()
    }
  }

  test("what is not the memory that was meant, or is too short, or is no vector, is not mapped") {
    withFolder { folder =>
      val memory = new HostLocalVectors(folder, 2)
      val (one, other) = (memory.vector(10), memory.vector(10))
      def refused(wrong: VectorOffer): Unit = assert(MappedVectors.attach(wrong).isEmpty, wrong.toString)
      refused(offer(one).copy(identity = offer(other).identity))
      refused(offer(one).copy(path = offer(other).path))
      refused(offer(one).copy(bytes = 41))
      refused(offer(one).copy(bytes = -1))
      refused(offer(one).copy(bytes = 1L << 40))
      refused(offer(one).copy(path = "/etc/hostname"))
      refused(offer(one).copy(path = "/proc/self/fd/0"))
      refused(offer(one).copy(path = s"/proc/${ProcessMark.own.get.pid}/fd/99999"))
      refused(offer(one).copy(path = "a\u0000b"))
      // A file of the same identity under a name that is no vector's.
      val plain = Files.createTempFile("something", "else")
      try {
        val open = new java.io.RandomAccessFile(plain.toFile, "rw")
        try {
          open.setLength(40)
          val all = Files.list(java.nio.file.Paths.get("/proc/self/fd"))
          val number = all.iterator.asScala
            .find(each => scala.util.Try(Files.readSymbolicLink(each) == plain.toRealPath()).getOrElse(false))
            .get
            .getFileName
          all.close()
          val identity = sparkdlbench.common.MappedFile.identity(plain).get
          refused(VectorOffer(s"/proc/${ProcessMark.own.get.pid}/fd/$number", 40, identity))
        } finally open.close()
      } finally Files.delete(plain)
      Seq(one, other).foreach(_.file.get.release())
    }
  }

  test("where there is no room in memory, a vector is the process' own") {
    withFolder { folder =>
      val none = new HostLocalVectors(folder.resolve("not-there"), 2).vector(10)
      assert(none.length == 10 && none.file.isEmpty)
      assert(new HostLocalVectors(folder, 2).vector(0).file.isEmpty)
    }
  }

  private val lane = Lane(3, from = 1, to = 0, capacity = 16)
  private def bytes(text: String): ByteBuffer = {
    val made = ByteBuffer.allocateDirect(16)
    made.put(text.getBytes("US-ASCII")).flip()
    made
  }
  private def text(buffer: ByteBuffer): String = {
    val found = new Array[Byte](buffer.remaining)
    buffer.duplicate().get(found)
    new String(found, "US-ASCII")
  }

  test("a message is read where it lies, and the next may not be sent before it is released") {
    val slots = LaneSlots.allocate(lane, None)
    val vector = bytes("0123456789")
    slots.readFrom(vector)
    slots.publishInPlace(0, 10)
    assert(slots.hasArrived(0) && !slots.isReleased(0) && text(slots.view(0)) == "0123456789")
    assert(intercept[RunFailedException](slots.publishInPlace(1, 10)).getMessage.contains("still being read"))
    slots.release(0)
    assert(slots.isReleased(0))
    // A slot's message between two that lie in place.
    slots.claim(1, 4).put(bytes("slot"))
    slots.publish(1, 4)
    assert(text(slots.view(1)) == "slot")
    slots.release(1)
    slots.publishInPlace(2, 3)
    assert(text(slots.view(2)) == "012")
    assert(intercept[RunFailedException](slots.publishInPlace(2, 3)).getMessage.contains("where message 3 was due"))
  }

  test("messages go to the destination as the writer sees it, until the reader wants them elsewhere") {
    val (first, second) = (ByteBuffer.allocateDirect(16), ByteBuffer.allocateDirect(16))
    val slots = LaneSlots.allocate(lane, Some(first))
    slots.tellDestination(VectorPlace(0, 64))
    assert(slots.destinationPlace.contains(VectorPlace(0, 64)) && !slots.goesToDestination)
    slots.writeTo(first)
    assert(slots.goesToDestination)
    def send(sequence: Long, words: String): String = {
      slots.claim(sequence, words.length).put(bytes(words))
      slots.publish(sequence, words.length)
      val found = text(slots.view(sequence))
      slots.release(sequence)
      found
    }
    assert(send(0, "first") == "first" && text(first.duplicate().position(0).limit(5)) == "first")
    slots.redirect(second)
    assert(!slots.goesToDestination)
    assert(send(1, "second") == "second" && text(second.duplicate().position(0).limit(6)) == "second")
    assert(text(first.duplicate().position(0).limit(5)) == "first")
    slots.redirect(first)
    assert(slots.goesToDestination && send(2, "third") == "third")
  }

  test("a source that the reader cannot see is refused") {
    val slots = LaneSlots.allocate(lane, None)
    slots.tellSource(VectorPlace(2, 128))
    assert(slots.sourcePlace.contains(VectorPlace(2, 128)))
    slots.refuseSource()
    assert(slots.sourcePlace.isEmpty)
  }
}
