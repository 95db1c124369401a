package sparkdlbench.fuzz

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** All targets, found among the compiled tests, and their inputs in tests/fuzz. */
object FuzzTargets {
  private val Marked = """(.*/fuzz/\w+Fuzz)\.class""".r

  /** By name. */
  lazy val all: Seq[FuzzTarget] = {
    val root = Paths.get(classOf[FuzzTarget].getProtectionDomain.getCodeSource.getLocation.toURI)
    val files = Files.walk(root)
    val names =
      try files.iterator.asScala.map(file => root.relativize(file).toString).toList
      finally files.close()
    names
      .collect { case Marked(path) => path.replace('/', '.') }
      .map(name => Class.forName(name + "$").getField("MODULE$").get(null).asInstanceOf[FuzzTarget])
      .sortBy(_.name)
  }

  /**
   * The inputs that a target's file in tests/fuzz keeps: one a line, bytes as ISO 8859-1, `\\`, `\n` and `\xNN` for what a line of text cannot hold. Lines that begin with `#`
   * say what comes next.
   */
  def kept(name: String): Seq[Array[Byte]] = {
    val file = folder.resolve(s"$name.txt")
    if (!Files.exists(file)) Nil
    else
      Files.readAllLines(file, UTF_8).asScala.toList.filterNot(line => line.isEmpty || line.startsWith("#")).map(bytes)
  }

  lazy val folder: Path = Iterator
    .iterate(Paths.get("").toAbsolutePath)(_.getParent)
    .takeWhile(_ != null)
    .map(_.resolve("tests").resolve("fuzz"))
    .find(Files.isDirectory(_))
    .getOrElse(throw new IllegalStateException("tests/fuzz is not above the working folder"))

  private val Escape = """\\(?:x([0-9a-f]{2})|(\\)|(n))""".r

  private[fuzz] def bytes(line: String): Array[Byte] = Escape
    .replaceAllIn(
      line,
      found =>
        java.util.regex.Matcher.quoteReplacement(
          if (found.group(1) != null) Integer.parseInt(found.group(1), 16).toChar.toString
          else if (found.group(2) != null) "\\"
          else "\n"
        )
    )
    .getBytes(ISO_8859_1)

  /** Writes each target's inputs into a folder of its own, and prints `name class` of each, for `project/fuzz.py`. */
  def main(arguments: Array[String]): Unit = all.foreach { target =>
    val to = Files.createDirectories(Paths.get(arguments.head).resolve(target.name))
    (target.seeds ++ kept(target.name)).zipWithIndex.foreach { case (input, number) =>
      Files.write(to.resolve(s"kept-$number"), input)
    }
    println(s"${target.name} ${target.getClass.getName.stripSuffix("$")}")
  }
}
