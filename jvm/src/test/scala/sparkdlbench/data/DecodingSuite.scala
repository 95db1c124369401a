package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.doctor.Doctor
import sparkdlbench.train.TrainingRun

import java.nio.file.{Files, Path, Paths}
import scala.concurrent.ExecutionContext.Implicits.global
import scala.concurrent.duration._
import scala.concurrent.{Await, Future}
import scala.jdk.CollectionConverters._
import scala.util.Try

/** What can be known of a set before it is decoded, and how far its decoding is. */
class DecodingSuite extends AnyFunSuite with SourceFixture {
  private lazy val lines = (0 until 6000).map(id => s"${id % 3},$id,${-id},0.5\n").mkString
  private lazy val path = write("many.csv", lines).toString
  private def chosen(more: (String, String)*) =
    Map("data.source" -> "csv", "data.path" -> path, "data.classes" -> "3", "data.cache_dir" -> cache) ++ more
  private lazy val cache = folder.resolve("decoded").toString

  private def isDecoded: Boolean = Files.exists(folder.resolve("decoded"))

  private def awaitDecoding(): DecodingState = {
    val end = System.nanoTime() + 30000000000L
    while (Decoding.now.isEmpty && System.nanoTime() < end) Thread.sleep(1)
    Decoding.now.get
  }

  test("the doctor decodes nothing, and finds what can be found without") {
    val run = Map("workers" -> "2", "batch" -> "32", "model.hidden" -> "16")
    def found(more: (String, String)*) =
      Doctor.session(sc, run ++ chosen(more: _*)).map(each => each.check -> each.message)
    assert(found().isEmpty)
    val missing = found("data.path" -> "/nothing/there.csv")
    assert(missing.map(_._1) == Seq("data") && missing.head._2.contains("/nothing/there.csv"))
    val images = found("model.name" -> "lenet")
    assert(images.map(_._1) == Seq("settings") && images.head._2.contains("needs images"))
    val large = found("model.hidden" -> "20000,20000", "transport" -> "block-stream")
    assert(large.map(_._1) == Seq("memory"))
    val gpu = found("engine.device" -> "cuda")
    assert(gpu.map(_._1).contains("settings") && gpu.exists(_._2.contains("engine.device=cuda")), gpu)
    assert(!isDecoded && Decoding.now.isEmpty)
  }

  test("whoever waits sees how many parts are decoded, can end it, and what was decoded is found again") {
    val source = new Csv
    val parts = Seq("data.split_bytes" -> "1024", "data.cache_dir" -> cache) ++
      Seq("data.path" -> path, "data.classes" -> "3")
    val all = source.qualified(settings(source, parts), hadoop)
    assert(source.preview(all, sc).undecoded.exists(facts => facts.shape == Seq(3) && facts.classes == 3))

    val cancelled = Future(Try(source.prepare(all, sc)))
    awaitDecoding()
    while (!cancelled.isCompleted) { Decoding.cancel(sc); Thread.sleep(20) }
    val failure = Await.result(cancelled, 30.seconds).failed.get
    assert(failure.isInstanceOf[ConfigurationException] && failure.getMessage.contains("cancelled"), failure)
    assert(source.preview(all, sc).undecoded.isDefined)

    val prepared = Future(source.prepare(all, sc))
    var seen = Set(awaitDecoding())
    while (!prepared.isCompleted) Decoding.now.foreach(now => seen += now)
    val decoded = Await.result(prepared, 30.seconds)
    assert(seen.forall(now => now.source == "csv" && now.parts > 50 && now.done >= 0 && now.done <= now.parts))
    assert(seen.exists(now => now.done > 0 && now.done < now.parts && now.rows > 0), seen)
    assert(Decoding.now.isEmpty)
    val again = source.preview(all, sc)
    assert(again.undecoded.isEmpty && again.settings.entries == decoded.entries)
  }

  private def local(path: String): Path = Paths.get(new org.apache.hadoop.fs.Path(path).toUri.getPath)

  /** Of what lies in a folder, Hadoop's checksums apart. */
  private def names(place: Path): Set[String] = {
    val found = Files.list(place)
    try found.iterator.asScala.map(_.getFileName.toString).filterNot(_.endsWith(".crc")).toSet
    finally found.close()
  }

