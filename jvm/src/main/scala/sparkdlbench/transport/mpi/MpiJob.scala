package sparkdlbench.transport.mpi

import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.ExecutorAddress
import sparkdlbench.common.{ConfigurationException, Json, MappedFile, ProcessMark, RunFailedException}
import sparkdlbench.transport.push.PushPeer
import sparkdlbench.transport.{GroupContext, RunningProcess}

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.util.Base64
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * A group's MPI job as one rank sees it.
 *
 * @param folder
 *   of this rank, mode 0700; `folder/rank` is where task and process leave each other word
 * @param started
 *   what this rank has started itself: rank 0 the launcher, the first rank of each other host its daemon
 * @param process
 *   the MPI process beside this rank
 */
private[mpi] final class MpiJob(
    val peers: IndexedSeq[PushPeer],
    rank: Int,
    folder: Path,
    started: Option[Process],
    val process: RunningProcess,
    val library: String
) {
  import MpiJob._

  /** Leaves word for the process. */
  def tell(name: String, content: String): Unit = {
    val draft = folder.resolve("rank").resolve(s".$name")
    Files.write(draft, content.getBytes(UTF_8))
    Files.move(draft, draft.resolveSibling(name), StandardCopyOption.ATOMIC_MOVE): Unit
  }

  /** Why it has ended, as far as this rank knows; None while it runs. */
  def ended: Option[String] =
    if (process.runs) None
    else {
      started.foreach(_.waitFor(SaidMillis, TimeUnit.MILLISECONDS)) // until it has said why
      Some(s"the MPI process ${process.number} beside rank $rank has ended${saidBy(folder)}")
    }

  /** Ends this rank's part. The job itself ends with the last rank's. */
  def close(failed: Boolean): Unit = {
    Try(tell("stop", "")) // its folder is gone where it has ended already
    val deadline = System.nanoTime() + CloseMillis * 1000000L
    while (process.runs && System.nanoTime() < deadline) Thread.sleep(PollMillis)
    started match {
      case None => delete(folder)
      case Some(program) =>
        if (failed && !program.waitFor(CloseMillis, TimeUnit.MILLISECONDS)) program.destroy()
        program.onExit().thenRun(() => delete(folder)): Unit
    }
  }
}

