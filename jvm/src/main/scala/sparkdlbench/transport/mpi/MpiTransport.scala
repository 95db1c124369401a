package sparkdlbench.transport.mpi

import sparkdlbench.common.{Json, MappedFile, RunFailedException}
import sparkdlbench.transport._
import sparkdlbench.transport.push._

import sparkdlbench.vector.VectorPart

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}
import scala.collection.mutable
import scala.util.Try

/**
 * One rank's lanes through the MPI process beside it: the slots of every lane that starts or ends here lie in files that both have
 * mapped. The process sends a slot as soon as it is published, and publishes what has arrived (`rank.py`).
 *
 * @param fileBytes
 *   of a file at most; which lanes share one is each rank's own affair
 */
private[transport] final class MpiTransport private (
    group: GroupContext,
    job: MpiJob,
    mailbox: Mailbox,
    fileBytes: Long
) extends Transport {
  import MpiTransport._
  private val self = job.peers(group.rank)
  // Beside each rank there is a process that wants a core.
  private val waiting = new PushWait(mailbox, group, self, 2 * job.peers.count(_.kernel == self.kernel))
  private val lanes = mutable.LongMap.empty[LaneSlots]
  @volatile private var segments = List.empty[ByteBuffer]
  @volatile private var closing = false
  private var generation = 0
  private var opened = 0
  private var payload = 0L
  private val watch = new Thread(() => look(), s"sparkdl-mpi-watch-${group.rank}")
  watch.setDaemon(true)
  watch.start()

  override def rank: Int = group.rank
  override def size: Int = group.size

  override def lanesOpened: Int = opened

  override def open(
      all: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      part: Lane => Option[VectorPart]
  ): Unit = {
    opened = all.foldLeft(opened)((next, lane) => math.max(next, lane.id + 1))
    all
      .filter(lane => lane.from == lane.to)
      .foreach(lane => throw new IllegalArgumentException(s"$lane starts where it ends"))
    val own = all.filter(lane => lane.from == rank || lane.to == rank).sortBy(_.id)
    own
      .filter(lane => lanes.contains(lane.id.toLong))
      .foreach(lane => throw new IllegalArgumentException(s"Lane ${lane.id} was opened twice."))
    val header = (LeftAt + size + 63L) / 64 * 64
    inFiles(own, header, fileBytes).foreach(openFile(_, header, destination))
  }

  private def openFile(own: Seq[Lane], header: Long, destination: Lane => Option[ByteBuffer]): Unit = {
    val offsets = own.scanLeft(header)((at, lane) => at + LaneSlots.bytes(lane))
    val (file, memory) = newFile(own, offsets.last)
    try {
      def words(lane: Lane, offset: Long) = Json.fields(
        "id" -> lane.id,
        "capacity" -> lane.capacity,
        "offset" -> offset,
        "peer" -> (if (lane.from == rank) lane.to else lane.from)
      )
      val (starting, ending) = own.zip(offsets).partition(_._1.from == rank)
      val told = Json.fields(
        "path" -> file.toString,
        "outgoing" -> starting.map { case (lane, offset) => words(lane, offset) },
        "incoming" -> ending.map { case (lane, offset) => words(lane, offset) }
      )
      job.tell(s"open-$generation.json", Json.line(told))
      generation += 1
      waiting.until(self, polled = true, "map the lanes into its MPI process")(() => LaneSlots.word(memory, 0) == 1)
    } finally Files.deleteIfExists(file)
    segments = memory :: segments
    own.zip(offsets).foreach { case (lane, offset) =>
      val slots = memory.slice(offset.toInt, LaneSlots.bytes(lane).toInt).order(ByteOrder.nativeOrder())
      lanes.update(lane.id.toLong, new LaneSlots(lane, slots, if (lane.to == rank) destination(lane) else None))
    }
  }

  override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
    waiting.failIfBroken()
    val slots = lanes.getOrNull(lane.id.toLong)
    if (slots == null || lane.from != rank) unknown(lane, "starts")
    // The receiver is done with message sequence - 2, but our process may not have noticed that it is sent.
    if (!slots.isFree(sequence))
      waiting.until(job.peers(lane.to), polled = true, s"send ${PushTransport.words(lane, sequence)}")(() =>
        slots.isFree(sequence)
      )
    val bytes = data.remaining
    slots.claim(sequence, bytes).put(data.duplicate())
    slots.publish(sequence, bytes)
    payload += bytes
  }

  /** What is sent lies in the slots already. */
  override def flush(): Unit = waiting.failIfBroken()

  override def receive(lane: Lane, sequence: Long): ByteBuffer = {
    val slots = incoming(lane)
    if (!slots.hasArrived(sequence))
      waiting.until(job.peers(lane.from), polled = true, s"receive ${PushTransport.words(lane, sequence)}")(() =>
        slots.hasArrived(sequence)
      )
    slots.view(sequence)
  }

  override def hasArrived(lane: Lane, sequence: Long): Boolean = {
    waiting.failIfBroken()
    incoming(lane).hasArrived(sequence)
  }

  override def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = {
    val awaited = messages.map { case (lane, sequence) => (incoming(lane), sequence) }
    val senders = messages.map { case (lane, _) => lane.from }.distinct.map(job.peers)
    waiting.untilAny(senders, polled = true, s"receive ${PushTransport.anyOf(messages)}")(() =>
      awaited.exists { case (slots, sequence) => slots.hasArrived(sequence) }
    )
  }

  private def incoming(lane: Lane): LaneSlots = {
    val slots = lanes.getOrNull(lane.id.toLong)
    if (slots == null || lane.to != rank) unknown(lane, "ends")
    slots
  }

  override def release(lane: Lane, sequence: Long): Unit = incoming(lane).release(sequence)

  override def bytesSent: Map[String, Long] = if (payload > 0) Map("mpi" -> payload) else Map.empty

  override def facts: Map[String, String] = Map("mpi.library" -> job.library)

  override def close(): Unit = if (!closing) {
    closing = true
    try job.close(mailbox.failed.isDefined)
    finally mailbox.close()
  }

  /** The process beside this rank. */
  private[mpi] def process: RunningProcess = job.process

  /** Looks every so often whether the process beside us lives, and which ranks have left. */
  private def look(): Unit = while (!closing) {
    job.ended.filterNot(_ => closing).foreach(why => mailbox.fail(new RunFailedException(why)))
    for (memory <- segments; peer <- 0 until size)
      if (memory.get(LeftAt + peer) != 0 && !mailbox.hasLeft(peer)) mailbox.tell(peer, Control.Bye)
    Thread.sleep(LookMillis)
  }

  private def newFile(own: Seq[Lane], bytes: Long): (Path, ByteBuffer) = {
    val folders = MappedFile.folders
    if (bytes > Int.MaxValue)
      throw new RunFailedException(
        s"Rank $rank has messages of ${own.head.capacity} bytes (${own.head.purpose}), and the two that a lane keeps room for must fit into one mapped file, of less " +
          "than 2 GiB. Use smaller buckets (bucket_bytes), or more shards (ps.shards)."
      )
    val (file, memory) = MappedFile
      .create(folders, "sparkdl-mpi-", bytes.toInt)
      .getOrElse(
        throw new RunFailedException(
          s"Rank $rank found no room for a mapped file of $bytes bytes in ${folders.mkString(" and ")}. Free some there, or use another transport."
        )
      )
    (file, memory.order(ByteOrder.nativeOrder()))
  }

  private def unknown(lane: Lane, what: String): Nothing =
    throw new RunFailedException(s"Rank $rank was asked for $lane, which was not opened or $what at another rank.")
}

