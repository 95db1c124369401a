package sparkdlbench.data

import org.apache.hadoop.fs.Path
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings

/** A sharded set gives the rows of one that is held, reads each executor's share, and no more. */
class ShardedRowsSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private val count = 2003
  private lazy val path =
    write("numbers/rows.csv", (0 until count).map(id => s"${id % 3},$id,${id * 0.5}").mkString("\n"))
  private lazy val test = write("numbers-test/rows.csv", (0 until 40).map(id => s"${id % 3},$id,1").mkString("\n"))
  private def base = Seq(
    "data.path" -> path.toString,
    "data.test_path" -> test.toString,
    "data.label" -> "0",
    "data.classes" -> "3",
    "data.split_bytes" -> "4096", // several parts
    "batch" -> "24"
  )
  private val cut = Seq("data.placement" -> "sharded", "data.shards" -> "8", "data.shuffle_buffer" -> "256")

  private def prepared(more: (String, String)*): Settings = {
    val source = new Csv
    source.prepare(source.qualified(settings(source, base ++ more), hadoop), sc)
  }

  private def folderOf(settings: Settings): RowsFolder =
    RowsFolder.require(settings(RecordSource.decodedDir), hadoop)

  test("its rows are those of the set that is held, normalised and with a share of them too") {
    val more = Seq(
      Nil,
      Seq("data.test_path" -> ""),
      Seq("data.share" -> "0.3"),
      Seq("data.test_path" -> "", "data.share" -> "0.3"),
      Seq("data.scale" -> "0.01")
    )
    more.foreach { each =>
      val all = base.toMap ++ each
      val (held, heldSets) = load(new Csv, all.toSeq: _*)
      val (sharded, sets) = load(new Csv, (all ++ cut).toSeq: _*)
      assert(rows(sets.train) == rows(heldSets.train) && rows(sets.test) == rows(heldSets.test), each)
      (0 until held.trainRows).foreach(id => assert(sets.train.label(id) == heldSets.train.label(id)))
      assert((sharded.trainRows, sharded.testRows) == ((held.trainRows, held.testRows)))
      assert(held.rowsIdentity.isEmpty && sharded.rowsIdentity.contains("in 8 shards"))
      assert(sharded.description.contains("sharded"))
    }
    Seq("mean", "standard", "minmax", "channel").foreach { mode =>
      val (_, heldSets) = load(new Csv, base :+ ("data.normalize" -> mode): _*)
      val (_, sets) = load(new Csv, base ++ cut :+ ("data.normalize" -> mode): _*)
      rows(sets.train).zip(rows(heldSets.train)).foreach { case ((label, found), (wanted, values)) =>
        assert(label == wanted)
        found.zip(values).foreach { case (one, other) =>
          assert(math.abs(one - other) < 1e-5 * math.max(1, math.abs(other)))
        }
      }
    }
  }

  test(
    "readers of 1, 2, 3 and 5 workers get the same batches, each row once an epoch, through windows and across epochs"
  ) {
    val settings = prepared(cut: _*)
    def batches(workers: Int, from: Long, until: Long): Seq[Seq[(Int, Seq[Float])]] = {
      val store = folderOf(settings).open(settings).train
      val plan = BatchPlan(store.rows, 24, workers)
      val readers = (0 until workers).map(new TrainingReader(store, plan, 7, _))
      try
        Seq.range(from, until).map { step =>
          readers.flatMap { reader =>
            val batch = reader.read(step)
            (0 until batch.rows).map { row =>
              val values = Seq(batch.features.get(row * 2), batch.features.get(row * 2 + 1))
              // The first value is the row's id.
              assert(batch.ids(row) == values.head.toInt && values(1) == values.head * 0.5f)
              (batch.labels.get(row).toInt, values)
            }
          }
        }
      finally readers.foreach(_.close())
    }
    val perEpoch = BatchPlan(count, 24, 1).stepsPerEpoch.toLong
    val one = batches(1, 0, 2 * perEpoch)
    Seq(one.take(perEpoch.toInt), one.drop(perEpoch.toInt)).foreach { epoch =>
      assert(epoch.flatten.map(_._2.head.toInt).sorted == (0 until count))
    }
    Seq(2, 3, 5).foreach(workers => assert(batches(workers, 0, 2 * perEpoch) == one, s"$workers workers"))
    // Three workers go on where two were stopped.
    assert(batches(2, 0, 50) ++ batches(3, 50, 2 * perEpoch) == one)
  }

  test("a rank reads its share of the bytes once an epoch, in windows, and holds no more than two of each shard") {
    val settings = prepared(cut: _*)
    val store = folderOf(settings).sharded(settings).train
    val plan = BatchPlan(count, 24, 2)
    val visit = store.visit(plan, 7)
    val reading = visit.rows.asInstanceOf[ShardStream]
    val (ids, features, labels) =
      (new Array[Int](24), java.nio.FloatBuffer.allocate(48), java.nio.LongBuffer.allocate(24))
    val share = plan.share(0, 1)
    visit.share(share._1, share._2)
    try {
      (0 until plan.stepsPerEpoch).foreach { step =>
        val (from, until) = plan.share(step, 1)
        visit.order.ids(0, from, until, ids)
        visit.rows.readAll(ids, 0, until - from, features, labels)
      }
      val rowBytes = 2 * 4 + 4
      val own = count / 2 * rowBytes
      // With the first window of the next epoch of four shards, and single rows of the last step.
      val ahead = 4 * 256 / 8 * rowBytes
      assert(
        reading.bytesRead >= own * 0.95 && reading.bytesRead <= own * 1.05 + ahead,
        s"${reading.bytesRead} of $own"
      )
    } finally visit.close()
    val facts = folderOf(settings).facts(settings)
    assert(facts.heldBytes == 2 * 8 * (256 / 8) * rowBytesHeld, facts.heldBytes)
  }
  private val rowBytesHeld = 2 * 4 + 4L

  test("auto shards what is over data.disk_limit, and nothing else; 0 is no limit") {
    def isSharded(more: (String, String)*) = {
      val found = prepared(more: _*)
      folderOf(found).isSharded(found)
    }
    val bytes = (count + 40) * 12L
    assert(!isSharded() && !isSharded("data.disk_limit" -> bytes.toString))
    assert(isSharded("data.disk_limit" -> (bytes - 1).toString))
    assert(!isSharded("data.disk_limit" -> "0"))
    assert(!isSharded("data.disk_limit" -> "1", "data.placement" -> "replicated"))
  }

  test("what is held at a time is bounded by data.memory_limit, and said before a run") {
    val message = refusal(new Csv, base ++ cut :+ ("data.memory_limit" -> "5000"): _*)
    assertSays(message, "data.memory_limit` = 5000", "6144 bytes", "Lower `data.shuffle_buffer` (now 256)")
  }

  test("a file that is gone, short or has a wrong label while the set is read is named") {
    def reading(damage: Path => Unit): String = {
      val own = prepared(cut :+ ("data.cache_dir" -> folder.resolve(s"damaged-${System.nanoTime()}").toString): _*)
      val rows = folderOf(own)
      val store = rows.open(own).train
      val part = rows.file(rows.manifest.parts.head)
      damage(part)
      intercept[ConfigurationException] {
        val reader = new TrainingReader(store, BatchPlan(store.rows, 24, 1), 7, 0)
        try Seq.range(0L, 100L).foreach(reader.read(_))
        finally reader.close()
      }.getMessage
    }
    val local = hadoop
    def fileSystem(path: Path) = path.getFileSystem(local)
    val gone = reading { path =>
      val _ = fileSystem(path).delete(path, false)
    }
    assertSays(gone, "part-00000", "of the decoded rows", "Delete the folder")
    val short = reading { path =>
      val _ = fileSystem(path).delete(path, false)
      fileSystem(path).create(path).close()
    }
    assertSays(short, "part-00000", "of the decoded rows")
    val wrong = reading { path =>
      val stream = fileSystem(path).open(path)
      val bytes =
        try stream.readAllBytes()
        finally stream.close()
      bytes(bytes.length - 1) = 1
      val out = fileSystem(path).create(path, true)
      try out.write(bytes)
      finally out.close()
    }
    assertSays(wrong, "part-00000", "has the label 16777")
  }

  test("a set that was decoded by another run is normalised by the file that its own run made") {
    val own = prepared(cut :+ ("data.normalize" -> "standard"): _*)
    val kept = hadoop
    val directory = new Path(own(RecordSource.decodedDir))
    val files =
      directory.getFileSystem(kept).listStatus(directory).map(_.getPath).filter(_.getName.startsWith("change-standard"))
    assert(files.length == 1)
    directory.getFileSystem(kept).delete(files.head, false)
    assertSays(
      intercept[ConfigurationException]((new Csv).open(own, kept)).getMessage,
      "lacks change-standard",
      "Run again"
    )
  }
}
