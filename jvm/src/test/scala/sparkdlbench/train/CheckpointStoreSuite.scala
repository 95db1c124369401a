package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.rank.{CheckpointAuthor, DataPosition, RankSnapshot, StateRange}

import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.Locale
import java.util.concurrent.{BrokenBarrierException, CyclicBarrier, Executors, TimeUnit}
import scala.util.Try

class CheckpointStoreSuite extends AnyFunSuite {
  private val ranks = 4

  private def part(step: Long, rank: Int): RankSnapshot =
    RankSnapshot(
      step,
      rank,
      ranks,
      0,
      DataPosition(50, 1, 1438),
      0.0,
      Seq(StateRange("weights", rank, Array(step.toFloat)))
    )

  private def folders(of: Path): Set[String] = of.toFile.list().toSet

  test("names have the digits that are looked for, whatever the locale's are") {
    val before = Locale.getDefault
    Locale.setDefault(Locale.forLanguageTag("fa-IR-u-nu-arabext"))
    try {
      val folder = Files.createTempDirectory("checkpoints")
      val store = new CheckpointStore(folder.toUri.toString, new Configuration())
      (0 until ranks).foreach(rank => store.write(part(7, rank)))
      assert(folders(folder).contains("step-000000000007") && store.complete == Seq(7L))
    } finally Locale.setDefault(before)
  }

  test("ranks that prune at the same moment leave the newest checkpoints and nothing else") {
    val folder = Files.createTempDirectory("checkpoints")
    val together = new CyclicBarrier(ranks)
    val pool = Executors.newFixedThreadPool(ranks)
    val steps = 200L
    try {
      val done = (0 until ranks).map { rank =>
        pool.submit[Option[Throwable]] { () =>
          val store = new CheckpointStore(folder.toUri.toString, new Configuration())
          val all = Try((1L to steps).foreach { step =>
            store.write(part(step, rank))
            together.await(60, TimeUnit.SECONDS)
            store.prune(keep = 2, "run")
          })
          if (all.isFailure) together.reset() // for the others not to wait
          all.failed.toOption.filterNot(_.isInstanceOf[BrokenBarrierException])
        }
      }
      assert(done.flatMap(_.get(120, TimeUnit.SECONDS)).isEmpty)
    } finally pool.shutdownNow()
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    assert(store.complete == Seq(steps, steps - 1))
    assert(folders(folder) == (steps - 1 to steps).map(step => f"step-$step%012d").toSet)
    assert(store.newest.get.vector("weights", ranks).get.toSeq == Seq.fill(ranks)(steps.toFloat))
  }

