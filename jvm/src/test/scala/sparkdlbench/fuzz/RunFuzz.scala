package sparkdlbench.train
package fuzz

import org.apache.hadoop.conf.Configuration
import sparkdlbench.config.{RunFile, RunKeys, Settings}
import sparkdlbench.fuzz.FuzzTarget
import sparkdlbench.rank.{CheckpointAuthor, DataPosition, RankSnapshot, StateRange}

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

private object Checkpoint {
  val author: CheckpointAuthor = CheckpointAuthor("run", 0)
  val snapshot: RankSnapshot =
    RankSnapshot(2, 0, 1, 0, DataPosition(50, 1, 100), 0.5, Seq(StateRange("weights", 0, Array(1f, 2f))), author)
  val content: Array[Byte] = {
    val memory = new ByteArrayOutputStream
    CheckpointPart.write(memory, snapshot)
    memory.toByteArray
  }
  val manifest: CheckpointManifest = {
    val (bytes, sha256) = CheckpointPart.write(new ByteArrayOutputStream, snapshot)
    val name = CheckpointManifest.fileName(0, 1, author)
    CheckpointManifest(
      author,
      2,
      1,
      snapshot.data,
      Seq(PartRecord(0, name, bytes, sha256, Seq(PartRange("weights", 0, 2))))
    )
  }
}

object CheckpointManifestFuzz extends FuzzTarget("checkpoint-manifest") {
  def seeds: Seq[Array[Byte]] = Seq(Checkpoint.manifest.text.getBytes(UTF_8))
  override protected def isLawful(error: Throwable): Boolean = error.isInstanceOf[IOException]
  protected def read(input: Array[Byte]): Unit = {
    val read = CheckpointManifest.read(new String(input, UTF_8))
    read.fault(2)
    CheckpointManifest.merged(Seq(read, read))
    if (CheckpointManifest.read(read.text) != read) throw new AssertionError("it is not what it was written as")
  }
}

object CheckpointPartFuzz extends FuzzTarget("checkpoint-part") {
  def seeds: Seq[Array[Byte]] = Seq(Checkpoint.content)
  override protected def isLawful(error: Throwable): Boolean = error.isInstanceOf[IOException]
  override protected def read(input: Array[Byte]): Unit = {
    CheckpointPart.isOfOtherVersion(new ByteArrayInputStream(input))
    CheckpointPart.read(new ByteArrayInputStream(input), Checkpoint.manifest.parts.head, Checkpoint.manifest)
    if (!input.sameElements(Checkpoint.content)) throw new AssertionError("other bytes than were written are taken")
  }
}

/** A folder of one checkpoint whose manifest and owner are the input. */
object CheckpointFolderFuzz extends FuzzTarget("checkpoint-folder") {
  private lazy val folder = FuzzTarget.folder()
  private lazy val step = Files.createDirectories(folder.resolve("step-000000000002"))
  private lazy val written = Files.write(step.resolve(Checkpoint.manifest.parts.head.file), Checkpoint.content)
  def seeds: Seq[Array[Byte]] = Seq(
    Checkpoint.manifest.text.getBytes(UTF_8),
    CheckpointOwner.ofThisProcess("run", "app").text.getBytes(UTF_8)
  )
  protected def read(input: Array[Byte]): Unit = {
    written
    Files.write(step.resolve(CheckpointManifest.File), input)
    Files.write(folder.resolve(CheckpointOwner.File), input)
    val store = new CheckpointStore(folder.toUri.toString, new Configuration(false))
    val files = new CheckpointFolder(new org.apache.hadoop.fs.Path(folder.toUri), new Configuration(false))
    CheckpointOwner.read(files).foreach(owner => (owner.lives, owner.place))
    val found = store.newest
    if (found.isEmpty && store.refusals.isEmpty) throw new AssertionError("refused without a reason")
    found.foreach(_.vector("weights", 2))
  }
}

/** A run's TOML file, up to the checked settings. */
object RunFileFuzz extends FuzzTarget("run-file") {
  private lazy val path = FuzzTarget.folder().resolve("run.toml")
  def seeds: Seq[Array[Byte]] = Seq(
    """|workers = 2
       |data = "digits"
       |epochs = 3
       |[model]
       |name = "mlp"
       |hidden = [100, 50]
       |[spark]
       |master = "local[2]"
       |"spark.ui.enabled" = false
       |""".stripMargin.getBytes(UTF_8)
  )
  protected def read(input: Array[Byte]): Unit = {
    Files.write(path, input)
    RunKeys.resolve(RunFile.read(path.toString).withProfile.settings): Unit
  }
}

/** Words of `--set`, one a line. */
object SettingsFuzz extends FuzzTarget("settings") {
  def seeds: Seq[Array[Byte]] = Seq(
    "workers=4\nmodel.hidden=100,50\ntcp.ports=5000-5010\nspark.ui.enabled=false\ncodec.k_fraction=0.1".getBytes
  )
  protected def read(input: Array[Byte]): Unit = {
    val lines = new String(input, UTF_8).split('\n').take(20)
    val file = lines.foldLeft(RunFile(Map("name" -> "x"), Map.empty))(_ set _)
    val settings: Settings = RunKeys.resolve(file.withProfile.settings)
    settings.shown: Unit
  }
}
