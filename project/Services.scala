import sbt._

/**
 * Writes `META-INF/services` from the sources, so that adding a variant is adding one file: every top-level `final class` with no
 * constructor parameters that extends one of the service traits below, itself or through other traits, becomes a provider of it.
 * A class that looks like a variant and cannot be one fails the build.
 */
object Services {
  private val services = Seq(
    "config.Axis",
    "config.KeyGroup",
    "algorithm.Algorithm",
    "topology.Topology",
    "transport.TransportVariant",
    "codec.Codec",
    "engine.EngineVariant",
    "loss.Loss",
    "model.ModelFamily",
    "model.LayerKind",
    "engine.libtorch.TorchLayerKind",
    "engine.bigdl.BigDlLayerKind",
    "data.DataSource",
    "optimizer.OptimizerVariant",
    "optimizer.ScheduleVariant"
  ).map("sparkdlbench." + _)

  private val NotCode = "(?s)\"\"\".*?\"\"\"|\"(?:\\\\.|[^\"\\\\\n])*\"|'(?:\\\\.|[^'\\\\])'|/\\*.*?\\*/|//[^\n]*".r
  private val Package = """(?m)^package\s+([\w.]+)""".r
  private val Import = """(?m)^\s*import\s+([\w.]+)\.(\{[^}]*\}|\w+)""".r
  private val Modifier = """(?:(?:private|protected)(?:\[\w+\])?|final|sealed|abstract|implicit|case)"""
  private val Declared = s"(?m)^([ \\t]*)((?:$Modifier\\s+)*)(class|object|trait)\\s+(\\w+)".r
  private val Name = """^\s*([\w.]+)""".r

  /** A class, object or trait. @param parents as they are written @param takes whether its constructor has parameters */
  private final case class Declaration(
      source: Source,
      nested: Boolean,
      modifiers: Set[String],
      kind: String,
      name: String,
      takes: Boolean,
      parents: Seq[String]
  ) {
    def fullName: String = s"${source.packages.last}.$name"
    def hidden: Boolean = modifiers.exists(word => word.startsWith("private") || word.startsWith("protected"))
    def concrete: Boolean = kind != "trait" && !modifiers("abstract")
  }

  /**
   * @param packages
   *   the file's own last, after those whose names it sees without an import
   * @param imports
   *   (name as the file has it, or `_`; full name, or the package)
   */
  private final case class Source(file: String, packages: Seq[String], imports: Seq[(String, String)])

  def generate(sources: Seq[File], target: File): Seq[File] = {
    val texts = sources.filter(_.getName.endsWith(".scala")).map(file => file.getName -> IO.read(file))
    providers(texts).toSeq.map { case (service, names) =>
      val file = target / "META-INF" / "services" / service
      IO.write(file, names.sorted.mkString("", "\n", "\n"))
      file
    }
  }

  /** By service its providers. @param texts (file, what is in it) */
  def providers(texts: Seq[(String, String)]): Map[String, Seq[String]] = {
    val declared = texts.flatMap { case (file, text) => declarations(file, NotCode.replaceAllIn(text, " ")) }
    val known = declared.filterNot(_.nested).groupBy(_.fullName).map { case (name, same) =>
      name -> same.filter(_.kind != "object")
    }
    val found = for {
      one <- declared if one.concrete && !one.hidden
      service <- servicesOf(one, known, Set.empty)
    } yield {
      obstacle(one).foreach { why =>
        sys.error(
          s"${one.source.file}: ${one.name} is a ${service.split('.').last} and would not be found, because $why. Declare it as a top-level " +
            s"`final class ${one.name}` without constructor parameters, or make it private if it is no variant."
        )
      }
      service -> one.fullName
    }
    found.groupBy(_._1).map { case (service, all) => service -> all.map(_._2).distinct }
  }

  private def obstacle(one: Declaration): Option[String] =
    if (one.kind == "object") Some("it is an object")
    else if (one.nested) Some("it stands inside another declaration")
    else if (one.takes) Some("its constructor has parameters")
    else if (!one.modifiers("final")) Some("it is not final")
    else None

  private def servicesOf(one: Declaration, known: Map[String, Seq[Declaration]], seen: Set[String]): Set[String] =
    one.parents.flatMap(resolved(_, one.source, known)).toSet.filterNot(seen).flatMap { parent: String =>
      if (services.contains(parent)) Set(parent)
      else known(parent).flatMap(servicesOf(_, known, seen + parent)).toSet
    }

  /** The parents' full names; none where it is not of these sources. */
  private def resolved(parent: String, source: Source, known: Map[String, Seq[Declaration]]): Option[String] = {
    val imported = source.imports.collect {
      case (name, full) if name == parent => full
      case ("_", from) => s"$from.$parent"
    }
    (imported ++ source.packages.reverse.map(_ + "." + parent) :+ parent).find(known.contains)
  }

  private def declarations(file: String, code: String): Seq[Declaration] = {
    val clauses = Package.findAllMatchIn(code).map(_.group(1)).toSeq
    val imports = Import.findAllMatchIn(code).flatMap { found =>
      found.group(2).stripPrefix("{").stripSuffix("}").split(",").map(_.trim.split("\\s*=>\\s*")).map { names =>
        names.last -> (if (names.head == "_") found.group(1) else s"${found.group(1)}.${names.head}")
      }
    }
    val source =
      Source(file, clauses.scanLeft("")((outer, own) => if (outer.isEmpty) own else s"$outer.$own").tail, imports.toSeq)
    if (clauses.isEmpty) Nil
    else
      Declared.findAllMatchIn(code).toSeq.map { found =>
        val (parameters, parents) = signature(code.substring(found.end))
        val modifiers = found.group(2).split("\\s+").filter(_.nonEmpty).toSet
        Declaration(source, found.group(1).nonEmpty, modifiers, found.group(3), found.group(4), parameters, parents)
      }
  }

  /** What stands behind a declaration's name: whether there are constructor parameters, and the parents. */
  private def signature(behind: String): (Boolean, Seq[String]) = {
    var rest = unbracketed(behind, '[', ']').trim.replaceFirst("""^(?:private|protected)(?:\[\w+\])?(?=\s*\()""", "")
    val parameters = rest.startsWith("(") && !rest.drop(1).trim.startsWith(")")
    rest = withoutArguments(rest)
    var parents = Seq.empty[String]
    var word = "extends"
    while (rest.trim.matches(s"(?s)$word\\s.*")) {
      rest = rest.trim.drop(word.length)
      Name.findFirstMatchIn(rest).foreach { name =>
        parents :+= name.group(1)
        rest = rest.substring(name.end)
      }
      rest = withoutArguments(unbracketed(rest, '[', ']'))
      word = "with"
    }
    (parameters, parents)
  }

  private def withoutArguments(text: String): String =
    if (text.trim.startsWith("(")) withoutArguments(unbracketed(text, '(', ')')) else text

  /** The text without what it begins with in brackets; the text itself where it begins otherwise. */
  private def unbracketed(text: String, open: Char, close: Char): String = {
    val start = text.indexWhere(!_.isWhitespace)
    if (start < 0 || text(start) != open) text
    else {
      val depths = text.substring(start).iterator.scanLeft(0) { (depth, char) =>
        if (char == open) depth + 1 else if (char == close) depth - 1 else depth
      }
      text.substring(start + math.max(1, depths.indexOf(0, 1)))
    }
  }
}
