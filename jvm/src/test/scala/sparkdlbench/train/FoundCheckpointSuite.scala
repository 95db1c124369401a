package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.Settings
import sparkdlbench.rank.{DataPosition, RankSnapshot, Snapshot, StateRange}
import sparkdlbench.transport.{GroupContext, RankGroups, RunSecret, ThreadGroup}

import java.nio.file.{Files, Path, Paths}
import java.util.UUID

class FoundCheckpointSuite extends AnyFunSuite {
  private val before = RankGroups(IndexedSeq(IndexedSeq(0, 1), IndexedSeq(2, 3)))
  private val placed = RankGroups(IndexedSeq(IndexedSeq(0, 2), IndexedSeq(1, 3)))
  private val snapshot = Snapshot(
    5,
    Seq(0, 0, 2, 2).zipWithIndex.map { case (group, rank) =>
      RankSnapshot(
        5,
        rank,
        4,
        group,
        DataPosition(50, 1, 1438),
        0.5 * rank,
        Seq(StateRange("weights", rank, Array(rank + 1f)))
      )
    }
  )

  private def chosen(found: Option[FoundCheckpoint], placed: RankGroups = placed): GroupsReport =
    FoundCheckpoint.groups("run", 4, 1, placed, found)

  test("a retry keeps the groups, wherever the ranks are; another start takes the ranks that share a process") {
    val retry = chosen(Some(FoundCheckpoint(snapshot, ofThisRun = true)))
    assert(retry.groups == before && retry.placed == placed && retry.before.contains(before) && retry.from == 5)
    val byHand = chosen(Some(FoundCheckpoint(snapshot, ofThisRun = false)))
    assert(byHand.groups == placed && byHand.before.contains(before))
    assert(chosen(None) == GroupsReport("run", 1, placed, placed, None, 0))
  }

  test("fewer ranks than before make groups of their own") {
    val fewer = RankGroups(IndexedSeq(IndexedSeq(0, 1, 2)))
    val retry = FoundCheckpoint.groups("run", 3, 2, fewer, Some(FoundCheckpoint(snapshot, ofThisRun = true)))
    assert(retry.groups == fewer && retry.before.contains(before))
  }

  private final class Meeting(key: String, val rank: Int, val size: Int) extends GroupContext {
    private var met = 0
    def allGather(text: String): IndexedSeq[String] = {
      met += 1
      LocalRendezvous.allGather(s"$key-$met", rank, size, text, timeoutMillis, isKilled = false)
    }
    def attemptId: String = key
    def secret: RunSecret = throw new UnsupportedOperationException
    def settings: Settings = throw new UnsupportedOperationException
    def timeoutMillis: Long = 60000
    def isKilled: Boolean = false
  }

  private def agreed(stores: Seq[CheckpointStore]): Seq[Either[Seq[String], Snapshot]] = {
    val key = UUID.randomUUID().toString
    ThreadGroup.run(stores.size) { transport =>
      val meeting = new Meeting(key, transport.rank, transport.size)
      FoundCheckpoint.agreed(meeting, stores(transport.rank), s"rank ${transport.rank}")
    }
  }

  /** A folder of its own with checkpoints after these steps. */
  private def store(steps: Long*): CheckpointStore = {
    val one = new CheckpointStore(Files.createTempDirectory("checkpoints").toUri.toString, new Configuration())
    for (step <- steps; part <- snapshot.parts) one.write(part.copy(step = step))
    one
  }

  private def own(stores: Seq[CheckpointStore]): Seq[Option[Snapshot]] = {
    val key = UUID.randomUUID().toString
    ThreadGroup.run(stores.size) { transport =>
      val meeting = new Meeting(key, transport.rank, transport.size)
      FoundCheckpoint.own(meeting, stores(transport.rank), s"rank ${transport.rank}", "run")
    }
  }

  /** A byte in the values of one rank's file is another one. */
  private def damage(store: CheckpointStore, step: Long): Unit = {
    val folder = Paths.get(java.net.URI.create(store.folder))
    val file: Path = folder.resolve(f"step-$step%012d").resolve("rank-1-of-4.run-0")
    val bytes = Files.readAllBytes(file)
    bytes(bytes.length - 1) = (bytes.last ^ 1).toByte
    val _ = Files.write(file, bytes)
  }

  test("a retry does not begin anew where some ranks see no checkpoint: it fails, and names them and the folder") {
    val stores = Seq(store(5), store(), store(5))
    val message = intercept[RunFailedException](own(stores)).getMessage
    assert(message.contains("rank 1 can read none there") && message.contains("checkpoints"), message)
    assert(message.contains("Set checkpoint.dir to a folder that all executors share"), message)
    assert(own(Seq.fill(3)(store())) == Seq.fill(3)(None)) // none was made yet
  }

  test("a retry removes what it does not go on from, and refuses to begin anew where nothing can be read") {
    val one = store(5, 10, 15)
    Seq(10L, 15L).foreach(damage(one, _))
    assert(own(Seq.fill(2)(one)).map(_.map(_.step)) == Seq.fill(2)(Some(5L)))
    assert(one.begun == Seq(5L))
    damage(one, 5)
    val message = intercept[RunFailedException](own(Seq.fill(2)(one))).getMessage
    assert(message.contains("the newest is after step 5") && message.contains("rank-1-of-4.run-0 is damaged"), message)
    assert(one.begun == Seq(5L))
  }

  test("ranks take the newest checkpoint that all of them can read") {
    assert(agreed(Seq(store(5, 10, 15), store(5, 10), store(5, 10, 20))).map(_.map(_.step)) == Seq.fill(3)(Right(10)))
    assert(agreed(Seq(store(5, 15), store(5, 10))).map(_.map(_.step)) == Seq.fill(2)(Right(5)))
    assert(agreed(Seq(store(5), store(), store(5))) == Seq.fill(3)(Left(Seq("rank 1"))))
  }

  test("a checkpoint's files keep the groups") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val store = new CheckpointStore(folder, new Configuration())
    snapshot.parts.foreach(store.write)
    val read = store.newest.get
    assert(read.groups == before && read.vector("weights", 4).get.toSeq == Seq(1f, 2f, 3f, 4f))
    assert(read.parts.map(_.epochLoss) == Seq(0.0, 0.5, 1.0, 1.5))
  }
}
