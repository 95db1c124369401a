import sbt._

/** The version of jars and wheel, from the one file that states it; pyproject.toml reads the same. */
object SharedVersion {
  private val Line = """(?m)^__version__ = "([^"]+)"$""".r

  def read(file: File): String =
    Line
      .findFirstMatchIn(IO.read(file))
      .map(_.group(1))
      .getOrElse(sys.error(s"""$file has no line '__version__ = "…"': write the version there, and nowhere else"""))
}
