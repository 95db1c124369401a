package sparkdlbench.transport
package push

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{MappedFile, ProcessMark}

import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

class HostLocalSuite extends AnyFunSuite {
  private val lanes = Seq(Lane(5, 0, 1, 100), Lane(2, 0, 1, 0), Lane(9, 0, 1, 4096))
  private val bytes = HostLocalSegment.bytes(lanes)

  private def withFolder[T](body: Path => T): T = {
    val folder = Files.createTempDirectory("host-local-suite")
    try body(folder)
    finally { files(folder).foreach(Files.delete(_)); Files.delete(folder) }
  }

  private def files(folder: Path): Seq[Path] = {
    val all = Files.list(folder);
    try all.iterator.asScala.toList
    finally all.close()
  }

  test("two mappings of one file prove that they are the same memory and carry messages") {
    withFolder { folder =>
      val made = HostLocalSegment.create(Seq(folder), bytes).get
      assert(PosixFilePermissions.toString(Files.getPosixFilePermissions(Paths.get(made.offer.path))) == "rw-------")
      assert(Files.size(Paths.get(made.offer.path)) == bytes)
      val attached = HostLocalSegment.attach(made.offer).get
      assert(!made.isAnswered)
      attached.answer()
      assert(made.isAnswered)
      made.unlink()
      assert(files(folder).isEmpty)
      val (readers, writers) = (made.slots(lanes, _ => None), attached.slots(lanes.reverse, _ => None))
      assert(readers.map(_.lane) == writers.map(_.lane))
      for (sequence <- 0L until 4L; (reader, writer) <- readers.zip(writers)) {
        val length = writer.lane.capacity
        val message = writer.claim(sequence, length)
        while (message.hasRemaining) message.put((message.position() + sequence + writer.lane.id).toByte)
        assert(!reader.hasArrived(sequence))
        writer.publish(sequence, length)
        assert(reader.hasArrived(sequence))
        val seen = reader.view(sequence)
        assert(
          seen.remaining == length && (0 until length).forall(i =>
            seen.get(i) == (i + sequence + writer.lane.id).toByte
          )
        )
        reader.release(sequence)
      }
    }
  }

  test("a file that is not the one offered is not taken for it") {
    withFolder { folder =>
      val made = HostLocalSegment.create(Seq(folder), bytes).get
      val other = HostLocalSegment.create(Seq(folder), bytes).get
      assert(HostLocalSegment.attach(made.offer.copy(nonce = other.offer.nonce)).isEmpty)
      assert(HostLocalSegment.attach(made.offer.copy(path = other.offer.path)).isEmpty)
      assert(HostLocalSegment.attach(made.offer.copy(bytes = bytes + 1)).isEmpty)
      assert(
        HostLocalSegment.attach(made.offer.copy(path = folder.resolve("sparkdl-host-local-none").toString)).isEmpty
      )
      assert(HostLocalSegment.attach(made.offer.copy(path = "/etc/hostname")).isEmpty)
      other.unlink()
      made.unlink()
      made.unlink()
    }
  }

  test("what a killed process has left goes when the next file is made; what may be a living process' stays") {
    val own = ProcessMark.own.getOrElse(cancel("/proc does not tell this process' number, start and namespaces"))
    assert(ProcessMark.parse(own.print).contains(own) && !own.hasEnded)
    withFolder { folder =>
      def plant(name: String): Path = Files.createFile(folder.resolve(s"sparkdl-host-local-$name"))
      val sleeper = new ProcessBuilder("sleep", "300").start()
      try {
        val other = own.copy(pid = sleeper.pid, start = ProcessMark.startOf(sleeper.pid))
        val living = plant(s"${other.print}-1")
        val reused = plant(s"${own.copy(start = own.start + 1).print}-2")
        val unsure = Seq(
          plant("123456789"),
          plant(s"${own.copy(start = own.start + 1).print}"),
          plant(s"${other.copy(pidNamespace = 1, start = 1).print}-3"),
          plant(s"${other.copy(timeNamespace = 1, start = 1).print}-4"),
          plant(s"${other.copy(boot = "0" * 32, start = 1).print}-5"),
          Files.createFile(folder.resolve(s"sparkdl-mpi-${own.copy(start = own.start + 1).print}-6"))
        )
        val first = HostLocalSegment.create(Seq(folder), bytes).get
        val made = Paths.get(first.offer.path)
        assert(made.getFileName.toString.startsWith(s"sparkdl-host-local-${own.print}-"))
        assert(files(folder).toSet == unsure.toSet + living + made && !Files.exists(reused))
        sleeper.destroyForcibly().waitFor()
        val second = HostLocalSegment.create(Seq(folder), bytes).get
        assert(files(folder).toSet == unsure.toSet + made + Paths.get(second.offer.path))
        // The one that is left is taken for what it is all the same.
        assert(HostLocalSegment.attach(first.offer).isDefined)
      } finally sleeper.destroyForcibly(): Unit
    }
  }

  test("the folder of a killed process goes with all that is in it; that of a living one, and a stranger's, stay") {
    val own = ProcessMark.own.getOrElse(cancel("/proc does not tell this process' number, start and namespaces"))
    withFolder { place =>
      def plant(name: String, mark: Option[ProcessMark]): Path = {
        val folder = Files.createDirectories(place.resolve(s"sparkdl-mpi-$name").resolve("rank")).getParent
        Files.write(folder.resolve("rank").resolve("job.json"), "a secret".getBytes)
        mark.foreach(one => Files.write(folder.resolve(".owner"), one.print.getBytes))
        folder
      }
      val killed = plant("1", Some(own.copy(start = own.start + 1)))
      val stay = Seq(plant("2", Some(own)), plant("3", None), plant("4", Some(own.copy(boot = "0" * 32, start = 1))))
      val mine = Files.createDirectory(place.resolve("sparkdl-mpi-5"))
      MappedFile.own(mine)
      MappedFile.removeLeftFolders(place, "sparkdl-mpi-")
      assert(!Files.exists(killed))
      assert((mine +: stay).forall(Files.exists(_)))
      MappedFile.removeLeftFolders(place.resolve("not-there"), "sparkdl-mpi-")
      val left = Files.walk(place)
      try left.iterator.asScala.toSeq.reverse.filter(_ != place).foreach(Files.delete)
      finally left.close()
    }
  }

  test("a folder that cannot hold the file is passed over, and none is no error") {
    withFolder { folder =>
      val missing = folder.resolve("not-there")
      assert(HostLocalSegment.create(Seq(missing), bytes).isEmpty)
      val made = HostLocalSegment.create(Seq(missing, folder), bytes).get
      assert(Paths.get(made.offer.path).getParent == folder)
      made.unlink()
      assert(HostLocalSegment.create(Seq(folder), Int.MaxValue.toLong + 1).isEmpty)
    }
  }
}
