package sparkdlbench.transport.mpi

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.transport.push.LaneSlots
import sparkdlbench.transport.{GroupContext, OneStageTransport, RankPlacement, RunSecret, Transport, TransportVariant}

/**
 * Messages by MPI: a real MPI job with one process beside each Spark task. Task and process share mapped memory, in which a message
 * lies in its lane's slot while MPI sends or receives it; so the topology's exchange is MPI's, with everything else as in `tcp`.
 * On other hosts the job is started by the Spark tasks there (Open MPI's launch agent), without ssh.
 *
 *   - Purpose: the channel that MPI users have (as MMLSpark with CNTK), under the same algorithms, models and measuring
 *   - Messages to the driver: one or two `allGather`s an attempt, none a step
 *   - Bytes: those of the topology; MPI's own framing is not counted
 *   - Needs: a Python with mpi4py and Open MPI 5 on every host (`sparkdl-bench peers install mpi`)
 *   - Not for: sessions that encrypt: MPI cannot
 */
final class Mpi extends TransportVariant with OneStageTransport {
  def name = "mpi"
  def doc =
    "A real MPI job, one process beside each Spark task, started through the tasks themselves; Open MPI 5 and mpi4py by `sparkdl-bench peers install mpi`"
  def inBand = false
  override def keys: Seq[Key[_]] = Seq(Mpi.python, Mpi.launcher, Mpi.options)

  override def inboxBytes(capacity: Long, destination: Boolean): Long = 0

  /** At both ends of a lane there is a pair of slots. */
  override def mappedInboxBytes(settings: Settings, capacity: Long): Option[Long] =
    Some(2 * LaneSlots.bytes(capacity))

  override def inTheClear(settings: Settings): Option[String] = Some("MPI has no encryption")

  override def newSecret(settings: Settings): RunSecret = RunSecret.proving(name)

  /** The launcher is looked for everywhere: rank 0 may be in any executor. */
  override def checkHere(settings: Settings, around: RankPlacement): Unit = {
    val python = MpiPrograms.python(settings(Mpi.python))
    MpiPrograms.launcher(settings(Mpi.launcher), python): Unit
    MpiPrograms.importsMpi4py(python)
  }

  override def connect(group: GroupContext): Transport = MpiTransport.connect(
    group,
    group.settings(Mpi.python),
    group.settings(Mpi.launcher),
    group.settings(Mpi.options)
  )
}

object Mpi {
  val python: Key[String] = Key.text(
    "mpi.python",
    "auto",
    "Python with mpi4py on every host: a path, or auto (that of `sparkdl-bench peers install mpi`, else python3 on the PATH)"
  )
  val launcher: Key[String] = Key.text(
    "mpi.launcher",
    "auto",
    "Open MPI's mpiexec on the host of rank 0: a path, or auto (beside mpi.python, else on the PATH: a system MPI)"
  )
  val options: Key[Seq[String]] = Key(
    "mpi.options",
    "",
    "options of mpiexec separated by spaces, without ':', which would begin another process",
    "More words for mpiexec, for each process, such as --mca pml ob1 --mca btl tcp,self; separated by spaces",
    MpiTransport.words(_)
  )
}
