package sparkdlbench.results

import org.scalatest.Assertions.cancel

import java.nio.file.{Files, Path}
import scala.sys.process._

/** A file system of its own with little room, for as long as `use` lasts; needs root, otherwise the test is cancelled. */
object SmallDisk {
  def apply(kibibytes: Int)(use: Path => Unit): Unit = {
    val place = Files.createTempDirectory("small-disk")
    val quiet = ProcessLogger(_ => ())
    if (Seq("mount", "-t", "tmpfs", "-o", s"size=${kibibytes}k,mode=700", "none", place.toString).!(quiet) != 0)
      cancel("a file system can be mounted by root alone")
    try use(place)
    finally {
      // Lazily: Hadoop's local files leave theirs open where closing them fails.
      val _ = Seq("umount", "-l", place.toString).!(quiet)
      Files.deleteIfExists(place): Unit
    }
  }
}
