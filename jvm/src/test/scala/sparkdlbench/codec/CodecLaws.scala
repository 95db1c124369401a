package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import scala.util.Random

/** What every codec must do; each codec's suite calls `laws`. */
trait CodecLaws { this: AnyFunSuite =>
  private var lawsCalled = 0

  /**
   * @param relativeError
   *   of a decoded value in [1e-3, 1e3]; None where values are left out
   */
  def laws(codec: Codec, relativeError: Option[Double]): Unit = {
    val sizes = Seq(0, 1, 2, 3, 7, 64, 1023, 1024, 1025, 2047, 2049, 4099, 10007)

    lawsCalled += 1
    val run = lawsCalled
    def label(law: String) = s"${codec.name} ($run): $law"

    test(label("the bytes written are what the formulas say")) {
      sizes.foreach { size =>
        val written = codec.encode(direct(ordinary(size)), bytes(codec.maxBytes(size).toInt))
        codec.fixedBytes(size).foreach(fixed => assert(written == fixed, s"size $size"))
        assert(written <= codec.maxBytes(size), s"size $size")
      }
    }

    test(label("positions and limits stay, other memory stays, slices at odd places work")) {
      Seq(0, 1, 5, 1025, 3001).foreach(size => assertSlicesWork(codec, size))
    }

    test(label("decodeAdd is decode and an fp32 addition, bit for bit")) {
      sizes.foreach { size =>
        val message = encoded(codec, ordinary(size))
        val before = ordinary(size, seed = 2)
        val (sum, alone) = (direct(before), direct(new Array[Float](size)))
        codec.decodeAdd(message, sum)
        codec.decode(message, alone)
        assert(bitsOf(sum) == before.zip(array(alone)).map { case (a, b) => bits(a + b) }.toSeq, s"size $size")
      }
    }

    test(label("decode overwrites everything that was there")) {
      val values = ordinary(2050)
      val (zeros, ones) = (direct(new Array[Float](2050)), direct(Array.fill(2050)(1f)))
      codec.decode(encoded(codec, values), zeros)
      codec.decode(encoded(codec, values), ones)
      assert(bitsOf(zeros) == bitsOf(ones))
    }

    test(label("the same values give the same bytes")) {
      val values = ordinary(4099)
      assert(content(encoded(codec, values)) == content(encoded(codec, values)))
    }

    if (codec.lossless) test(label("what is decoded is what was encoded, bit for bit")) {
      (sizes.map(ordinary(_)) :+ special).foreach { values =>
        assert(decoded(codec, values).map(bits).toSeq == values.map(bits).toSeq)
      }
    }

    relativeError.foreach { bound =>
      test(label(s"the relative error is at most $bound")) {
        val random = new Random(4)
        val values =
          Array.fill(10007)((math.pow(10, random.nextDouble() * 6 - 3) * (if (random.nextBoolean()) 1 else -1)).toFloat)
        values.zip(decoded(codec, values)).foreach { case (value, found) =>
          assert(math.abs(found.toDouble - value) <= bound * math.abs(value), s"$value became $found")
        }
      }
    }

    if (codec.keepsResidual) residualLaws(codec, label)
    else
      test(label("a residual is left alone")) {
        val residual = direct(Array.fill(5)(3f))
        codec.encode(direct(ordinary(5)), bytes(codec.maxBytes(5).toInt), residual)
        assert(array(residual).forall(_ == 3f))
      }
  }

