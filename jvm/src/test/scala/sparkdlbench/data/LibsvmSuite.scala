package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TestData

class LibsvmSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private val source = new Libsvm

  test("lines become dense rows; the longest decides their length") {
    val path = write("a.svm", "0 1:0.5 3:2 # a comment\n1 2:-1e2\n\n# nothing\n1\n0 4:7\n").toString
    val (facts, sets) = load(source, "data.path" -> path, "data.classes" -> "2", "data.test_every" -> "4")
    assert(facts.shape == Seq(4))
    assert(rows(sets.train) == Seq((0, Seq(0.5f, 0f, 2f, 0f)), (1, Seq(0f, -100f, 0f, 0f)), (0, Seq(0f, 0f, 0f, 7f))))
    assert(rows(sets.test) == Seq((1, Seq(0f, 0f, 0f, 0f))))
  }

  test("a given shape, and labels of other numbers") {
    val path = write("b.svm", "-1 1:1\n+1 6:2\n").toString
    val (facts, sets) =
      load(
        source,
        "data.path" -> path,
        "data.test_path" -> path,
        "data.shape" -> "1,2,3",
        "data.label_names" -> "-1,+1"
      )
    assert(facts.shape == Seq(1, 2, 3) && facts.classes == 2)
    assert(rows(sets.train) == Seq((0, Seq(1f, 0f, 0f, 0f, 0f, 0f)), (1, Seq(0f, 0f, 0f, 0f, 0f, 2f))))
  }

  test("bad lines are named") {
    val base = Seq("data.shape" -> "3", "data.classes" -> "2")
    Seq(
      "0 0:1" -> "'0:1' is no index:value",
      "0 x" -> "'x' is no index:value",
      "0 2:1 1:1" -> "index 1 comes after index 2",
      "0 1:1 1:1" -> "index 1 comes after index 1",
      "0 4:1" -> "index 4 is over the rows' length of 3",
      "0 1:nan" -> "no index:value",
      "0 99999999999:1" -> "no index:value",
      "2 1:1" -> "the label is '2'",
      "a 1:1" -> "the label is 'a'"
    ).zipWithIndex.foreach { case ((line, reason), number) =>
      val path = write(s"bad$number.svm", s"0 1:1\n$line\n").toString
      assertSays(
        refusal(source, base :+ ("data.path" -> path): _*),
        s"bad$number.svm",
        "record 1",
        "byte offset 6",
        reason
      )
    }
    assertSays(refusal(source, "data.path" -> write("labels.svm", "0\n1\n").toString), "name no value", "data.shape")
  }

  test("names of labels that are numbers stand for their values") {
    val path = write("signs.svm", "+1 1:1\n1.0 1:2\n-1.0 1:3\n-1 1:4\n").toString
    val (_, sets) =
      load(source, "data.path" -> path, "data.test_path" -> path, "data.label_names" -> "-1,1")
    assert(rows(sets.train).map(_._1) == Seq(1, 1, 0, 0))
  }

  test("lines that are no rows do not decide the rows' length") {
    Seq("1 900000:x", "7 900000:1", "1 2:1 900000", "1 900000:1 3:2", "1 99:1 2000000:1").zipWithIndex.foreach {
      case (damaged, number) =>
        val path = write(s"damaged$number.svm", s"0 1:1 2:2\n$damaged\n1 3:1\n0 1:1\n").toString
        val base = Seq("data.path" -> path, "data.classes" -> "2", "data.test_every" -> "3")
        val (facts, _) = load(source, base :+ ("data.on_error" -> "skip"): _*)
        assert(facts.shape == Seq(3) && facts.skipped.count == 1, damaged)
        assertSays(refusal(source, base: _*), s"damaged$number.svm", "record 1", "byte offset 10")
    }
    val none = write("all-bad.svm", "7 1:1\n8 2:1\n").toString
    assertSays(
      refusal(source, "data.path" -> none, "data.classes" -> "2"),
      "no line that is a row",
      "2 that are none",
      "the label is '7'"
    )
  }

  test("rows that would take far more memory than their text are asked about") {
    val lines = Seq.fill(200)("0 1:1 2:2 3:3\n").mkString + "1 900000:1\n"
    val path = write("long.svm", lines).toString
    val base = Seq("data.path" -> path, "data.classes" -> "2")
    assertSays(refusal(source, base: _*), "201 rows", "highest index is 900000", "data.shape=900000")
    val (facts, _) = load(source, base ++ Seq("data.shape" -> "3", "data.on_error" -> "skip"): _*)
    assert(facts.trainRows + facts.testRows == 200 && facts.skipped.count == 1)
    // Ten characters a line, for which 2,560 bytes may be held: 640 values of fp32, or 2,560 of one byte.
    def wide(index: Int) = "data.path" -> write(s"wide$index.svm", f"0 $index%05d:1\n" * 5).toString
    assert(load(source, wide(640))._1.shape == Seq(640))
    assertSays(refusal(source, wide(641)), "data.shape=641")
    assert(load(source, wide(2560), "data.held_as" -> "uint8")._1.shape == Seq(2560))
  }

  test("MLlib's sample of 100 rows") {
    val path = TestData.require("mnist-other-formats").resolve("sample_libsvm_data.txt").toString
    val (facts, sets) =
      load(source, "data.path" -> path, "data.classes" -> "2", "data.held_as" -> "uint8", "data.split_bytes" -> "10000")
    assert((facts.trainRows, facts.testRows, facts.shape) == ((80, 20, Seq(692))))
    assert((rows(sets.train) ++ rows(sets.test)).count(_._1 == 1) == 57)
  }
}