  test("two that decode the same set at once leave one copy of it") {
    val source = new Csv
    val place = folder.resolve("at once")
    val set = Seq("data.path" -> path, "data.classes" -> "3", "data.cache_dir" -> place.toString)
    val chosen = source.qualified(settings(source, set), hadoop)
    val plan = source.plan(chosen, sc)
    var first = ""
    // The other one decodes all of it while this one is about to.
    val later = plan.copy(work = () => {
      first = Materializer.materialize(source, plan, chosen, sc)
      plan.work()
    })
    assert(Materializer.materialize(source, later, chosen, sc) == first)
    val decoded = local(first)
    assert(names(place) == Set(decoded.getFileName.toString))
    assert(names(decoded).forall(name => !Files.isDirectory(decoded.resolve(name))), names(decoded))
    assert(SourceFixture.rows(source.open(chosen.updated(RecordSource.decodedDir, first), hadoop).train).size == 4800)
  }

  test("a folder that has lost its manifest is told, and nothing is left in it") {
    val source = new Csv
    val place = folder.resolve("without manifest")
    val set = Seq("data.path" -> path, "data.classes" -> "3", "data.cache_dir" -> place.toString)
    val chosen = source.qualified(settings(source, set), hadoop)
    val decoded = local(source.prepare(chosen, sc)(RecordSource.decodedDir))
    Files.delete(decoded.resolve(RowsFolder.Manifest))
    val before = names(decoded)
    val message = intercept[ConfigurationException](source.prepare(chosen, sc)).getMessage
    assertSays(message, decoded.toString, "without its manifest.json, delete it")
    assert(names(decoded) == before && names(place) == Set(decoded.getFileName.toString))
  }

  test("a disk that has no room for the decoded rows is named with what to do, and nothing of them is left") {
    sparkdlbench.results.SmallDisk(32) { disk =>
      val source = new Csv
      val set = Seq("data.path" -> path, "data.classes" -> "3", "data.cache_dir" -> disk.toString)
      val wanted = source.qualified(settings(source, set), hadoop)
      val message = intercept[ConfigurationException](source.prepare(wanted, sc)).getMessage
      assertSays(message, disk.toString, "disk or quota is full", "data.cache_dir")
      assert(names(disk).isEmpty && source.preview(wanted, sc).undecoded.isDefined)
    }
  }

  test("the doctor does not hold rows that nobody has counted against those of a checkpoint") {
    val run = Map("workers" -> "2", "batch" -> "32", "model.hidden" -> "16", "transport" -> "block-stream") +
      ("data.scale" -> "0.0001")
    for (algorithm <- Seq("sync-sgd", "gd", "lbfgs")) {
      val checkpoints = folder.resolve(s"checkpoints of $algorithm").toString
      val written = run ++ chosen("algorithm" -> algorithm, "checkpoint.dir" -> checkpoints, "max_steps" -> "2") ++
        Map("results" -> folder.resolve("results").toString)
      TrainingRun.prepare(sc, written).train()
      def found(more: (String, String)*) = {
        val undecoded = Seq("algorithm" -> algorithm, "resume" -> checkpoints) :+
          ("data.cache_dir" -> folder.resolve("not decoded").toString)
        Doctor.session(sc, run ++ chosen(undecoded ++ more: _*)).map(each => each.check -> each.message)
      }
      assert(found().isEmpty, algorithm)
      val seed = found("seed" -> "7")
      assert(seed.map(_._1) == Seq("settings"), seed)
      assertSays(seed.head._2, "seed 0", "seed 7")
      assert(!seed.head._2.contains("training rows"), seed)
      // All of them are known: still refused where they are others.
      val decoded = Seq("algorithm" -> algorithm, "resume" -> checkpoints, "data.share" -> "0.5")
      val fewer = Doctor.session(sc, run ++ chosen(decoded: _*))
      assert(fewer.map(_.check) == Seq("settings") && fewer.head.message.contains("4800 training rows"), fewer)
    }
    assert(!Files.exists(folder.resolve("not decoded")))
  }
}
