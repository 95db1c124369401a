package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.{Assertions, Suite}
import sparkdlbench.LocalSpark
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

import java.nio.file.{Files, Path}
import java.util.zip.GZIPOutputStream
import scala.jdk.CollectionConverters._

/** A Spark application in this JVM and a temporary folder, for suites of data sources. */
trait SourceFixture extends LocalSpark { this: Suite =>
  protected lazy val folder: Path = Files.createTempDirectory("data source")
  protected def hadoop: Configuration = sc.hadoopConfiguration

  override protected def cores: Int = 2
  override protected def logLevel: String = "OFF"

  override def afterAll(): Unit = {
    super.afterAll()
    val all = Files.walk(folder)
    try all.iterator.asScala.toSeq.reverse.foreach(path => Files.delete(path))
    finally all.close()
  }

  protected def write(name: String, content: Array[Byte]): Path = {
    val path = folder.resolve(name)
    Files.createDirectories(path.getParent)
    Files.write(path, content)
  }

  protected def write(name: String, text: String): Path = write(name, text.getBytes("UTF-8"))

  protected def settings(source: DataSource, more: Seq[(String, String)]): Settings =
    Settings.resolve(Map("data.cache_dir" -> folder.resolve("cache").toString) ++ more, RunKeys.own ++ source.keys)

  /** All that a run does with a source: facts, and rows as they are opened. */
  protected def load(source: DataSource, more: (String, String)*): (DataFacts, DataSets) = {
    val prepared = source.prepare(source.qualified(settings(source, more), hadoop), sc)
    val facts = source.inspect(prepared, hadoop)
    val sets = source.open(prepared, hadoop)
    assert((facts.trainRows, facts.testRows) == ((sets.train.rows, sets.test.rows)))
    (facts, sets)
  }

  protected def refusal(source: DataSource, more: (String, String)*): String = {
    val message = Assertions.intercept[ConfigurationException](load(source, more: _*)).getMessage
    assert(!message.contains('\n') && message.length < 2000, message)
    message
  }

  protected def assertSays(message: String, parts: String*): Unit =
    parts.foreach(part => assert(message.contains(part), s"'$part' is not in: $message"))
}

object SourceFixture {

  /** (label, values) of every row of a store. */
  def rows(store: RowStore): Seq[(Int, Seq[Float])] = {
    val batch = new BatchReader(store, math.max(1, store.rows)).readRange(0, store.rows)
    (0 until store.rows).map { row =>
      (batch.labels.get(row).toInt, (0 until store.width).map(i => batch.features.get(row * store.width + i)))
    }
  }

  def gzip(content: Array[Byte]): Array[Byte] = {
    val memory = new java.io.ByteArrayOutputStream
    val stream = new GZIPOutputStream(memory)
    stream.write(content)
    stream.close()
    memory.toByteArray
  }

  def xz(content: Array[Byte]): Array[Byte] = {
    val memory = new java.io.ByteArrayOutputStream
    val stream = new org.tukaani.xz.XZOutputStream(memory, new org.tukaani.xz.LZMA2Options(1))
    stream.write(content)
    stream.close()
    memory.toByteArray
  }
}
