package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Loader

import java.net.URL
import java.nio.file.{Files, Path}
import java.util.{Map => JavaMap}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * What JavaCPP's search for native libraries came to, kept beside the unpacked files for the next JVM. `Loader.load` asks the
 * class path for some hundred names in several spellings each, most of which no jar has, so it looks into every jar of Spark's
 * thousands of times: 1.7 s of processor time in each executor, before its first step (docs/performance.md).
 *
 * JavaCPP has no way to be told; it holds what it has found in a map of its own, `Loader.foundLibraries`, which is filled here.
 * With a JavaCPP that has no such map, and with jars that we do not bring (CUDA's), it searches as ever.
 */
private[libtorch] object FoundLibraries {
  private val Field = "foundLibraries"

  /**
   * Runs `load` with what an earlier JVM found, or notes what it finds.
   *
   * @param folder
   *   of the unpacked libraries
   * @param fingerprint
   *   of the jars; the same means the same findings
   */
  def remembering[T](folder: Path, fingerprint: String)(load: => T): T = {
    val file = folder.resolve(s"found-$fingerprint.txt")
    found match {
      case Some(map) if !NativeJars.hasOthers =>
        val known = read(file)
        known.foreach(fill(map, _))
        val result = load
        if (known.isEmpty) NativeCache.write(file, describe(map))
        result
      case _ => load
    }
  }

  /** JavaCPP's own map, by what is asked for (`mkl_rt@.2`); None where this JavaCPP has none. */
  private[libtorch] def found: Option[JavaMap[String, Array[URL]]] =
    try {
      val field = classOf[Loader].getDeclaredField(Field)
      field.setAccessible(true)
      Option(field.get(null).asInstanceOf[JavaMap[String, Array[URL]]])
    } catch { case NonFatal(_) => None }

  /**
   * A line for each name: what was asked for and, after tabs, the resources that hold it, with what they are to be called.
   * A name that the system itself had a library for has no line, so the next JVM looks there again; nor has one that was found
   * in no jar of the class path but in a folder of this host.
   */
  private[libtorch] def describe(map: JavaMap[String, Array[URL]]): Seq[String] = {
    val loaded = Loader.getLoadedLibraries
    map.asScala.toSeq.sortBy(_._1).flatMap { case (name, urls) =>
      val resources = urls.toSeq.map(resource)
      val ofSystem = urls.isEmpty && loaded.containsKey(loadedAs(name))
      if (ofSystem || resources.exists(_.isEmpty)) None else Some((name +: resources.flatten).mkString("\t"))
    }
  }

  private[libtorch] def fill(map: JavaMap[String, Array[URL]], lines: Seq[String]): Unit =
    lines.map(_.split('\t')).foreach { words =>
      val urls = words.tail.map(located)
      // A resource that is gone is searched for, and missed, by JavaCPP itself.
      if (urls.forall(_.isDefined)) map.put(words.head, urls.flatten)
    }

  private def read(file: Path): Option[Seq[String]] =
    if (Files.isRegularFile(file)) Some(Files.readAllLines(file).asScala.toSeq.filter(_.nonEmpty)) else None

  /** The key of JavaCPP's other map, of what is loaded. */
  private def loadedAs(name: String) = {
    val parts = name.stripSuffix("!").split('#')
    if (parts.length > 1 && parts(1).nonEmpty) parts(1) else parts(0)
  }

  /** `jar:file:/a.jar!/org/bytedeco/…/libmkl_rt.so.2#libopenblas.so.0` without the jar, which lies elsewhere in the next application. */
  private def resource(url: URL): Option[String] = {
    val text = url.toString
    val inside = text.indexOf("!/")
    if (url.getProtocol == "jar" && inside >= 0) Some(text.substring(inside + 2)) else None
  }

  private def located(resource: String): Option[URL] = {
    val (name, reference) = resource.span(_ != '#')
    Option(classOf[Loader].getClassLoader.getResource(name)).map(url => new URL(url.toString + reference))
  }
}
