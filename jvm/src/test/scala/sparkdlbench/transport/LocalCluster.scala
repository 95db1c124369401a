package sparkdlbench.transport

import org.apache.spark.{BarrierTaskContext, SparkConf, SparkContext}
import org.apache.spark.sparkdlbench.SparkTestSupport
import sparkdlbench.config.Settings

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import scala.jdk.CollectionConverters._

/**
 * Spark applications with real executor processes for tests. The executors run with this JVM's own jars: a folder of links
 * to them stands in for a Spark distribution.
 */
object LocalCluster {
  private lazy val home: Path = {
    val folder = Files.createTempDirectory("spark-home")
    val jars = Files.createDirectory(folder.resolve("jars"))
    classPath.filter(_.endsWith(".jar")).zipWithIndex.foreach { case (jar, index) =>
      Files.createSymbolicLink(jars.resolve(s"$index-${new File(jar).getName}"), Paths.get(jar).toAbsolutePath)
    }
    // Spark's launcher learns its Scala version from this folder's name.
    val scalaBinary = util.Properties.versionNumberString.split('.').take(2).mkString(".")
    Files.createDirectories(folder.resolve(s"launcher/target/scala-$scalaBinary"))
    sys.addShutdownHook {
      val all = Files.walk(folder) // with what the workers have put there; links are not followed
      try all.iterator.asScala.toSeq.reverse.foreach(Files.delete)
      finally all.close()
    }
    folder
  }

  private def classPath: Seq[String] = sys.props("java.class.path").split(File.pathSeparator).toSeq

  private def folders: String = classPath.filterNot(_.endsWith(".jar")).mkString(File.pathSeparator)

  /** Runs `body` in an application of its own on `executors` processes of `cores` task slots. */
  def run[T](executors: Int, cores: Int, settings: (String, String)*)(body: SparkContext => T): T = {
    val sc = start(executors, cores, settings: _*)
    try body(sc)
    finally stop(sc)
  }

  /** The same for several tests of a suite, which ends it by `stop`. */
  def start(executors: Int, cores: Int, settings: (String, String)*): SparkContext = {
    // Spark's workers take their home from here, in a JVM whose environment cannot be changed any more.
    SparkTestSupport.useLoopback()
    sys.props("spark.testing") = "true"
    sys.props("spark.test.home") = home.toString
    val conf = new SparkConf()
      .setMaster(s"local-cluster[$executors,$cores,1024]")
      .setAppName("local-cluster-test")
      .set("spark.ui.enabled", "false")
      .set("spark.driver.host", "127.0.0.1")
      .set("spark.driver.bindAddress", "127.0.0.1")
      .set("spark.executor.extraClassPath", folders)
      .set("spark.executor.memory", "512m")
      .set("spark.executor.extraJavaOptions", "-XX:+UseSerialGC")
      .set("spark.task.maxFailures", "1")
    settings.foreach { case (key, value) => conf.set(key, value) }
    val sc =
      try new SparkContext(conf)
      catch { case error: Throwable => clearProperties(); throw error }
    try { awaitExecutors(sc, executors); sc }
    catch { case error: Throwable => stop(sc); throw error }
  }

  def stop(sc: SparkContext): Unit =
    try sc.stop()
    finally clearProperties()

  private def clearProperties(): Unit = Seq("spark.testing", "spark.test.home").foreach(sys.props.remove)

  /** On a busy machine one may come so long after another that a run would not wait for it. */
  private def awaitExecutors(sc: SparkContext, executors: Int): Unit = {
    val end = System.nanoTime() + 120000000000L
    while (sc.getExecutorMemoryStatus.size <= executors && System.nanoTime() < end) Thread.sleep(50)
    assert(sc.getExecutorMemoryStatus.size > executors, "the executors have not come")
  }

  /** The settings that a session needs for block-stream on this Spark line, as SparkDLPlugin documents them. */
  def prepared: Seq[(String, String)] =
    Seq("spark.plugins" -> "sparkdlbench.SparkDLPlugin") ++
      (if (org.apache.spark.SPARK_VERSION.startsWith("3."))
         Seq("spark.shuffle.manager" -> "org.apache.spark.sparkdlbench.SparkDLShuffleManager")
       else Nil)

  /** Runs `body` as `ranks` ranks of one group; their results by rank. */
  def ranks[T: scala.reflect.ClassTag](
      sc: SparkContext,
      ranks: Int,
      settings: Settings,
      secret: RunSecret = RunSecret.random()
  )(body: GroupContext => T): IndexedSeq[T] = {
    val folder = Files.createTempDirectory("rendezvous")
    val name = folder.toString
    try
      sc.parallelize(0 until ranks, ranks)
        .barrier()
        .mapPartitions(_ => Iterator(body(new TaskGroup(BarrierTaskContext.get(), ranks, name, settings, secret))))
        .collect()
        .toIndexedSeq
    finally {
      // After a failure another rank may still leave word there: that must not hide the failure.
      folder.toFile.listFiles().foreach(_.delete())
      folder.toFile.delete(): Unit
    }
  }
}

/**
 * A group made of the tasks of one barrier stage. They meet in a folder: Spark's own `allGather` looks once a second, and the
 * suites meet some hundred times.
 */
class TaskGroup(
    context: BarrierTaskContext,
    val size: Int,
    folder: String,
    val settings: Settings,
    val secret: RunSecret
) extends GroupContext {
  private var meetings = 0

  def rank: Int = context.partitionId()
  def timeoutMillis: Long = 60000
  def attemptId: String = s"$folder-${context.stageAttemptNumber()}"

  def allGather(text: String): IndexedSeq[String] = {
    val number = meetings
    meetings += 1
    def place(of: Int) = Paths.get(folder, s"${context.stageAttemptNumber()}-$number-$of")
    val draft = Paths.get(folder, s"$number-$rank.draft")
    Files.write(draft, text.getBytes(UTF_8))
    Files.move(draft, place(rank), StandardCopyOption.ATOMIC_MOVE)
    val end = System.nanoTime() + 60000000000L
    while (!(0 until size).forall(of => Files.exists(place(of)))) {
      if (isKilled || System.nanoTime() > end) throw new IllegalStateException(s"rank $rank met nobody in $folder")
      Thread.sleep(5)
    }
    (0 until size).map(of => new String(Files.readAllBytes(place(of)), UTF_8))
  }

  def isKilled: Boolean = context.isInterrupted()
}