private[sparkdlbench] object MpiJob extends Logging {
  private val CloseMillis = 3000L
  private val SaidMillis = 15000L
  private val PollMillis = 10L
  private val SaidAtMost = 1500
  private val Program = "sparkdlbench/mpi/rank.py"

  private val FolderPrefix = "sparkdl-mpi-"

  /** Open MPI looks for it on the PATH, since what it is told may not hold spaces: it would take it for a command and its words. */
  private val AgentName = "sparkdl-mpi-agent"

  /** In place of ssh: leaves the command for host $1 where rank 0 finds it. The Spark task on that host runs it. */
  private val Agent =
    """#!/bin/sh
      |host=$1
      |shift
      |folder=$(dirname "$0")
      |printf '%s' "$*" > "$folder/.launch-$host" && mv "$folder/.launch-$host" "$folder/launch-$host"
      |""".stripMargin

  /** Removes what ranks of this host that were killed have left. */
  def removeLeft(): Unit =
    MappedFile.removeLeftFolders(Paths.get(System.getProperty("java.io.tmpdir")), FolderPrefix)

  /** Starts the job; a collective call. It returns when all ranks of MPI have proved to each other that they know the run's secret. */
  private[mpi] def start(group: GroupContext, python: Path, launcher: () => Path, options: Seq[String]): MpiJob = {
    val executor = ExecutorAddress.here
    removeLeft()
    val folder = Files.createTempDirectory(
      FolderPrefix,
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
    )
    MappedFile.own(folder)
    var running = Option.empty[Process]
    try {
      val self = PushPeer(group.rank, executor.host, 0, executor.id, PushPeer.thisProcess, ProcessMark.kernel, false)
      prepare(group, folder)
      val launching = if (group.rank == 0) Some(launcher()) else None
      val own = MpiPlace(folder.toString, python.toString, hostName, self)
      val places = group.allGather(MpiPlace.print(own)).map(MpiPlace.parse)
      val peers = places.map(_.peer)
      checkNames(places.map(place => (place.peer.host, place.hostName)).distinct)
      val hosts = peers.map(_.host).distinct
      running = launching.map(launch(_, group, folder, places, options))
      if (hosts.size > 1) {
        val commands = running.map(collect(_, group, folder, hosts.tail)).getOrElse("")
        val all = group.allGather(commands).head
        val first = peers.indexWhere(_.host == executor.host) == group.rank
        if (first && group.rank > 0) running = Some(daemon(all, executor.host, folder, python))
      }
      val ready = await(group, folder, running)
      new MpiJob(peers, group.rank, folder, running, ready._1, ready._2)
    } catch {
      case error: Throwable =>
        running.foreach(_.destroy())
        delete(folder)
        throw error
    }
  }

  private def prepare(group: GroupContext, folder: Path): Unit = {
    val program = getClass.getClassLoader.getResourceAsStream(Program)
    try Files.copy(program, folder.resolve("rank.py"))
    finally program.close()
    val agent = folder.resolve(AgentName)
    Files.write(agent, Agent.getBytes(UTF_8))
    Files.setPosixFilePermissions(agent, PosixFilePermissions.fromString("rwx------"))
    val self = RunningProcess.here
    val job = Json.fields(
      "rank" -> group.rank,
      "size" -> group.size,
      "secret" -> group.secret.key.map(byte => f"${byte & 0xff}%02x").mkString,
      "pid" -> self.number,
      "started" -> self.started
    )
    val file = Files.createDirectory(folder.resolve("rank")).resolve("job.json")
    Files.write(file, Json.line(job).getBytes(UTF_8)): Unit
  }

  private def hostName: String =
    Try(new String(Files.readAllBytes(Paths.get("/proc/sys/kernel/hostname")), UTF_8).trim)
      .getOrElse(java.net.InetAddress.getLocalHost.getHostName)

  /** MPI takes processes on hosts of one name for neighbours in memory, and then sums go wrong or never end. */
  private def checkNames(hosts: Seq[(String, String)]): Unit =
    hosts.groupBy(_._2).find(_._2.size > 1).foreach { case (name, same) =>
      throw new ConfigurationException(
        s"MPI identifies hosts by their names, and ${same.map(_._1).mkString(" and ")} are all called '$name'. Give each host (or container) a name of its own, or " +
          "use transport tcp."
      )
    }

  private def launch(
      launcher: Path,
      group: GroupContext,
      folder: Path,
      places: IndexedSeq[MpiPlace],
      options: Seq[String]
  ): Process = {
    val alone = places.map(_.peer.host).distinct.size == 1
    val root = if (System.getProperty("user.name") == "root") Seq("--allow-run-as-root") else Nil
    val agency = Seq("--prtemca", "plm_ssh_agent", AgentName, "--prtemca", "plm_ssh_no_tree_spawn", "1")
    // A process each, so that MPI's ranks are ours; MPI binds processes to cores unless told not to.
    val processes = places.zipWithIndex.flatMap { case (MpiPlace(room, python, _, peer), rank) =>
      (if (rank > 0) Seq(":") else Nil) ++ Seq("--host", if (alone) "localhost" else peer.host, "-n", "1") ++ options ++
        Seq(python, s"$room/rank.py", s"$room/rank")
    }
    val command = Seq(launcher.toString) ++ root ++ Seq("--oversubscribe", "--bind-to", "none") ++ agency ++ processes
    logInfo(s"Rank ${group.rank} starts the MPI job of ${places.size} processes with $launcher.")
    run(command, folder, launcher)
  }

  private def run(command: Seq[String], folder: Path, program: Path): Process = {
    val builder = new ProcessBuilder(command: _*).redirectErrorStream(true)
    builder.redirectOutput(folder.resolve("said.txt").toFile)
    builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")))
    MpiPrograms.environment(builder, program, folder)
    builder.start()
  }

  /** The commands that the launcher wants to be run on the other hosts, as text. */
  private def collect(launcher: Process, group: GroupContext, folder: Path, hosts: Seq[String]): String = {
    def file(host: String) = folder.resolve(s"launch-$host")
    waitFor(group, folder, Some(launcher), "to ask for its other hosts")(hosts.forall(host => Files.exists(file(host))))
    hosts.map(host => s"$host ${Base64.getEncoder.encodeToString(Files.readAllBytes(file(host)))}").mkString(" ")
  }

  /** Runs on this host what the launcher wants to be run here: its daemon, which stays our child. */
  private def daemon(commands: String, host: String, folder: Path, python: Path): Process = {
    val command = commands.split(' ').grouped(2).collectFirst { case Array(`host`, encoded) =>
      new String(Base64.getDecoder.decode(encoded), UTF_8)
    }
    val text = command.getOrElse(
      throw new RunFailedException(
        s"The MPI launcher on the host of rank 0 did not ask for host $host, which has ranks."
      )
    )
    run(Seq("/bin/sh", "-c", text.replace(" --daemonize ", " ")), folder, python)
  }

  private def await(group: GroupContext, folder: Path, running: Option[Process]): (RunningProcess, String) = {
    val file = folder.resolve("rank").resolve("ready.json")
    waitFor(group, folder, running, "to start the process beside this rank")(Files.exists(file))
    val ready = Json.read(new String(Files.readAllBytes(file), UTF_8))
    val number = ready.get("pid").asLong
    val process = RunningProcess
      .of(number)
      .getOrElse(throw new RunFailedException(s"The MPI process $number beside rank ${group.rank} has ended at once."))
    (process, ready.get("library").asText)
  }

  private def waitFor(group: GroupContext, folder: Path, program: Option[Process], what: String)(
      done: => Boolean
  ): Unit = {
    val end = System.nanoTime() + group.timeoutMillis * 1000000L
    while (!done) {
      if (group.isKilled || Thread.currentThread().isInterrupted)
        throw new RunFailedException(s"The task of rank ${group.rank} was asked to end while it waited for MPI $what.")
      if (program.exists(!_.isAlive) && !done)
        throw new RunFailedException(
          s"MPI failed $what: rank ${group.rank}'s launcher or daemon ended with status ${program.get.exitValue}${saidBy(folder)}. Run `sparkdl-bench peers " +
            "run mpi` on that host to see whether MPI works there at all; mpi.options has more words for mpiexec."
        )
      if (System.nanoTime() > end)
        throw new RunFailedException(
          s"Rank ${group.rank} waited ${group.timeoutMillis} ms for MPI $what${saidBy(folder)}. The hosts must reach each other by TCP at any port; if MPI " +
            "takes a wrong network, name one in mpi.options (--mca btl_tcp_if_include, --prtemca prte_if_include)."
        )
      Thread.sleep(PollMillis)
    }
  }

  private def saidBy(folder: Path): String = {
    val text = Try(new String(Files.readAllBytes(folder.resolve("said.txt")), UTF_8)).getOrElse("")
    val words = text.replaceAll("-{10,}", " ").replaceAll("\\s+", " ").trim
    if (words.isEmpty) "" else s"; it said: ${words.takeRight(SaidAtMost)}"
  }

  private def delete(folder: Path): Unit = Try {
    val all = Files.walk(folder)
    try all.iterator.asScala.toSeq.reverse.foreach(Files.deleteIfExists(_))
    finally all.close()
  }: Unit
}
