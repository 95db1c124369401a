package sparkdlbench.transport.mpi

import sparkdlbench.ConfigurationException

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.TimeUnit

/** The programs that an MPI job needs on this host. */
private[transport] object MpiPrograms {
  private val VersionSeconds = 20L

  /** @param configured the key `mpi.python` */
  def python(configured: String): Path = configured match {
    case "auto" =>
      val installed = Paths.get(System.getProperty("user.home"), ".cache/sparkdl-bench/peers/mpi/bin/python")
      if (Files.isExecutable(installed)) installed
      else onPath("python3").getOrElse(missing(s"there is neither $installed nor a python3 on the PATH"))
    case path =>
      val program = Paths.get(path).toAbsolutePath
      if (Files.isExecutable(program)) program else missing(s"mpi.python = $path is no program")
  }

  /** @param configured the key `mpi.launcher` */
  def launcher(configured: String, python: Path): Path = {
    val program = configured match {
      case "auto" =>
        val beside = python.resolveSibling("mpiexec")
        if (Files.isExecutable(beside)) beside
        else onPath("mpiexec").getOrElse(missing(s"there is no mpiexec, neither beside $python nor on the PATH"))
      case path if Files.isExecutable(Paths.get(path)) => Paths.get(path).toAbsolutePath
      case path => missing(s"mpi.launcher = $path is no program")
    }
    val said = version(program)
    if (!said.contains("Open MPI") || !"""\b(\d+)\.\d+""".r.findFirstMatchIn(said).exists(_.group(1).toInt >= 5))
      missing(s"$program is not Open MPI 5 or later: it says '${said.linesIterator.take(1).mkString}'")
    program
  }

  /** The launcher looks for its own helpers on the PATH. @param more folders for it, besides that of `program` */
  def environment(builder: ProcessBuilder, program: Path, more: Path*): Unit = {
    val path = Option(builder.environment().get("PATH")).getOrElse("/usr/bin:/bin")
    val folders = program.getParent +: more
    builder.environment().put("PATH", (folders.map(_.toString) :+ path).mkString(File.pathSeparator)): Unit
  }

  private def version(program: Path): String = {
    val builder = new ProcessBuilder(program.toString, "--version").redirectErrorStream(true)
    environment(builder, program)
    val process = builder.start()
    if (!process.waitFor(VersionSeconds, TimeUnit.SECONDS)) {
      process.destroyForcibly()
      missing(s"$program --version did not end within $VersionSeconds s")
    }
    new String(process.getInputStream.readAllBytes(), UTF_8).trim
  }

  private def onPath(name: String): Option[Path] =
    sys.env
      .getOrElse("PATH", "")
      .split(File.pathSeparatorChar)
      .filter(_.nonEmpty)
      .map(Paths.get(_, name))
      .find(Files.isExecutable(_))

  private def missing(what: String): Nothing = throw new ConfigurationException(
    s"Transport mpi needs a Python with mpi4py on every host and Open MPI 5, and on ${java.net.InetAddress.getLocalHost.getHostName} $what. Run `sparkdl-bench " +
      "peers install mpi` on every host, as the user of the executors, or set mpi.python and mpi.launcher to those of a system MPI. Or use transport tcp, " +
      "which needs neither."
  )
}
