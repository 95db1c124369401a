package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import sparkdlbench.common.{ConfigurationException, Facts, Json, ProcessMark}

import java.io.IOException
import scala.util.Try

/**
 * The run that a folder of checkpoints belongs to: `owner.json` in it, from the run's start to its end.
 *
 * @param host
 *   of the driver
 * @param started
 *   when the driver's process began, milliseconds since 1970: a number of a process comes again
 * @param mark
 *   the same process as the kernel knows it: containers of one host name may number their processes each for itself. None where /proc did not
 *   tell, and in files of earlier versions
 */
private[train] final case class CheckpointOwner(
    runId: String,
    application: String,
    host: String,
    pid: Long,
    started: Long,
    mark: Option[ProcessMark] = None
) {
  def place: String = s"application $application, process $pid on host $host"

  def text: String = Json.text(
    Json.fields(
      "run_id" -> runId,
      "application" -> application,
      "host" -> host,
      "pid" -> pid,
      "started_ms" -> started,
      "process" -> mark.map(_.print)
    )
  )

  /** Whether its process lives; None where that cannot be known here: of another host, of another container, of the time before a restart. */
  def lives: Option[Boolean] = if (host != Facts.hostName) None else mark.fold(livesByNumber)(_.lives)

  private def livesByNumber: Option[Boolean] =
    Some(ProcessHandle.of(pid).filter(_.isAlive).map[Long](CheckpointOwner.startOf(_)).filter(_ == started).isPresent)
}

private[train] object CheckpointOwner {
  val File = "owner.json"

  def startOf(process: ProcessHandle): Long = process.info.startInstant.map[Long](_.toEpochMilli).orElse(0L)

  def ofThisProcess(runId: String, application: String): CheckpointOwner = {
    val process = ProcessHandle.current
    CheckpointOwner(runId, application, Facts.hostName, process.pid, startOf(process), ProcessMark.own)
  }

  /** The folder's owner; None where it has none, or its file tells of none. */
  def read(files: CheckpointFolder): Option[CheckpointOwner] = files.text(new Path(files.root, File)).flatMap(parse)

  private def parse(text: String): Option[CheckpointOwner] =
    Try(Json.read(text)).toOption.filter(_.path("run_id").isTextual).map { json =>
      CheckpointOwner(
        json.path("run_id").asText,
        json.path("application").asText,
        json.path("host").asText,
        json.path("pid").asLong,
        json.path("started_ms").asLong,
        ProcessMark.parse(json.path("process").asText)
      )
    }

  /**
   * Makes a folder the run's own. A run that is killed leaves its file; who resumes from the folder takes it over, and so does anybody where the dead run
   * has written no checkpoint. The ranks look at the file before each checkpoint, so that a run that lives after all mixes nothing into another's.
   *
   * @throws sparkdlbench.common.ConfigurationException
   *   it is another run's
   */
  def take(folder: String, hadoop: Configuration, me: CheckpointOwner, resumes: Boolean): Unit = {
    val files = new CheckpointFolder(new Path(folder), hadoop)
    def mayTake(owner: Option[CheckpointOwner]): Boolean = owner.flatMap(_.lives) match {
      case Some(true) => false
      case lives => resumes || (lives.contains(false) && new CheckpointStore(folder, hadoop).begun.isEmpty)
    }
    try claim(files, new Path(files.root, File), me, mayTake).foreach(held => throw refused(folder, held))
    catch {
      case cause: IOException =>
        throw new ConfigurationException(
          s"checkpoint.dir is '$folder', and the driver cannot write there: ${cause.getMessage}. Set checkpoint.dir to a folder that driver and " +
            "executors can write, with room for checkpoint.keep + 1 checkpoints.",
          cause
        )
    }
  }

  /** A file that another run has, and that run where the file names one. */
  private final case class Held(file: Path, owner: Option[CheckpointOwner])

  /**
   * Makes a file name this run: where there is none, or in place of an owner whose place may be taken. Several may want one owner's place at once,
   * and a file that was read may be another by the time it is deleted. So the run that makes the file beside it first, which has the old
   * owner's name, has the turn; it looks again then. The run that has the turn after it finds the new owner. A turn of a process that has ended is taken likewise.
   *
   * @return
   *   None: it is this run's
   */
  private def claim(
      files: CheckpointFolder,
      file: Path,
      me: CheckpointOwner,
      mayTake: Option[CheckpointOwner] => Boolean
  ): Option[Held] =
    if (files.createNew(file, me.text)) None
    else
      files.text(file) match {
        case None => if (files.createNew(file, me.text)) None else Some(held(files, file)) // given back meanwhile
        case Some(seen) if !mayTake(parse(seen)) => Some(Held(file, parse(seen)))
        case Some(seen) =>
          val old = parse(seen).map(_.runId).filter(_.matches("[0-9A-Za-z-]+")).getOrElse("unnamed")
          val turn = new Path(file.getParent, s"${file.getName}.$old")
          claim(files, turn, me, _.flatMap(_.lives).contains(false)).orElse {
            try replaced(files, file, seen, me)
            finally Try(files.delete(turn, recursive = false)): Unit
          }
      }

  private def replaced(files: CheckpointFolder, file: Path, seen: String, me: CheckpointOwner): Option[Held] =
    if (!files.text(file).contains(seen)) Some(held(files, file))
    else {
      files.delete(file, recursive = false)
      if (files.createNew(file, me.text)) None else Some(held(files, file))
    }

  private def held(files: CheckpointFolder, file: Path): Held = Held(file, files.text(file).flatMap(parse))

  private def refused(folder: String, held: Held): ConfigurationException = {
    val (owner, name) = (held.owner, held.file.getName)
    val whose = owner.fold("a run that its file does not name")(each => s"run ${each.runId} (${each.place})")
    val what =
      if (name != File)
        s"which is about to take it over. Try again in a minute; or, where that run is over, delete $name there; or name an empty folder."
      else if (owner.flatMap(_.lives).contains(true)) "which still runs. Wait for its end, or name an empty folder."
      else
        s"which has not ended by itself. Go on from its checkpoints with --resume $folder; or, where that run is over and has no checkpoints, " +
          s"delete $File there; or name an empty folder."
    new ConfigurationException(s"checkpoint.dir is '$folder', which belongs to $whose, $what")
  }

  /** Gives the folder back, where it is still the run's. */
  def release(folder: String, hadoop: Configuration, runId: String): Unit = {
    val files = new CheckpointFolder(new Path(folder), hadoop)
    try if (read(files).exists(_.runId == runId)) files.delete(new Path(files.root, File), recursive = false)
    catch { case _: IOException => () } // the next run that resumes takes it over
  }
}
