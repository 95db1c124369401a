package sparkdlbench.transport

import org.scalatest.Assertions
import sparkdlbench.transport.ucx.UcxLibraries

import java.io.File
import java.nio.file.{Files, Path, Paths}

/** What transports need besides Spark, where their installers put it. A test that needs what is not there is cancelled. */
private[transport] object Installed extends Assertions {

  /** The executors' class path for transport `ucx`: this JVM's folders, and the jar that `sparkdl-bench jars fetch --ucx` brings. */
  def forUcx: (String, String) = {
    assumeUcx()
    val folders = sys.props("java.class.path").split(File.pathSeparator).filterNot(_.endsWith(".jar")).toSeq
    "spark.executor.extraClassPath" -> (folders :+ ucxJar.toString).mkString(File.pathSeparator)
  }

  /** For an application in which other transports are tested too: the same, or nothing where it is not there. */
  def forUcxIfThere: Seq[(String, String)] = if (Files.isRegularFile(ucxJar)) Seq(forUcx) else Nil

  def assumeUcx(): Unit =
    assume(Files.isRegularFile(ucxJar), s"$ucxJar is not there: bring it with `sparkdl-bench jars fetch --ucx`"): Unit

  private def ucxJar: Path =
    cache.resolve(s"sparkdl-bench/jars/optional/ucx-libraries-${UcxLibraries.Version}-linux-x86_64.jar")

  /** For transport `mpi`. */
  def assumeMpi(): Unit = {
    val python = Paths.get(sys.props("user.home"), ".cache/sparkdl-bench/peers/mpi/bin/python")
    assume(Files.isExecutable(python), s"$python is not there: bring it with `sparkdl-bench peers install mpi`")
  }

  private def cache: Path = sys.env
    .get("XDG_CACHE_HOME")
    .filter(_.nonEmpty)
    .map(Paths.get(_))
    .getOrElse(Paths.get(sys.props("user.home"), ".cache"))
}