  test("what another number of ranks left goes too, and of an incomplete checkpoint nothing counts") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    for (step <- 1L to 4L; rank <- 0 until ranks if step < 4 || rank > 0) store.write(part(step, rank))
    store.write(part(1, 0).copy(size = 2))
    assert(store.complete == Seq(3, 2, 1))
    store.prune(keep = 1, "run")
    assert(store.complete == Seq(3) && folders(folder).size == 2)
    assert(new CheckpointStore(folder.resolve("nowhere").toUri.toString, new Configuration()).newest.isEmpty)
    assert(store.hasAny(0, ranks) && !store.hasAny(ranks, ranks) && !store.hasAny(0, 2))
  }

  test("after a return to an older checkpoint what is written counts, and not what could not be read") {
    val folder = Files.createTempDirectory("checkpoints")
    val before = new CheckpointStore(folder.toUri.toString, new Configuration())
    for (step <- 1L to 3L; rank <- 0 until ranks) before.write(part(step, rank))
    val others = CheckpointAuthor("other", 0)
    (0 until ranks).foreach(rank => before.write(part(9, rank).copy(author = others)))
    for (step <- Seq(2L, 3L)) {
      val damaged = file(folder, step, s"rank-1-of-$ranks.run-0")
      val bytes = Files.readAllBytes(damaged)
      bytes(bytes.length - 1) = (bytes.last ^ 1).toByte
      Files.write(damaged, bytes)
    }
    assert(before.newest(Long.MaxValue, Some("run")).map(_.step).contains(1L))
    val store = new CheckpointStore(folder.toUri.toString, new Configuration()) // the retry's
    store.removeAfter(1, "run")
    assert(store.complete == Seq(9L, 1L), "its own alone")
    (0 until ranks).foreach { rank =>
      store.write(part(2, rank).copy(author = CheckpointAuthor("run", 1)))
      store.prune(keep = 2, "run")
    }
    assert(store.complete(Some("run")) == Seq(2L, 1L))
    assert(store.newest(Long.MaxValue, Some("run")).map(_.parts.map(_.author.attempt)).contains(Seq.fill(ranks)(1)))
  }

  test("pruning looks at a checkpoint once, however many are kept") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    def write(step: Long): Unit = {
      (0 until ranks).foreach(rank => store.write(part(step, rank)))
      store.prune(keep = 3, "run")
    }
    (1L to 4L).foreach(write)
    assert(store.complete == Seq(4, 3, 2))
    // It would not count any more if it were looked at.
    Files.delete(folder.resolve("step-000000000003").resolve(CheckpointManifest.File))
    write(5)
    assert(folders(folder) == Set("step-000000000003", "step-000000000004", "step-000000000005"))
  }

  test("a damaged checkpoint is passed over for the one before") {
    val author = 2 + "run".length + 4
    val (begin, name) = (8 + author + 8 + 4 + 4 + 4 + (16 + 2) + 8 + 4, 2 + "weights".length)
    val (length, value) = (begin + name + 4, begin + name + 8)
    val damages: Seq[(String, Array[Byte] => Array[Byte])] = Seq(
      "a value" -> { bytes => bytes(value) = (bytes(value) ^ 1).toByte; bytes },
      "a length" -> { bytes => bytes(length) = 0x7f; bytes },
      "a negative length" -> { bytes => bytes(length) = -1; bytes },
      "a name's length" -> { bytes => bytes(begin) = 0x7f; bytes },
      "the end" -> (_.dropRight(3)),
      "everything" -> (_ => Array.emptyByteArray)
    )
    for ((what, damage) <- damages) {
      val folder = Files.createTempDirectory("checkpoints")
      val store = two(folder)
      val file = folder.resolve("step-000000000002").resolve(s"rank-1-of-$ranks.run-0")
      val before = Files.size(file)
      Files.write(file, damage(Files.readAllBytes(file)))
      assert(store.complete == (if (Files.size(file) == before) Seq(2, 1) else Seq(1)), what)
      assert(store.newest.map(_.step).contains(1L), what)
    }
  }

  /** Checkpoints of all ranks after steps 1 and 2. */
  private def two(folder: Path): CheckpointStore = {
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    for (step <- 1L to 2L; rank <- 0 until ranks) store.write(part(step, rank))
    store
  }

  private def file(folder: Path, step: Long, name: String): Path = folder.resolve(f"step-$step%012d").resolve(name)

  private def copy(from: Path, to: Path): Unit = { val _ = Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING) }

  test(
    "files that were mixed are refused by name: of another rank, another step, another run, with bytes after the end"
  ) {
    val other = Files.createTempDirectory("other-run")
    val strangers = new CheckpointStore(other.toUri.toString, new Configuration())
    val author = CheckpointAuthor("other", 0)
    (0 until ranks).foreach(rank => strangers.write(part(2, rank).copy(author = author)))
    val name = (rank: Int) => s"rank-$rank-of-$ranks.run-0"
    val mixes: Seq[(String, Path => Unit)] = Seq(
      "its rank is 0, and the manifest says 1" -> { folder =>
        copy(file(folder, 2, name(0)), file(folder, 2, name(1)))
        copy(file(folder, 2, name(0) + ".json"), file(folder, 2, name(1) + ".json"))
      },
      "its step is 1, and the manifest says 2" -> (folder => copy(file(folder, 1, name(1)), file(folder, 2, name(1)))),
      "it is of step 1" -> (folder => copy(file(folder, 1, "manifest.json"), file(folder, 2, "manifest.json"))),
      "rank-0-of-4.other-0 is not there" -> (folder =>
        copy(file(other, 2, "manifest.json"), file(folder, 2, "manifest.json"))
      ),
      "should have" -> { folder =>
        val whole = Files.readAllBytes(file(folder, 2, name(1)))
        val _ = Files.write(file(folder, 2, name(1)), whole :+ 0.toByte)
      }
    )
    for ((told, mix) <- mixes) {
      val folder = Files.createTempDirectory("checkpoints")
      val store = two(folder)
      mix(folder)
      val why = store.load(2).left.getOrElse("it was read")
      assert(why.contains(told), why)
      assert(store.newest.map(_.step).contains(1L), told)
    }
  }

  test("bytes after the end are refused where the manifest counts them, too") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = two(folder)
    val target = file(folder, 2, s"rank-1-of-$ranks.run-0")
    val whole = Files.readAllBytes(target)
    Files.write(target, whole :+ 0.toByte)
    val manifest = file(folder, 2, "manifest.json")
    val text = Files.readString(manifest)
    val (before, after) = text.splitAt(text.indexOf("rank-1-of"))
    Files.writeString(manifest, before + after.replaceFirst(s": ${whole.length},", s": ${whole.length + 1},"))
    val why = store.load(2).left.getOrElse("it was read")
    assert(why.contains("bytes after its end"), why)
  }

  test("ranges with a gap or an overlap, parts at other places in the data: no checkpoint is made of them") {
    val cases: Seq[(String, RankSnapshot => RankSnapshot)] = Seq(
      "values 2 to 2 are missing" -> (each => each.copy(ranges = Seq(StateRange("weights", 3, Array(1f))))),
      "values 1 to 1 are there twice" -> (each => each.copy(ranges = Seq(StateRange("weights", 1, Array(1f, 2f))))),
      "rank 2 is at" -> (each => each.copy(data = each.data.copy(seed = 9)))
    )
    for ((told, change) <- cases) {
      val store = new CheckpointStore(Files.createTempDirectory("checkpoints").toUri.toString, new Configuration())
      Seq(0, 1, 3).foreach(rank => store.write(part(1, rank)))
      val message = intercept[java.io.IOException](store.write(change(part(1, 2)))).getMessage
      assert(message.contains(told), message)
      assert(store.newest.isEmpty)
    }
  }

  test("parts of two runs, or of two attempts, on one folder never make one checkpoint") {
    val store = new CheckpointStore(Files.createTempDirectory("checkpoints").toUri.toString, new Configuration())
    (0 until ranks).foreach { rank =>
      val author = Seq(CheckpointAuthor("run", 0), CheckpointAuthor("run", 1), CheckpointAuthor("other", 0))(rank % 3)
      store.write(part(1, rank).copy(author = author))
    }
    assert(store.newest.isEmpty && store.begun == Seq(1))
    (0 until ranks).foreach(rank => store.write(part(1, rank).copy(author = CheckpointAuthor("run", 1))))
    assert(store.newest.get.parts.map(_.author).toSet == Set(CheckpointAuthor("run", 1)))
    assert(store.newest(Long.MaxValue, Some("other")).isEmpty)
  }

  test("a checkpoint of an earlier layout is refused by name, with what to do") {
    val folder = Files.createTempDirectory("checkpoints")
    val step = Files.createDirectories(folder.resolve("step-000000000500"))
    val old = java.nio.ByteBuffer.allocate(64).putLong(0x5350444c434b5003L)
    Files.write(step.resolve("rank-0-of-1"), old.array)
    val message =
      intercept[sparkdlbench.common.ConfigurationException](
        CheckpointStore.require(folder.toUri.toString, new Configuration())
      ).getMessage
    assert(message.contains("after step 500") && message.contains("earlier version of sparkdl-bench"), message)
  }

  test("whatever becomes of a file, the newest checkpoint or the one before is read, never a mixture") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = two(folder)
    val whole = (1L to 2L).map(step => step -> store.read(step).get.vector("weights", ranks).get.toSeq).toMap
    val names = Files.list(folder.resolve("step-000000000002")).toArray.map(_.asInstanceOf[Path])
    val random = new java.util.Random(7)
    var passedOver = 0
    (0 until 800).foreach { turn =>
      val target = names(random.nextInt(names.length))
      val kept = Files.readAllBytes(target)
      val changed = random.nextInt(4) match {
        case 0 => kept.take(random.nextInt(kept.length))
        case 1 => kept ++ Array.fill(1 + random.nextInt(9))(random.nextInt().toByte)
        case 2 => Files.readAllBytes(names(random.nextInt(names.length)))
        case _ =>
          val flipped = kept.clone()
          val at = random.nextInt(flipped.length)
          flipped(at) = (flipped(at) ^ (1 << random.nextInt(8))).toByte
          flipped
      }
      Files.write(target, changed)
      val found = store.newest.get
      assert(found.vector("weights", ranks).get.toSeq == whole(found.step), s"turn $turn, ${target.getFileName}")
      if (found.step == 1) passedOver += 1
      Files.write(target, kept)
    }
    assert(passedOver > 300, passedOver)
  }

  test("a disk that is full, or a crash, at any moment of writing: the checkpoint before is there, or the new one") {
    val folder = Files.createTempDirectory("checkpoints")
    var failures = 0
    Iterator.from(0).take(400).find { operations =>
      delete(folder)
      val hadoop = new Configuration()
      hadoop.setClass("fs.failing.impl", classOf[FailingFileSystem], classOf[org.apache.hadoop.fs.FileSystem])
      val failing = new CheckpointStore(s"failing://${folder.toUri.getPath}", hadoop)
      FailingFileSystem.left.set(Int.MaxValue)
      (0 until ranks).foreach(rank => failing.write(part(1, rank)))
      FailingFileSystem.left.set(operations)
      val outcome = Try((0 until ranks).foreach { rank =>
        failing.write(part(2, rank))
        failing.prune(keep = 1, "run")
      })
      FailingFileSystem.left.set(Int.MaxValue)
      val read = new CheckpointStore(folder.toUri.toString, new Configuration()).newest
      assert(read.nonEmpty, s"after $operations operations nothing is left")
      assert(read.get.vector("weights", ranks).get.toSeq == Seq.fill(ranks)(read.get.step.toFloat))
      outcome.failed.foreach { cause =>
        assert(sparkdlbench.common.WriteFailure.isFull(cause), cause)
        failures += 1
      }
      outcome.isSuccess
    }
    assert(failures > 20, failures)
  }

  private def delete(folder: Path): Unit =
    Files.walk(folder).sorted(java.util.Comparator.reverseOrder[Path]).forEach(Files.delete(_))
}
