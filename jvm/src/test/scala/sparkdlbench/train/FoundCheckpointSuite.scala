package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.transport.RankGroups

import java.nio.file.Files

class FoundCheckpointSuite extends AnyFunSuite {
  private val before = RankGroups(IndexedSeq(IndexedSeq(0, 1), IndexedSeq(2, 3)))
  private val placed = RankGroups(IndexedSeq(IndexedSeq(0, 2), IndexedSeq(1, 3)))
  private val snapshot = Snapshot(
    5,
    Seq(0, 0, 2, 2).zipWithIndex.map { case (group, rank) =>
      RankSnapshot(5, rank, 4, group, 0.5 * rank, Seq(StateRange("weights", rank, Array(rank + 1f))))
    }
  )

  private def chosen(found: Option[FoundCheckpoint], placed: RankGroups = placed): GroupsReport =
    FoundCheckpoint.groups("run", 4, 1, placed, found)

  test("a retry keeps the groups, wherever the ranks are; another start takes the ranks that share a process") {
    val retry = chosen(Some(FoundCheckpoint(snapshot, ofThisRun = true)))
    assert(retry.groups == before && retry.placed == placed && retry.before.contains(before))
    val byHand = chosen(Some(FoundCheckpoint(snapshot, ofThisRun = false)))
    assert(byHand.groups == placed && byHand.before.contains(before))
    assert(chosen(None) == GroupsReport("run", 1, placed, placed, None))
  }

  test("fewer ranks than before make groups of their own") {
    val fewer = RankGroups(IndexedSeq(IndexedSeq(0, 1, 2)))
    val retry = FoundCheckpoint.groups("run", 3, 2, fewer, Some(FoundCheckpoint(snapshot, ofThisRun = true)))
    assert(retry.groups == fewer && retry.before.contains(before))
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
