package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

/** A manifest is believed nothing that its files do not bear out: before memory is taken, and with the reason. */
class RowsManifestSuite extends AnyFunSuite {
  private val hadoop = new Configuration(false)
  private val layout = RecordLayout(Seq(2), ValueKind.UInt8, 3, "x")
  private val good = RowsManifest("csv", layout, Seq(RowsPart("part-0", 6, test = false)), Skipped.none, 1).toJson
  private val settings = Settings.resolve(Map.empty, RunKeys.own ++ (new Csv).keys)

  private def folder(manifest: String, labels: Seq[Int] = Seq(0, 1, 2, 0, 1, 2)): Path = {
    val made = Files.createTempDirectory("rows")
    Files.writeString(made.resolve(RowsFolder.Manifest), manifest)
    val bytes = ByteBuffer.allocate(6 * 2 + labels.size * 4).order(ByteOrder.LITTLE_ENDIAN).position(12)
    labels.foreach(bytes.putInt)
    Files.write(made.resolve("part-0"), bytes.array)
    made
  }

  private def open(at: Path): DataSets = {
    val rows = RowsFolder.require(at.toUri.toString, hadoop)
    rows.facts(settings)
    rows.open(settings)
  }

  /** The message, of a refusal that has taken no more memory than a manifest needs. */
  private def refusal(at: Path): String = {
    val threads = java.lang.management.ManagementFactory.getThreadMXBean.asInstanceOf[com.sun.management.ThreadMXBean]
    val (me, before) = (Thread.currentThread.getId, threads.getThreadAllocatedBytes(Thread.currentThread.getId))
    val message = intercept[ConfigurationException](open(at)).getMessage
    val taken = threads.getThreadAllocatedBytes(me) - before
    assert(taken < (16 << 20), s"$taken bytes were taken before: $message")
    message
  }

  test("the manifest as it is written is read")(assert(open(folder(good)).train.rows == 5))

  private val changes: Seq[(String, String, String)] = Seq(
    ("\"rows\" : 6", "\"rows\" : 2000000000", "has 36 bytes and should have 12000000000"),
    ("\"rows\" : 6", "\"rows\" : -6", "'rows' is -6"),
    ("\"rows\" : 6", "\"rows\" : 0", "'rows' is 0"),
    ("\"rows\" : 6", "\"rows\" : 99999999999", "'rows' is 99999999999"),
    ("\"rows\" : 6", "\"rows\" : \"6\"", "'rows' is \"6\""),
    ("\"shape\" : [ 2 ]", "\"shape\" : [ -2 ]", "its shape is [-2]"),
    ("\"shape\" : [ 2 ]", "\"shape\" : [ ]", "its shape is []"),
    ("\"shape\" : [ 2 ]", "\"shape\" : [ 65536, 65536, 2 ]", "its shape is [65536,65536,2]"),
    ("\"shape\" : [ 2 ]", "\"shape\" : [ 2147483647, 2147483647, 2147483647, 2147483647 ]", "its shape is"),
    ("\"shape\" : [ 2 ]", "\"shape\" : [ 1.5 ]", "its shape is [1.5]"),
    ("\"file\" : \"part-0\"", "\"file\" : \"\"", "the file of a part is ''"),
    ("\"file\" : \"part-0\"", "\"file\" : \"/etc/passwd\"", "the file of a part is '/etc/passwd'"),
    ("\"file\" : \"part-0\"", "\"file\" : \"../part-0\"", "the file of a part is '../part-0'"),
    ("\"file\" : \"part-0\"", "\"file\" : \"..\"", "the file of a part is '..'"),
    ("\"file\" : \"part-0\"", "\"file\" : \"hdfs:x\"", "the file of a part is 'hdfs:x'"),
    ("\"classes\" : 3", "\"classes\" : 1", "'classes' is 1"),
    ("\"classes\" : 3", "\"classes\" : -3", "'classes' is -3")
  )

  for ((from, to, told) <- changes) test(s"$to is refused") {
    assert(good.contains(from))
    val message = refusal(folder(good.replace(from, to)))
    assert(message.contains(told) && message.contains("decodes"), message)
  }

  test("parts whose rows together are too many, and a file that is listed twice") {
    val part = (file: String) => RowsPart(file, 2000000000, test = false)
    val many = RowsManifest("csv", layout, Seq(part("a"), part("b")), Skipped.none, 1).toJson
    assert(refusal(folder(many)).contains("4000000000 rows"))
    val twice =
      RowsManifest("csv", layout, Seq(RowsPart("a", 1, test = false), RowsPart("a", 1, test = true)), Skipped.none, 1)
    assert(refusal(folder(twice.toJson)).contains("'a' is there twice"))
  }

  test("labels outside of the classes are refused, with their row") {
    for (label <- Seq(-1, 3, Int.MinValue, Int.MaxValue)) {
      val message = refusal(folder(good, Seq(0, 1, 2, 0, label, 2)))
      assert(message.contains(s"the label $label in row 4") && message.contains("labels are 0 to 2"), message)
    }
  }
}
