package sparkdlbench.data

import org.apache.spark.sparkdlbench.SparkTestSupport
import org.scalatest.funsuite.AnyFunSuite

class CsvSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private val source = new Csv

  private def lines(count: Int): String =
    (0 until count).map(id => s"${id % 3},${id},${-id * 0.5},1e-${id % 5}\n").mkString
  private def wanted(count: Int): Seq[(Int, Seq[Float])] =
    (0 until count).map(id => (id % 3, Seq(id.toFloat, -id * 0.5f, s"1e-${id % 5}".toFloat)))

  test("lines become rows; one of five tests") {
    val (facts, sets) = load(source, "data.path" -> write("plain/a.csv", lines(23)).toString, "data.classes" -> "3")
    assert((facts.trainRows, facts.testRows, facts.shape, facts.classes) == ((19, 4, Seq(3), 3)))
    val (test, train) = wanted(23).zipWithIndex.partition(row => Set(2, 8, 11, 17)(row._2))
    assert(rows(sets.train) == train.map(_._1) && rows(sets.test) == test.map(_._1))
  }

  test("whatever the byte ranges, each line is read once and in its place") {
    val text = lines(400)
    val path = write("split/a.csv", text).toString
    val all = Seq("1024", "1500", "2048", "100000000").map { bytes =>
      val (_, sets) =
        load(source, "data.path" -> path, "data.classes" -> "3", "data.split_bytes" -> bytes, "data.test_path" -> path)
      rows(sets.train)
    }
    all.foreach(found => assert(found == wanted(400)))
    // Ranges that begin or end exactly at a line's first or last byte, with LF and CR LF.
    Seq("\n", "\r\n").foreach { end =>
      val sixteen = (0 until 256).map(id => f"${id % 3},${id}%04d,0,1,2,33".take(16 - end.length) + end).mkString
      val (_, sets) = load(
        source,
        "data.path" -> write(s"even${end.length}.csv", sixteen).toString,
        "data.split_bytes" -> "1024",
        "data.classes" -> "3",
        "data.test_path" -> path.replace("split/a.csv", s"even${end.length}.csv")
      )
      assert(rows(sets.train).map(_._2.head) == (0 until 256).map(_.toFloat))
    }
  }

  test("names, the label by name or number, delimiters, quotes, a byte order mark, blanks, no last line end") {
    val text = "\ufeffx;\"y; z\";class\n1;2; 0\n \"3\" ;4;1\n\n5;6;0"
    Seq("class", "2", "-1").foreach { label =>
      val (facts, sets) = load(
        source,
        "data.path" -> write("named.csv", text).toString,
        "data.header" -> "true",
        "data.label" -> label,
        "data.delimiter" -> ";",
        "data.classes" -> "2",
        "data.test_every" -> "3"
      )
      assert((facts.trainRows, facts.testRows) == ((2, 1)))
      assert(rows(sets.train) == Seq((0, Seq(1f, 2f)), (0, Seq(5f, 6f))) && rows(sets.test) == Seq((1, Seq(3f, 4f))))
    }
    val tabs = write("tabs.tsv", "0\t1.5\n1\t2.5\n").toString
    val (_, sets) =
      load(source, "data.path" -> tabs, "data.delimiter" -> "tab", "data.test_path" -> tabs, "data.shape" -> "1,1,1")
    assert(rows(sets.test) == Seq((0, Seq(1.5f)), (1, Seq(2.5f))))
  }

  test("of the columns those that data.columns names, by name or number, in its order") {
    val text = "name,age,plan,score,kind\nAda,1,free,2,0\nBob,3,paid,4,1\n"
    val path = write("words.csv", text).toString
    val bare = write("bare.csv", text.linesIterator.drop(1).mkString("\n")).toString
    def read(path: String, header: Boolean, columns: String) = load(
      source,
      "data.path" -> path,
      "data.test_path" -> path,
      "data.header" -> header.toString,
      "data.label" -> "4",
      "data.classes" -> "2",
      "data.columns" -> columns
    )
    Seq((path, true, "score, age"), (path, true, "3,-4"), (bare, false, "3,1")).foreach {
      case (file, header, columns) =>
        val (facts, sets) = read(file, header, columns)
        assert(facts.shape == Seq(2))
        assert(rows(sets.train) == Seq((0, Seq(2f, 1f)), (1, Seq(4f, 3f))))
        assert(facts.input.columns == (if (header) Seq("score", "age") else Nil))
    }
    def refused(columns: String, header: Boolean) = refusal(
      source,
      "data.path" -> (if (header) path else bare),
      "data.header" -> header.toString,
      "data.label" -> "4",
      "data.columns" -> columns
    )
    assertSays(refused("scores", header = true), "'data.columns' names the column 'scores'", "Did you mean 'score'?")
    assertSays(refused("age", header = false), "'age'", "not named (`data.header` = false); give numbers from 0 to 4.")
    assertSays(refused("age,kind", header = true), "'kind', which is the label's")
    write("two/1.csv", "0,a,1,b\n")
    write("two/2.csv", "1,2,b\n")
    assertSays(
      refusal(source, "data.path" -> folder.resolve("two").toString, "data.columns" -> "2", "data.classes" -> "2"),
      "the line has 3 columns, and the first line of the set has 4"
    )
    assertSays(refused("age,plan", header = true), "column 2 ('plan') is 'free', which is no finite number")
  }

  test("decoded rows that are taken again know which columns are values, whatever the label's key says then") {
    val path = write("last.csv", "a,b,y\n" + (0 until 10).map(row => s"$row,${2 * row},${row % 2}\n").mkString).toString
    val base = Seq("data.path" -> path, "data.header" -> "true", "data.label" -> "y", "data.classes" -> "2")
    val decoded = source.prepare(source.qualified(settings(source, base), hadoop), sc)(RecordSource.decodedDir)
    val again = settings(source, Seq(RecordSource.decodedDir.name -> decoded, "data.classes" -> "2"))
    val facts = source.inspect(source.prepare(again, sc), hadoop)
    assert(facts.input.columns == Seq("a", "b"))
  }

  test("one class is nothing to learn") {
    val path = write("one.csv", "cat,0\ncat,1\n").toString
    assert(
      refusal(source, "data.path" -> path, "data.label_names" -> "cat") ==
        "data.label_names is 'cat', one class, so there is nothing to tell apart. Name two classes or more, or " +
        "choose another column with data.label."
    )
  }

  test("labels that are words, uint8, gzip, several files, a pattern") {
    write("many/1.csv", "cat,0,255\ndog,1,2\n")
    write("many/2.csv.gz", gzip("dog,7,8\ncat,9,10\n".getBytes))
    write("many/_ignored", "x")
    Seq("many", "many/*.csv*").foreach { path =>
      val (facts, sets) = load(
        source,
        "data.path" -> folder.resolve(path).toString,
        "data.label_names" -> "cat,dog",
        "data.held_as" -> "uint8",
        "data.test_every" -> "2"
      )
      assert(facts.classes == 2)
      assert(rows(sets.train) == Seq((0, Seq(0f, 1f)), (1, Seq(7 / 255f, 8 / 255f))))
      assert(rows(sets.test) == Seq((1, Seq(1 / 255f, 2 / 255f)), (0, Seq(9 / 255f, 10 / 255f))))
    }
  }

  test("bad lines are named by file, record and byte offset, or left out") {
    val path = write(
      "bad.csv",
      "0,1,2\n1,x,2\n1,2\n3,1,1\n0,NaN,1\n1,inf,0\n\"0,1,2\n1,5,6\n0,,4\n0,1e60,3\n1,7,8\n0,9,10\n"
    ).toString
    val base = Seq("data.path" -> path, "data.classes" -> "2")
    assertSays(refusal(source, base: _*), "bad.csv", "record 1", "byte offset 6", "column 1 is 'x'", "on_error=skip")
    val (facts, sets) = load(source, base ++ Seq("data.on_error" -> "skip", "data.test_every" -> "2"): _*)
    assert(rows(sets.train) == Seq((0, Seq(1f, 2f)), (1, Seq(7f, 8f))))
    assert(rows(sets.test) == Seq((1, Seq(5f, 6f)), (0, Seq(9f, 10f))))
    assert(facts.skipped.count == 8 && facts.skipped.listed.size == 8)
    assertSays(
      facts.skipped.listed.mkString("\n"),
      "has 2 columns",
      "label is '3'",
      "column 1 is 'NaN'",
      "'1e60'",
      "column 1 is ''"
    )
    val limited = base ++ Seq("data.on_error" -> "skip", "data.max_skipped" -> "7")
    assertSays(refusal(source, limited: _*), "8 bad records", "data.max_skipped")
    val half = write("half.csv", "0,1\n1,2.5\n").toString
    assertSays(refusal(source, "data.path" -> half, "data.held_as" -> "uint8"), "value 0 is 2.5", "uint8")
  }

  test("what can be seen without a job is refused without one") {
    val path = write("two.csv", "a,b\n1,2\n").toString
    var jobs = 0
    SparkTestSupport.awaitEvents(sc) // of the tests before
    sc.addSparkListener(new org.apache.spark.scheduler.SparkListener {
      override def onJobStart(start: org.apache.spark.scheduler.SparkListenerJobStart): Unit = jobs += 1
    })
    assertSays(refusal(source, "data.path" -> ""), "'data.path' is not set")
    assertSays(refusal(source, "data.path" -> "nosuch://x/y"), "nosuch://x/y")
    assertSays(
      refusal(source, "data.path" -> path, "data.label" -> "c", "data.header" -> "true"),
      "'data.label' is 'c'",
      "a, b"
    )
    assertSays(refusal(source, "data.path" -> path, "data.label" -> "2"), "'data.label' is '2'", "0 to 1")
    assertSays(refusal(source, "data.path" -> path, "data.shape" -> "3"), "'data.shape' is 3", "1 columns besides")
    assertSays(refusal(source, "data.path" -> write("one.csv", "1\n").toString), "one column")
    assertSays(refusal(source, "data.path" -> write("none.csv", "").toString), "is empty")
    SparkTestSupport.awaitEvents(sc)
    assert(jobs == 0)
    assertSays(
      refusal(source, "data.path" -> write("head.csv", "a,b\n").toString, "data.header" -> "true"),
      "has no rows"
    )
    assertSays(refusal(source, "data.path" -> write("four.csv", "1,2\n1,2\n").toString), "0 to test on")
  }

  test("rows to test on that are none are no reason to take training rows") {
    val path = write("train.csv", (1 to 20).map(i => s"${i % 2},$i").mkString("\n")).toString
    val empty = write("test.csv", "7,1\n").toString
    val set = Seq("data.path" -> path, "data.test_path" -> empty, "data.classes" -> "2")
    assertSays(
      refusal(source, set ++ Seq("data.on_error" -> "skip", "data.max_skipped" -> "5"): _*),
      "to test on",
      "1 bad records"
    )
  }

  test("files of one set have the same names") {
    write("mixed/1.csv", "a,b,y\n1,2,0\n")
    write("mixed/2.csv", "a,y,b\n1,0,2\n")
    val message =
      refusal(source, "data.path" -> folder.resolve("mixed").toString, "data.header" -> "true", "data.label" -> "y")
    assertSays(message, "2.csv", "line of names differs", "it is a, y, b", "that is a, b, y", "data.on_error=skip")
  }

  test("a file of other names is left out whole, whatever its parts, and counted once") {
    def lines(from: Int) = (from until from + 200).map(id => s"$id,${id % 2},${id % 2}\n").mkString
    write("left-out/1.csv", "a,b,y\n" + lines(0))
    write("left-out/2.csv", "a,y,b\n" + lines(1000))
    write("left-out/3.csv.gz", gzip(("b,a,y\n" + lines(2000)).getBytes))
    write("left-out/4.csv", "a,b,y\n" + lines(3000))
    write("left-out/5.csv", "")
    val base = Seq("data.header" -> "true", "data.label" -> "y", "data.split_bytes" -> "1024", "data.classes" -> "2")
    val skip = base ++ Seq("data.on_error" -> "skip", "data.path" -> folder.resolve("left-out").toString)
    val (facts, sets) = load(source, skip: _*)
    val found = (rows(sets.train) ++ rows(sets.test)).sortBy(_._2.head.toInt)
    assert(found == ((0 until 200) ++ (3000 until 3200)).map(id => (id % 2, Seq(id.toFloat, (id % 2).toFloat))))
    assert(facts.skipped.count == 2)
    assertSays(facts.skipped.listed.mkString(" "), "2.csv", "it is a, y, b", "3.csv.gz", "it is b, a, y")
    assertSays(refusal(source, skip :+ ("data.max_skipped" -> "1"): _*), "2 bad records", "data.max_skipped")
    // Where no file of the rows to test on fits, they are none; it is no reason to take training rows.
    val test = Seq(
      "data.path" -> folder.resolve("left-out/1.csv").toString,
      "data.test_path" -> folder.resolve("left-out/2.csv").toString,
      "data.on_error" -> "skip"
    )
    assertSays(refusal(source, base ++ test: _*), "rows to test on", "2.csv")
  }

  test("names of labels that are numbers stand for their values") {
    val path = write("values.csv", "+1,5\n1.0,6\n-1.0,7\n -1,8\n1e0,9\n-1.00,10\n").toString
    val (facts, sets) =
      load(source, "data.path" -> path, "data.test_path" -> path, "data.label_names" -> "-1,1")
    assert(facts.classes == 2 && rows(sets.train).map(_._1) == Seq(1, 1, 0, 0, 1, 0))
    val wrong = write("values-wrong.csv", "1,5\n1.5,6\n").toString
    assertSays(
      refusal(source, "data.path" -> wrong, "data.label_names" -> "-1,1"),
      "the label is '1.5'",
      "`data.label_names` are -1, 1"
    )
    val alike = RecordLayout(Seq(1), ValueKind.Float32, 3, "", Seq("1", "1.0", "one"))
    val wanted = Seq("1" -> Some(0), "1.0" -> Some(1), "+1" -> Some(0), "one" -> Some(2), "2" -> None, "" -> None)
    wanted.foreach { case (text, label) => assert(alike.label(text) == label, text) }
  }

  test("rows over the memory limit come from a mapped file, and are the same") {
    val path = write("mapped.csv", lines(300)).toString
    val base = Seq("data.path" -> path, "data.classes" -> "3")
    val (onHeap, held) = load(source, base: _*)
    val (mapped, paged) = load(source, base :+ ("data.memory_limit" -> "1000"): _*)
    assert(onHeap.heldBytes == 300 * 16 && mapped.heldBytes == 300 * 4, "labels stay on the heap")
    assert(rows(held.train) == rows(paged.train) && rows(held.test) == rows(paged.test))
  }

  test("of a share of the training rows those alone are held, with all test rows, from one folder of decoded rows") {
    val base =
      Seq("data.path" -> write("share.csv", lines(400)).toString, "data.classes" -> "3", "data.split_bytes" -> "1024")
    val named = "data.test_path" -> write("share-test.csv", lines(7)).toString
    for (set <- Seq(base, base :+ named)) {
      val (all, whole) = load(source, set: _*)
      val (train, test) = (rows(whole.train), rows(whole.test))
      def decoded(more: Seq[(String, String)]) =
        source.prepare(source.qualified(settings(source, more), hadoop), sc)(RecordSource.decodedDir)
      for (share <- Seq("0.5", "0.1", "0.93", "0.0001")) {
        val shared = set :+ ("data.share" -> share)
        val (facts, some) = load(source, shared: _*)
        val taken = TakenRows.of(all.trainRows, settings(source, shared))
        assert(rows(some.train) == (0 until taken.rows).map(row => train(taken(row))), s"a share of $share")
        assert(rows(some.test) == test)
        assert(facts.trainRows == taken.rows && facts.heldBytes == (taken.rows + test.size) * 16)
        assert(decoded(shared) == decoded(set))
      }
    }
  }

  test("minmax and standard are by the training rows") {
    val path = write("scaled.csv", "0,0,5\n0,10,5\n1,20,5\n1,30,5\n").toString
    val test = write("scaled-test.csv", "0,60,6\n").toString
    val base = Seq("data.path" -> path, "data.test_path" -> test, "data.classes" -> "2")
    val (_, range) = load(source, base :+ ("data.normalize" -> "minmax"): _*)
    assert(rows(range.train).map(_._2.head).map(_ * 3).map(math.round) == Seq(0, 1, 2, 3))
    assert(rows(range.test) == Seq((0, Seq(2f, 1f))))
    val (_, standard) = load(source, base :+ ("data.normalize" -> "standard"): _*)
    val deviation = math.sqrt(125).toFloat
    assert(rows(standard.test).head._2.zip(Seq(45 / deviation, 1f)).forall { case (a, b) => math.abs(a - b) < 1e-5 })
  }
}
