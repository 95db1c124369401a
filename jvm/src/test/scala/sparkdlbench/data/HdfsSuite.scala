package sparkdlbench.data

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.bench.DataStatistics
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.TrainingRun

import java.awt.image.BufferedImage
import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.file.{Path => LocalPath}
import javax.imageio.ImageIO

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

  /** Small sets: what reads it, what writes it to the local disk and says where, and how it is read. */
  private val small = Seq[(DataSource, () => LocalPath, Seq[(String, String)])](
    (new Cifar10, () => cifar10(), Nil),
    (
      new Libsvm,
      () => write("small.svm", (0 until 30).map(id => s"${id % 3} 1:$id 4:0.5\n").mkString),
      Seq("data.classes" -> "3", "data.split_bytes" -> "1024")
    ),
    (new Parquet, () => parquet(), Seq("data.label" -> "y", "data.classes" -> "3")),
    (new Images, () => images(), Seq("data.shape" -> "3,4,4")),
    (new Lmdb, () => LmdbSuite.environment(folder.resolve("small-lmdb"), (0 until 12).map(datum)), Nil)
  )

  private def cifar10(): LocalPath = {
    def batch(rows: Int) = Array.tabulate(rows * 3073)(i => if (i % 3073 == 0) (i / 3073).toByte else (i * 7).toByte)
    write("small-cifar10/data_batch_1.bin.gz", gzip(batch(6)))
    write("small-cifar10/test_batch.bin", batch(3)).getParent
  }

  private def parquet(): LocalPath = {
    val path = folder.resolve("small-parquet")
    val numbers = SparkSession.builder().config(sc.getConf).getOrCreate().range(20)
    numbers.selectExpr("cast(id % 3 as int) as y", "cast(id as double) as a").coalesce(1).write.parquet(path.toString)
    path
  }

  private def images(): LocalPath = {
    for (name <- Seq("cat", "dog"); number <- 0 until 5) {
      val image = new BufferedImage(6, 5, BufferedImage.TYPE_INT_RGB)
      for (y <- 0 until 5; x <- 0 until 6) image.setRGB(x, y, (x * 40 << 16) | (y * 50 << 8) | (number * 9))
      val memory = new ByteArrayOutputStream
      assert(ImageIO.write(image, "png", memory))
      write(s"small-images/$name/$number.png", memory.toByteArray)
    }
    folder.resolve("small-images")
  }

  private def datum(id: Int): Array[Byte] =
    LmdbSuite.datum(1, 4, 5, Array.tabulate(20)(i => (id * 31 + i * 7).toByte), id % 10)

  for ((source, local, more) <- small)
    test(s"${source.name}: the same rows as from the local disk", TakesLong) {
      val here = local()
      val there = new Path(s"${MiniHdfs.uri}/small/${here.getFileName}")
      there.getFileSystem(hadoop).copyFromLocalFile(new Path(here.toUri), there)
      def loaded(path: String, cache: String) = {
        val (facts, sets) = load(source, more ++ Seq("data.path" -> path, "data.cache_dir" -> cache): _*)
        (facts.shape, facts.classes, rows(sets.train), rows(sets.test))
      }
      val wanted = loaded(here.toString, folder.resolve("cache").toString)
      assert(loaded(there.toString, s"${MiniHdfs.uri}/cache") == wanted)
    }

  test("statistics of a CSV are those of the same file on the local disk") {
    val text = (0 until 3000).map(id => s"${id % 3},$id,${id * 0.5}\n").mkString
    def train(path: String) = {
      val settings = Map("data.source" -> "csv", "data.path" -> path, "data.classes" -> "3") ++
        Map("data.split_bytes" -> "5000", "results" -> folder.resolve("statistics").toString)
      Json.read(DataStatistics.run(sc, settings)).path("train")
    }
    val found = train(s"${put("statistics/a.csv", text.getBytes)}/a.csv")
    assert(found.path("rows").asInt == 3000 && found == train(write("statistics.csv", text).toString))
  }

  test("what is not there is told with its whole name") {
    val message =
      intercept[ConfigurationException](load(new Csv, "data.path" -> s"${MiniHdfs.uri}/none.csv")).getMessage
    assertSays(message, s"${MiniHdfs.uri}/none.csv", "no file")
  }
}
