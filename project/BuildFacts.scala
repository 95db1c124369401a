import sbt._

import scala.sys.process._
import scala.util.Try

/** What a jar knows of its own making: `sparkdlbench/build.properties`, copied into every run's result. */
object BuildFacts {
  def generate(
      target: File,
      base: File,
      version: String,
      sparkLine: String,
      sparkVersion: String,
      scala: String
  ): Seq[File] = {
    def git(arguments: String*): Option[String] =
      Try(Process("git" +: arguments, base).!!(ProcessLogger(_ => ())).trim).toOption
    val facts = Seq(
      "version" -> version,
      "spark_line" -> sparkLine,
      "spark_version" -> sparkVersion,
      "scala" -> scala,
      "commit" -> git("rev-parse", "HEAD").getOrElse("unknown"),
      "dirty" -> git("status", "--porcelain").fold("unknown")(_.nonEmpty.toString)
    )
    val file = target / "sparkdlbench" / "build.properties"
    val text = facts.map { case (key, value) => s"$key=$value\n" }.mkString
    if (!file.exists || IO.read(file) != text) IO.write(file, text)
    Seq(file)
  }
}
