package sparkdlbench.data

import org.apache.hadoop.fs.Path
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.results.Json
import sparkdlbench.train.TrainingRun

import java.io.{ByteArrayOutputStream, DataOutputStream}

/** Data sets and checkpoints on a real HDFS. */
class HdfsSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  override def beforeAll(): Unit = {
    super.beforeAll()
    sc.hadoopConfiguration.set("dfs.replication", "1")
  }

  private def put(name: String, content: Array[Byte]): String = {
    val path = new Path(s"${MiniHdfs.uri}/$name")
    val stream = path.getFileSystem(hadoop).create(path, true)
    stream.write(content)
    stream.close()
    path.getParent.toString
  }

  private def idx(header: Seq[Int], content: Array[Byte]): Array[Byte] = {
    val memory = new ByteArrayOutputStream
    val data = new DataOutputStream(memory)
    header.foreach(number => data.writeInt(number))
    data.write(content)
    memory.toByteArray
  }

  /** Sixteen pixels, one of four columns bright: its number is the class. */
  private def stripes(name: String, train: Int, test: Int): String = {
    def images(rows: Int) =
      idx(
        Seq(0x803, rows, 4, 4),
        Array.tabulate(rows * 16)(i => (if (i % 4 == (i / 16) % 4) 220 else i * 7 % 90).toByte)
      )
    def labels(rows: Int) = idx(Seq(0x801, rows), Array.tabulate(rows)(i => (i % 4).toByte))
    put(s"$name/train-images-idx3-ubyte", images(train))
    put(s"$name/train-labels-idx1-ubyte.gz", gzip(labels(train)))
    put(s"$name/t10k-images-idx3-ubyte.gz", gzip(images(test)))
    put(s"$name/t10k-labels-idx1-ubyte", labels(test))
  }

  test("IDX, and a whole run with checkpoints that another goes on from") {
    val data = stripes("stripes", 400, 80)
    val checkpoints = s"${MiniHdfs.uri}/checkpoints"
    val common = Map(
      "data.source" -> "idx",
      "data.path" -> data,
      "data.classes" -> "4",
      "model.name" -> "softmax",
      "workers" -> "2",
      "batch" -> "20",
      "transport" -> "block-stream",
      "optimizer.learning_rate" -> "0.2",
      "results" -> folder.resolve("results").toString
    )
    val checkpointed = common + ("checkpoint.dir" -> checkpoints) + ("checkpoint.every" -> "20")
    TrainingRun.prepare(sc, checkpointed + ("epochs" -> "2")).train()
    val written = new Path(checkpoints).getFileSystem(hadoop).listStatus(new Path(checkpoints)).map(_.getPath.getName)
    assert(written.exists(_.startsWith("step-")), written.mkString(", "))
    val resumed = TrainingRun.prepare(sc, common ++ Map("resume" -> checkpoints, "epochs" -> "4")).train()
    assert(Json.read(resumed.summary).path("final").path("test_accuracy").asDouble === 1.0)
    val whole = TrainingRun.prepare(sc, common + ("epochs" -> "4")).train()
    assert(resumed.weights === whole.weights)
  }

  test("CSV, decoded by byte ranges, with the decoded rows kept there too") {
    val text = (0 until 3000).map(id => s"${id % 3},$id,${id * 2}\n").mkString
    val path = s"${put("csv/a.csv", text.getBytes)}/a.csv"
    val (facts, sets) = load(
      new Csv,
      "data.path" -> path,
      "data.test_path" -> path,
      "data.classes" -> "3",
      "data.split_bytes" -> "5000",
      "data.cache_dir" -> s"${MiniHdfs.uri}/cache"
    )
    assert(facts.trainRows == 3000)
    assert(rows(sets.train) == (0 until 3000).map(id => (id % 3, Seq(id.toFloat, id * 2f))))
    assert(rows(sets.train) == rows(sets.test))
  }

  test("what is not there is told with its whole name") {
    val message =
      intercept[ConfigurationException](load(new Csv, "data.path" -> s"${MiniHdfs.uri}/none.csv")).getMessage
    assertSays(message, s"${MiniHdfs.uri}/none.csv", "no file")
  }
}
