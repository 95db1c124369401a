import sbt._

import java.nio.file.{Files, Path, StandardCopyOption}

import scala.util.Try

/** Fills a folder with exactly the jars given: hard links into the build's cache where the file system allows, else copies. */
object StageJars {
  def stage(folder: File, built: File, dependencies: Seq[File]): File = {
    val jars = built +: dependencies
    IO.createDirectory(folder)
    val wanted = jars.map(jar => jar.getName -> jar).toMap
    require(wanted.size == jars.size, s"two jars of one name among ${jars.mkString(", ")}")
    IO.listFiles(folder).filterNot(file => wanted.contains(file.getName)).foreach(IO.delete(_))
    // The build writes its own jar again in place, under the feet of whoever has a link to it mapped: copied.
    place(built, folder / built.getName)(Files.copy(_, _))
    dependencies.foreach { jar =>
      val target = folder / jar.getName
      if (!target.exists || !Files.isSameFile(jar.toPath, target.toPath))
        place(jar, target)((from, to) => Try(Files.createLink(to, from)).getOrElse(Files.copy(from, to)))
    }
    folder
  }

  private def place(source: File, target: File)(copy: (Path, Path) => Any): Unit = {
    // A running JVM may have the old file mapped: the new one is made beside it and moved over, never written into.
    val fresh = new File(target.getParentFile, target.getName + ".new")
    IO.delete(fresh)
    copy(source.toPath, fresh.toPath)
    Files.move(fresh.toPath, target.toPath, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE)
  }
}