  private def residualLaws(codec: Codec, label: String => String): Unit = {
    test(label("sent + residual is source + residual before, over many messages")) {
      val size = 3001
      val residual = direct(new Array[Float](size))
      // Multiples of 2^-10 below 2^6 in magnitude, over 20 messages: every sum is exact in fp32.
      val random = new Random(5)
      val total, received = new Array[Float](size)
      (1 to 20).foreach { _ =>
        val values = Array.fill(size)((random.nextInt(2001) - 1000) / 1024f)
        val message = bytes(codec.maxBytes(size).toInt)
        val written = codec.encode(direct(values), message, residual)
        message.limit(message.position() + written)
        val sent = direct(new Array[Float](size))
        codec.decode(message, sent)
        (0 until size).foreach { i => total(i) += values(i); received(i) += sent.get(i) }
        (0 until size).foreach(i => assert(received(i) + residual.get(i) == total(i), s"value $i"))
      }
      assert(received.exists(_ != 0))
    }

    test(label("encoding with a residual of zeros sends what encoding without one sends")) {
      val values = ordinary(5003)
      val with0 = bytes(codec.maxBytes(5003).toInt)
      val written = codec.encode(direct(values), with0, direct(new Array[Float](5003)))
      with0.limit(written)
      assert(content(with0) == content(encoded(codec, values)))
    }

    test(label("a residual may be a part of a larger buffer; source, positions and limits stay")) {
      val size = 1500
      val residual = direct(Array.fill(size + 7)(0.25f))
      residual.position(3).limit(3 + size)
      val source = direct(ordinary(size))
      codec.encode(source, bytes(codec.maxBytes(size).toInt), residual)
      assert((residual.position(), residual.limit(), source.position(), source.limit()) == ((3, 3 + size, 0, size)))
      assert(array(source).sameElements(ordinary(size)))
      residual.clear()
      ((0 until 3) ++ (3 + size until size + 7)).foreach(i => assert(residual.get(i) == 0.25f))
      assert((3 until 3 + size).exists(i => residual.get(i) != 0.25f))
    }
  }

  private def assertSlicesWork(codec: Codec, size: Int): Unit = {
    val (before, after) = (3, 5)
    val values = direct(Array.fill(before)(9f) ++ ordinary(size) ++ Array.fill(after)(9f))
    values.position(before).limit(before + size)
    val room = codec.maxBytes(size).toInt
    val message = bytes(before + room + after)
    (0 until message.capacity).foreach(message.put(_, 0x55.toByte))
    message.position(before).limit(before + room)
    val written = codec.encode(values, message)
    assert(
      (values.position(), values.limit(), message.position(), message.limit()) == ((
        before,
        before + size,
        before,
        before + room
      ))
    )
    (0 until before).foreach(i => assert(message.get(i) == 0x55))
    message.clear()
    (before + written until message.capacity).foreach(i => assert(message.get(i) == 0x55, s"byte $i was written"))
    message.position(before).limit(before + written)
    val target = direct(Array.fill(before + size + after)(7f))
    target.position(before).limit(before + size)
    codec.decode(message, target)
    codec.decodeAdd(message, target)
    assert(
      (target.position(), target.limit(), message.position(), message.limit()) == ((
        before,
        before + size,
        before,
        before + written
      ))
    )
    target.clear()
    (0 until before).foreach(i => assert(target.get(i) == 7f))
    (before + size until target.capacity).foreach(i => assert(target.get(i) == 7f))
    val alone = decoded(codec, ordinary(size))
    (0 until size).foreach(i => assert(target.get(before + i) == alone(i) + alone(i), s"value $i"))
  }

  def encoded(codec: Codec, values: Array[Float]): ByteBuffer = {
    val message = bytes(codec.maxBytes(values.length).toInt)
    message.limit(codec.encode(direct(values), message))
  }

  def decoded(codec: Codec, values: Array[Float]): Array[Float] = {
    val target = direct(new Array[Float](values.length))
    codec.decode(encoded(codec, values), target)
    array(target)
  }

  def direct(values: Array[Float]): FloatBuffer = {
    val buffer = new FlatBuffer(values.length)
    buffer.floats.put(0, values)
    buffer.floats.duplicate()
  }

  def bytes(count: Int): ByteBuffer = ByteBuffer.allocateDirect(count).order(ByteOrder.nativeOrder())
  def array(buffer: FloatBuffer): Array[Float] =
    Array.tabulate(buffer.remaining())(i => buffer.get(buffer.position() + i))
  def bits(value: Float): Int = java.lang.Float.floatToRawIntBits(value)
  def bitsOf(buffer: FloatBuffer): Seq[Int] = array(buffer).map(bits).toSeq
  def content(buffer: ByteBuffer): Seq[Byte] = (buffer.position() until buffer.limit()).map(i => buffer.get(i))

  def ordinary(size: Int, seed: Int = 1): Array[Float] = {
    val random = new Random(seed)
    Array.fill(size)(random.nextGaussian().toFloat)
  }

  val special: Array[Float] = Array(
    0f,
    -0f,
    1f,
    -1f,
    Float.PositiveInfinity,
    Float.NegativeInfinity,
    Float.NaN,
    Float.MinPositiveValue,
    -Float.MinPositiveValue,
    Float.MaxValue,
    Float.MinValue,
    java.lang.Float.MIN_NORMAL,
    java.lang.Float.intBitsToFloat(0xffc12345)
  )
}
