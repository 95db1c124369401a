package sparkdlbench

import org.scalatest.Assertions

import java.nio.file.{Files, Path, Paths}

/**
 * Finds the shared data sets: in the folder named by SPARKDL_DATA, otherwise in `shared/data` beside the checkout or
 * above it.
 */
object TestData extends Assertions {
  def folder: Option[Path] = sys.env.get("SPARKDL_DATA").map(Paths.get(_)).orElse {
    Iterator
      .iterate(Paths.get("").toAbsolutePath)(_.getParent)
      .takeWhile(_ != null)
      .map(_.resolve("shared").resolve("data"))
      .find(Files.isDirectory(_))
  }

  /**
   * The folder `name` of the shared data sets; a test that asks for one that is not there is cancelled, with the
   * reason.
   */
  def require(name: String): Path = folder.map(_.resolve(name)).filter(Files.isDirectory(_)).getOrElse {
    cancel(s"the shared data set '$name' is not here; set SPARKDL_DATA to the folder that holds it")
  }
}
