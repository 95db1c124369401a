package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.{Scalar, Tensor}
import org.bytedeco.pytorch.global.torch
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.vector.FlatBuffer

/** What becomes of a tensor and of other views of its memory that takes over a result. */
class TensorsSuite extends AnyFunSuite {
  import EngineFixture.values

  // Loads the libraries.
  EngineFixture.load(EngineFixture.softmax(2, 2), 1).close()

  test("a result's memory takes the place of memory of the same size, for every view of it") {
    Tensors.inference {
      val memory = torch.zeros(6L, 4L)
      val (to, half) = (memory.view(2L, 3L, 4L), memory.narrow(0L, 3L, 3L))
      val result = counted(2, 3, 4)
      val address = result.data_ptr().address()
      Tensors.moved(result, to)
      assert(memory.data_ptr().address() == address && to.data_ptr().address() == address)
      result.fill_(nothing)
      result.close()
      assert(values(to) == (0 until 24) && values(memory) == (0 until 24) && values(half) == (12 until 24))
      Seq(to, half, memory).foreach(_.close())
    }
  }

  test("the values are copied where the memory may not be another") {
    Tensors.inference {
      val buffer = new FlatBuffer(24)
      val foreign = Tensors.over(buffer, 0, Seq(2, 3, 4))
      Tensors.moved(counted(2, 3, 4), foreign)
      assert(buffer.toArray.toSeq == (0 until 24))

      val larger = torch.zeros(3L, 3L, 4L)
      Tensors.moved(counted(2, 3, 4), larger.narrow(0L, 0L, 2L))
      assert(values(larger) == (0 until 24) ++ Seq.fill(12)(0))

      val turned = torch.zeros(4L, 6L).t()
      Tensors.moved(counted(6, 4), turned)
      assert(values(turned.contiguous()) == (0 until 24))

      // Another tensor still has the result's memory.
      val (shared, to) = (counted(2, 3, 4), torch.zeros(2L, 3L, 4L))
      val view = shared.view(24L)
      Tensors.moved(shared, to)
      view.fill_(nothing)
      assert(values(to) == (0 until 24))

      // Values of the same size, and of another type.
      val whole = torch.zeros(2L, 3L, 4L)
      Tensors.moved(counted(2, 3, 4).to(torch.ScalarType.Int), whole)
      assert(values(whole) == (0 until 24))
    }
  }

  private val nothing = new Scalar(Float.NaN)

  private def counted(sizes: Int*): Tensor = {
    val made = torch.empty(Tensors.sizes(sizes): _*)
    val pointer = made.data_ptr_float()
    (0 until sizes.product).foreach(i => pointer.put(i.toLong, i.toFloat))
    made
  }
}
