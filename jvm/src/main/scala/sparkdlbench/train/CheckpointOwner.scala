package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import sparkdlbench.common.{ConfigurationException, Facts, Json}

import java.io.IOException
import scala.util.Try

/**
 * The run that a folder of checkpoints belongs to: `owner.json` in it, from the run's start to its end.
 *
 * @param host
 *   of the driver
 * @param started
 *   when the driver's process began, milliseconds since 1970: a number of a process comes again
 */
private[train] final case class CheckpointOwner(
    runId: String,
    application: String,
    host: String,
    pid: Long,
    started: Long
) {
  def place: String = s"application $application, process $pid on host $host"

  def text: String = Json.text(
    Json.fields("run_id" -> runId, "application" -> application, "host" -> host, "pid" -> pid, "started_ms" -> started)
  )

  /** Whether its process lives; None where this host cannot tell. */
  def lives: Option[Boolean] =
    if (host != Facts.hostName) None
    else
      Some(ProcessHandle.of(pid).filter(_.isAlive).map[Long](CheckpointOwner.startOf(_)).filter(_ == started).isPresent)
}

private[train] object CheckpointOwner {
  val File = "owner.json"

  def startOf(process: ProcessHandle): Long = process.info.startInstant.map[Long](_.toEpochMilli).orElse(0L)

  def ofThisProcess(runId: String, application: String): CheckpointOwner = {
    val process = ProcessHandle.current
    CheckpointOwner(runId, application, Facts.hostName, process.pid, startOf(process))
  }

  /** The folder's owner; None where it has none, or its file tells of none. */
  def read(files: CheckpointFolder): Option[CheckpointOwner] =
    files.text(new Path(files.root, File)).flatMap { text =>
      Try(Json.read(text)).toOption.filter(_.path("run_id").isTextual).map { json =>
        CheckpointOwner(
          json.path("run_id").asText,
          json.path("application").asText,
          json.path("host").asText,
          json.path("pid").asLong,
          json.path("started_ms").asLong
        )
      }
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
    val file = new Path(files.root, File)
    try
      if (!files.createNew(file, me.text)) {
        val owner = read(files)
        val dead = owner.flatMap(_.lives).contains(false)
        val mayTake = owner.flatMap(_.lives) match {
          case Some(true) => false
          case _ => resumes || (dead && new CheckpointStore(folder, hadoop).begun.isEmpty)
        }
        if (!mayTake) throw refused(folder, owner)
        files.delete(file, recursive = false)
        if (!files.createNew(file, me.text)) throw refused(folder, read(files)) // another run was faster
      }
    catch {
      case cause: IOException =>
        throw new ConfigurationException(
          s"checkpoint.dir is '$folder', and the driver cannot write there: ${cause.getMessage}. Set checkpoint.dir to a folder that driver and " +
            "executors can write, with room for checkpoint.keep + 1 checkpoints.",
          cause
        )
    }
  }

  private def refused(folder: String, owner: Option[CheckpointOwner]): ConfigurationException = {
    val whose = owner.fold("a run that its file does not name")(each => s"run ${each.runId} (${each.place})")
    val what =
      if (owner.flatMap(_.lives).contains(true)) "which still runs. Wait for its end, or name an empty folder."
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
