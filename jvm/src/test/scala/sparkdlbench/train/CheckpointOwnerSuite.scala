package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Facts, ProcessMark}
import sparkdlbench.rank.{CheckpointAuthor, DataPosition, RankSnapshot, StateRange}

import java.nio.file.{Files, Path}
import java.util.concurrent.{CyclicBarrier, Executors, TimeUnit}
import scala.util.Try

class CheckpointOwnerSuite extends AnyFunSuite {
  private val hadoop = new Configuration()
  private val me = CheckpointOwner.ofThisProcess("mine", "app-1")
  private val dead = me.copy(
    runId = "dead",
    started = me.started - 1,
    mark = me.mark.map(mark => mark.copy(start = mark.start + 1))
  )
  private val elsewhere = me.copy(runId = "far", host = s"not-${Facts.hostName}")

  private def place(): String = Files.createTempDirectory("checkpoints").toUri.toString
  private def take(folder: String, owner: CheckpointOwner, resumes: Boolean = false): Unit =
    CheckpointOwner.take(folder, hadoop, owner, resumes)
  private def owner(folder: String): Path = java.nio.file.Paths.get(java.net.URI.create(folder)).resolve("owner.json")
  private def refusal(folder: String, owner: CheckpointOwner, resumes: Boolean = false): String =
    intercept[ConfigurationException](take(folder, owner, resumes)).getMessage

  private def part(runId: String, step: Long = 1): RankSnapshot =
    RankSnapshot(
      step,
      0,
      1,
      0,
      DataPosition(5, 1, 10),
      0,
      Seq(StateRange("weights", 0, Array(1f))),
      CheckpointAuthor(runId, 0)
    )

  test("of two runs that start on one empty folder one is refused, and may have it when the other has ended") {
    val folder = place()
    take(folder, me)
    val message = refusal(folder, me.copy(runId = "second"))
    assert(
      message.contains("run mine") && message.contains("still runs") && message.contains("name an empty folder"),
      message
    )
    assert(refusal(folder, me.copy(runId = "second"), resumes = true).contains("still runs"))
    CheckpointOwner.release(folder, hadoop, "second")
    assert(Files.exists(owner(folder)), "given back by a run that does not have it")
    CheckpointOwner.release(folder, hadoop, "mine")
    take(folder, me.copy(runId = "second"))
  }

  test("of many runs that start at once exactly one has the folder") {
    val folder = place()
    assert(winners(folder, resume = false).size == 1)
  }

  /** The runs, of eight that want the folder at the same moment, that are told that they have it. */
  private def winners(folder: String, resume: Boolean): Seq[String] = {
    val (runs, together) = ((0 until 8).map(run => s"run-$run"), new CyclicBarrier(8))
    val pool = Executors.newFixedThreadPool(8)
    try {
      val tries = runs.map { run =>
        pool.submit[Boolean] { () =>
          together.await(30, TimeUnit.SECONDS)
          Try(take(folder, me.copy(runId = run), resume)).isSuccess
        }
      }
      runs.zip(tries).filter(_._2.get(30, TimeUnit.SECONDS)).map(_._1)
    } finally pool.shutdownNow()
  }

  test("of many runs that resume at once from the folder of a dead one exactly one has it, and its file says so") {
    for (round <- 0 until 25) {
      val folder = place()
      take(folder, dead)
      val having = winners(folder, resume = true)
      assert(having.size == 1, s"round $round: $having")
      assert(Files.readString(owner(folder)).contains(having.head), s"round $round")
      assert(owner(folder).getParent.toFile.list().toSeq == Seq("owner.json"), s"round $round")
    }
  }

  test("a takeover that another run is in is not disturbed, and one that a crash ended is gone on with") {
    val folder = place()
    take(folder, dead)
    val turn = owner(folder).resolveSibling("owner.json.dead")
    Files.writeString(turn, me.copy(runId = "faster").text)
    val message = refusal(folder, me, resumes = true)
    assert(message.contains("run faster") && message.contains("delete owner.json.dead there"), message)
    assert(Files.readString(owner(folder)) == dead.text)
    Files.writeString(turn, dead.copy(runId = "crashed").text)
    take(folder, me, resumes = true)
    assert(Files.readString(owner(folder)) == me.text && !Files.exists(turn))
  }

  test("whether a process of another container lives cannot be told by its number, though the host's name is ours") {
    assume(ProcessMark.own.isDefined, "/proc does not tell this process' number")
    val contained = dead.copy(
      runId = "contained",
      mark = me.mark.map(mark => mark.copy(pidNamespace = mark.pidNamespace + 1))
    )
    assert(me.lives.contains(true) && dead.lives.contains(false) && contained.lives.isEmpty)
    val folder = place()
    take(folder, contained)
    assert(refusal(folder, me).contains("run contained")) // though it has written no checkpoint
    take(folder, me, resumes = true)
  }

  test(
    "the folder of a run that was killed: resume takes it over, others are told so; without a checkpoint anybody may"
  ) {
    val folder = place()
    take(folder, dead)
    take(folder, me) // nothing in it could be mixed
    CheckpointOwner.release(folder, hadoop, "mine")
    take(folder, dead)
    new CheckpointStore(folder, hadoop).write(part("dead"))
    val message = refusal(folder, me)
    assert(message.contains("run dead") && message.contains(s"--resume $folder"), message)
    take(folder, me, resumes = true)
  }

  test("a run of another host, which may live: resume takes its folder over, and it writes nothing there any more") {
    val folder = place()
    take(folder, elsewhere)
    val store = new CheckpointStore(folder, hadoop)
    store.write(part("far"))
    assert(refusal(folder, me).contains("delete owner.json there"))
    take(folder, me, resumes = true)
    val message = intercept[java.io.IOException](store.write(part("far", 2))).getMessage
    assert(message.contains("belongs to run mine now") && store.newest.get.step == 1, message)
    store.write(part("mine", 2))
    assert(store.newest.get.step == 2)
  }

  test("a lock that a crash left empty is nobody's: refused with what to do, and taken over by resume") {
    val folder = place()
    Files.createFile(owner(folder))
    assert(refusal(folder, me).contains("delete owner.json there"))
    take(folder, me, resumes = true)
    assert(refusal(folder, me.copy(runId = "second")).contains("run mine"))
  }

  test("a folder that cannot be written is named, with what to do") {
    val file = Files.createTempFile("a", "file").toUri.toString
    val message = refusal(file + "/below", me)
    assert(message.contains("checkpoint.dir is") && message.contains("cannot write there"), message)
  }
}
