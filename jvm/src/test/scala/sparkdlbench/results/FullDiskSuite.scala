package sparkdlbench.results

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.WriteFailure
import sparkdlbench.data.RowBlocks
import sparkdlbench.engine.libtorch.NativeCache
import sparkdlbench.rank.{DataPosition, RankSnapshot, StateRange}
import sparkdlbench.train.CheckpointStore

import java.io.IOException
import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** Each place that the JVM writes to, on a disk without room: what is said, and what is left. */
class FullDiskSuite extends AnyFunSuite {

  private def fill(place: Path): Unit = {
    val file = Files.newOutputStream(place.resolve("filler"))
    try while (true) file.write(new Array[Byte](4096))
    catch { case _: IOException => () }
    finally file.close()
  }

  private def names(place: Path): Set[String] = {
    val files = Files.list(place)
    try files.iterator.asScala.map(_.getFileName.toString).toSet
    finally files.close()
  }

  test("a run's files: what was there stays whole, nothing half written is left, and the rest goes elsewhere") {
    SmallDisk(256) { place =>
      val run = RunFolder.create(place.toString, "x")
      run.write("run.json", "before")
      fill(place)
      val (first, before) = (run.path, names(run.path))
      run.write("run.json", "after" * 10000)
      assert(run.path != first && Files.readString(run.path.resolve("run.json")).startsWith("after"))
      assert(Files.readString(first.resolve("run.json")) == "before" && names(first) == before)
      assert(run.warning.exists(said => said.contains(first.toString) && said.contains("No space left")), run.warning)
      run.close()
    }
  }

  test("checkpoints: the one before stays the newest, and nothing half written is left") {
    SmallDisk(256) { place =>
      val store = new CheckpointStore(place.toUri.toString, new Configuration())
      def part(step: Long, values: Int) =
        RankSnapshot(step, 0, 1, 0, DataPosition(5, 1, 10), 0, Seq(StateRange("weights", 0, new Array[Float](values))))
      store.write(part(1, 100))
      val error = intercept[IOException](store.write(part(2, 100000)))
      assert(WriteFailure.isFull(error), error)
      val told = WriteFailure.text("it", error, "or set checkpoint.dir")
      assert(told.contains("disk or quota is full") && told.contains("Make room there"), told)
      assert(store.newest.get.step == 1 && names(place.resolve("step-000000000002")).isEmpty)
    }
  }

  test("the native cache: no draft is left") {
    SmallDisk(256) { place =>
      fill(place)
      intercept[IOException](NativeCache.write(place.resolve("complete.txt"), Seq("x" * 100000)))
      assert(names(place) == Set("filler"))
    }
  }

  test("rows in a mapped file: room that goes away meanwhile is an error, not the end of the process") {
    val full = java.nio.file.Paths.get("/dev/full")
    assume(Files.exists(full))
    val channel = java.nio.channels.FileChannel.open(full, java.nio.file.StandardOpenOption.WRITE)
    try {
      val error =
        intercept[sparkdlbench.common.ConfigurationException](RowBlocks.reserve(channel, 1 << 20, full.getParent))
      assert(error.getMessage.contains("/dev") && error.getMessage.contains("spark.local.dir"), error.getMessage)
    } finally channel.close()
  }

  test("files of a run are not for other users of the host") {
    val run = RunFolder.create(Files.createTempDirectory("results").toString, "x")
    run.write("run.json", "{}")
    run.event("seed", 1)
    Seq("run.json", "events.jsonl").foreach { name =>
      val permissions = Files.getPosixFilePermissions(run.path.resolve(name)).asScala.map(_.toString)
      assert(!permissions.exists(_.startsWith("OTHERS")), s"$name: $permissions")
    }
    run.close()
  }
}
