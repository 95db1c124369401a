import sbt._

import java.util.Properties

/** The native libraries as `natives.properties` lists them; `sparkdl-bench jars fetch` reads the same file. */
object Natives {
  def modules(file: File, platform: String): Seq[ModuleID] = {
    val properties = new Properties
    IO.load(properties, file)
    def words(key: String): Seq[String] = {
      val value = properties.getProperty(key)
      if (value == null) sys.error(s"$file has no line '$key='")
      value.trim.split("\\s+").toSeq
    }
    val organization = words("organization").head
    for {
      name <- words("artifacts")
      module = organization % name % words(s"$name.version").head
      classifiers = if (words(s"$name.platforms").contains(platform)) words(s"$name.classifiers") else Nil
      if classifiers.nonEmpty
      each <- module +: classifiers.map(pattern => module.classifier(pattern.replace("{platform}", platform)))
    } yield each
  }
}
