package sparkdlbench.engine.libtorch

import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** BigDL's jars where `sparkdl-bench peers install bigdl` puts them; tests that need them skip without. */
object BigDlJars {
  def fit: Boolean = util.Properties.versionNumberString.startsWith("2.12.")

  def found: Seq[String] = {
    val folder = Paths.get(
      sys.env.getOrElse("XDG_CACHE_HOME", s"${sys.props("user.home")}/.cache"),
      "sparkdl-bench",
      "peers",
      "bigdl",
      "lib"
    )
    if (!Files.isDirectory(folder)) Nil
    else {
      val all = Files.walk(folder)
      // And the rest of a whole Spark, which the tests' class path is not: BigDL's tensors know MLlib's.
      try all.iterator.asScala.flatMap(path => entry(path).toList).toList.sorted
      finally all.close()
    }
  }

  private def entry(path: Path): Option[String] = path.toString match {
    case jar if jar.endsWith(".jar") && jar.contains("/bigdl/share/") => Some(jar)
    case jars if jars.endsWith("/pyspark/jars") => Some(s"$jars/*")
    case _ => None
  }
}