private[transport] object MpiTransport {
  private val LeftAt = 64
  private val LookMillis = 100L

  /** The words of the key `mpi.options`; None where one of them would begin another process. */
  def words(options: String): Option[Seq[String]] =
    Some(options.split("\\s+").toSeq.filter(_.nonEmpty)).filter(!_.contains(":"))

  /** The lanes, in their order, of each file of at most `most` bytes, whose first `header` bytes are taken; a larger one has a file to itself. */
  private[mpi] def inFiles(lanes: Seq[Lane], header: Long, most: Long): Seq[Seq[Lane]] = {
    val files = mutable.ArrayBuffer.empty[Vector[Lane]]
    var bytes = most
    lanes.foreach { lane =>
      val more = LaneSlots.bytes(lane)
      if (bytes + more > most) {
        files += Vector.empty
        bytes = header
      }
      files(files.size - 1) = files.last :+ lane
      bytes += more
    }
    files.toList
  }

  /**
   * Starts the group's MPI job; a collective call. The parameters are the keys `mpi.python`, `mpi.launcher` and `mpi.options`.
   *
   * @param fileBytes
   *   of a mapped file at most; the JVM maps no larger ones
   */
  def connect(
      group: GroupContext,
      python: String,
      launcher: String,
      options: Seq[String],
      fileBytes: Long = Int.MaxValue.toLong
  ): Transport = {
    val program = MpiPrograms.python(python)
    MpiPrograms.importsMpi4py(program)
    val mailbox = Mailbox.open(StreamId.inboxNumber(group.attemptId), group.rank)
    try
      new MpiTransport(
        group,
        MpiJob.start(group, program, () => MpiPrograms.launcher(launcher, program), options),
        mailbox,
        fileBytes
      )
    catch { case error: Throwable => Try(mailbox.close()); throw error }
  }
}
