package sparkdlbench.common

import sparkdlbench.OnOneLine

import scala.collection.mutable.ArrayBuffer

class OutcomeSuite extends OnOneLine {
  private val work = new LinkageError("work")
  private val first = new RuntimeException("first")
  private val second = new RuntimeException("second")

  test("what failed first is thrown, whatever fails after it is suppressed in it, and all is done") {
    val done = ArrayBuffer.empty[String]
    def end(name: String, failing: Option[Throwable] = None): () => Unit = () => {
      done += name
      failing.foreach(throw _)
    }
    val told = intercept[LinkageError](
      Outcome.after(Outcome.of[Int](throw work))(end("a", Some(first)), end("b"), end("c", Some(second)))
    )
    assert((told eq work) && told.getSuppressed.toSeq == Seq(first, second))
    assert(done == Seq("a", "b", "c"))
    val later = intercept[RuntimeException](Outcome.after(Outcome.of(1))(end("d", Some(second)), end("e")))
    assert((later eq second) && later.getSuppressed.isEmpty && done.takeRight(2) == Seq("d", "e"))
    assert(Outcome.after(Outcome.of(1))(end("f")) == 1 && Outcome.after(Outcome.of(2))() == 2)
  }

  test("one and the same failure is not suppressed in itself") {
    val told = intercept[RuntimeException](Outcome.after(Outcome.of[Int](throw first))(() => throw first))
    assert((told eq first) && told.getSuppressed.isEmpty)
  }
}
