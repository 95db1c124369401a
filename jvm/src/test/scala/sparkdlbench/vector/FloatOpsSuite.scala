package sparkdlbench.vector

import org.scalatest.funsuite.AnyFunSuite

import java.nio.FloatBuffer
import scala.util.Random

class FloatOpsSuite extends AnyFunSuite {
  private val sizes = Seq(0, 1, 2, 7, 1023, 1024, 1025, 5003)

  /** A part of a larger buffer, from place 3 on, so that neighbours can be checked. */
  private def part(values: Array[Float]): FloatBuffer = {
    val whole = new FlatBuffer(values.length + 8).floats.duplicate()
    whole.put(3, values)
    whole.position(3).limit(3 + values.length)
    whole
  }
  private def values(size: Int, seed: Int): Array[Float] = {
    val random = new Random(seed)
    Array.fill(size)(random.nextGaussian().toFloat)
  }
  private def content(buffer: FloatBuffer, size: Int): Seq[Float] = {
    assert(buffer.position() == 3 && buffer.limit() == 3 + size)
    val whole = buffer.duplicate()
    whole.clear()
    val outside = (0 until 3) ++ (3 + size until whole.capacity)
    outside.foreach(i => assert(whole.get(i) == 0f, s"place $i was written"))
    (3 until 3 + size).map(i => whole.get(i))
  }

  test("each function is its definition, value by value, inside position and limit") {
    sizes.foreach { size =>
      val (a, b, c) = (values(size, 1), values(size, 2), values(size, 3))
      def check(wanted: Int => Float)(run: (FloatBuffer, FloatBuffer, FloatBuffer) => Unit): Unit = {
        val (target, second, third) = (part(a), part(b), part(c))
        run(target, second, third)
        assert(content(target, size) == (0 until size).map(wanted), s"size $size")
        assert(content(second, size) == b.toSeq && content(third, size) == c.toSeq)
      }
      check(b(_))((target, second, _) => FloatOps.copy(second, target))
      check(_ => 2.5f)((target, _, _) => FloatOps.fill(target, 2.5f))
      check(i => a(i) + b(i))((target, second, _) => FloatOps.addInto(target, second))
      check(i => a(i) * 0.3f)((target, _, _) => FloatOps.scale(target, 0.3f))
      check(i => a(i) + 0.3f * b(i))((target, second, _) => FloatOps.addScaledInto(target, second, 0.3f))
      check(i => b(i) + a(i) + c(i))((target, second, third) => FloatOps.sumInto(target, Seq(second, target, third)))
      check(b(_))((target, second, _) => FloatOps.sumInto(target, Seq(second)))
    }
  }

  test("the order of a sum is the order of its sources") {
    val big = part(Array(1e8f)); val minus = part(Array(-1e8f)); val small = part(Array(1f));
    val target = part(Array(0f))
    FloatOps.sumInto(target, Seq(big, minus, small))
    assert(content(target, 1) == Seq(1f))
    FloatOps.sumInto(target, Seq(big, small, minus))
    assert(content(target, 1) == Seq(0f))
  }

  test("different lengths and empty sums are refused") {
    val (two, three) = (part(new Array(2)), part(new Array(3)))
    intercept[IllegalArgumentException](FloatOps.addInto(two, three))
    intercept[IllegalArgumentException](FloatOps.copy(two, three))
    intercept[IllegalArgumentException](FloatOps.sumInto(two, Nil))
    intercept[IllegalArgumentException](FloatOps.sumInto(two, Seq(two, three)))
  }

  test("threads do not disturb each other") {
    val failures = new java.util.concurrent.atomic.AtomicInteger
    val threads = (1 to 4).map(thread =>
      new Thread(() =>
        (1 to 200).foreach { _ =>
          val target = part(values(5003, thread))
          FloatOps.addInto(target, part(values(5003, thread + 10)))
          val wanted = values(5003, thread).zip(values(5003, thread + 10)).map { case (a, b) => a + b }
          if (content(target, 5003) != wanted.toSeq) failures.incrementAndGet()
        }
      )
    )
    threads.foreach(_.start())
    threads.foreach(_.join(60000))
    assert(threads.forall(!_.isAlive) && failures.get == 0)
  }
}
