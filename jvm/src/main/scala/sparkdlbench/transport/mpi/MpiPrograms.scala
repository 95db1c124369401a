package sparkdlbench.transport.mpi

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import sparkdlbench.common.ConfigurationException

/** The programs that an MPI job needs on this host. */
private[transport] object MpiPrograms {
  private val AnswerSeconds = 20L

  /** Programs that were asked whether they are what is needed, and are. */
  private val passed = ConcurrentHashMap.newKeySet[Path]()

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
    once(program) {
      val (_, said) = ask(program, "--version")
      if (!said.contains("Open MPI") || !"""\b(\d+)\.\d+""".r.findFirstMatchIn(said).exists(_.group(1).toInt >= 5))
        missing(s"$program is not Open MPI 5 or later: it says '${said.linesIterator.take(1).mkString}'")
    }
    program
  }

  /** Refuses a Python that cannot do what it is for, before MPI says so in its own words. */
  def importsMpi4py(python: Path): Unit = once(python) {
    val (status, said) = ask(python, "-c", "import mpi4py")
    if (status != 0)
      missing(
        s"$python cannot import mpi4py: it ended with status $status and says '${said.linesIterator.toSeq.lastOption.mkString}'"
      )
  }

  /** The launcher looks for its own helpers on the PATH. @param more folders for it, besides that of `program` */
  def environment(builder: ProcessBuilder, program: Path, more: Path*): Unit = {
    val path = Option(builder.environment().get("PATH")).getOrElse("/usr/bin:/bin")
    val folders = program.getParent +: more
    builder.environment().put("PATH", (folders.map(_.toString) :+ path).mkString(File.pathSeparator)): Unit
  }

  /** Makes the check of a program where it has not passed one in this process yet: each takes a start of the program. */
  private def once(program: Path)(check: => Unit): Unit = if (!passed.contains(program)) {
    check
    passed.add(program): Unit
  }

  /** Exit status, and what it wrote. */
  private def ask(program: Path, words: String*): (Int, String) = {
    val builder = new ProcessBuilder((program.toString +: words): _*).redirectErrorStream(true)
    builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")))
    environment(builder, program)
    val process =
      try builder.start()
      catch { case error: IOException => missing(s"$program cannot be started (${error.getMessage})") }
    if (!process.waitFor(AnswerSeconds, TimeUnit.SECONDS)) {
      process.destroyForcibly()
      missing(s"$program ${words.mkString(" ")} did not end within $AnswerSeconds s")
    }
    (process.exitValue, new String(process.getInputStream.readAllBytes(), UTF_8).trim)
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
