package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunFile

import java.io.File
import java.net.{URL, URLClassLoader}
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.TimeUnit
import java.util.zip.{ZipEntry, ZipOutputStream}
import scala.jdk.CollectionConverters._

/** What a session is told about its shuffle manager, with jars made here and with the real ones of Celeborn and Uniffle. */
class ShuffleManagerCheckSuite extends AnyFunSuite {
  private val celeborn = "org.apache.spark.shuffle.celeborn.SparkShuffleManager"
  private val uniffle = "org.apache.spark.shuffle.RssShuffleManager"
  private lazy val folder = Files.createTempDirectory("shuffle-managers")

  private def jarWith(className: String): Path = {
    val jar = Files.createTempFile(folder, "some", ".jar")
    val zip = new ZipOutputStream(Files.newOutputStream(jar))
    zip.putNextEntry(new ZipEntry(className.replace('.', '/') + ".class"))
    zip.close()
    jar
  }

  private def problem(spark: String, onDriver: Seq[Path], conf: (String, String)*): Option[String] = {
    val loader = new URLClassLoader(onDriver.map(_.toUri.toURL).toArray[URL], getClass.getClassLoader)
    new ShuffleManagerCheck(Map("spark.master" -> "spark://host:7077") ++ conf, spark, loader).problem
  }

  test("sort needs nothing, whoever wraps it") {
    val ours = "org.apache.spark.sparkdlbench.SparkDLShuffleManager"
    assert(problem("3.5.8", Nil).isEmpty)
    for (name <- Seq("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager", ours))
      assert(problem("4.1.0", Nil, "spark.shuffle.manager" -> name).isEmpty)
  }

  test("a class that is not there is named, with what to add and where, for this Spark") {
    val old = problem("3.5.8", Nil, "spark.shuffle.manager" -> celeborn).get
    assert(old.contains(celeborn) && old.contains("celeborn-client-spark-3-shaded_2.12:0.5.4"))
    assert(old.contains("spark.executor.extraClassPath") && old.contains("conf/spark/celeborn.conf"))
    val young = problem("4.1.0", Nil, "spark.shuffle.manager" -> celeborn).get
    assert(young.contains("celeborn-client-spark-4-shaded_2.13") && young.contains("spark.jars"))
    val unknown = problem("4.1.0", Nil, "spark.shuffle.manager" -> "com.example.Mine").get
    assert(unknown.contains("com.example.Mine") && unknown.contains("driver's class path"))
  }

  test("the one that ours delegates to is looked at") {
    val ours = "org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager"
    val found = problem("3.5.8", Nil, "spark.shuffle.manager" -> ours, "spark.sparkdl.shuffle.delegate" -> uniffle)
    assert(found.exists(_.contains(uniffle)))
  }

  test("executors of Spark 3.5 have it from their class path alone, those of Spark 4 also from spark.jars") {
    val jar = jarWith("com.example.Mine")
    val other = jarWith("com.example.Other")
    def found(spark: String, conf: (String, String)*) =
      problem(spark, Seq(jar), Seq("spark.shuffle.manager" -> "com.example.Mine") ++ conf: _*)
    assert(found("3.5.8").exists(_.contains("executors would not")))
    assert(found("3.5.8", "spark.jars" -> jar.toString).exists(_.contains("before they fetch spark.jars")))
    assert(found("3.5.8", "spark.executor.extraClassPath" -> other.toString).isDefined)
    assert(found("3.5.8", "spark.executor.extraClassPath" -> s"$other${File.pathSeparator}$jar").isEmpty)
    assert(found("3.5.8", "spark.executor.extraClassPath" -> s"$folder/*").isEmpty)
    assert(found("4.1.0").isDefined)
    assert(found("4.1.0", "spark.jars" -> s"$other,${jar.toUri}").isEmpty)
    assert(found("3.5.8", "spark.master" -> "local[2]").isEmpty)
    // A path that this host does not have may hold it.
    assert(found("3.5.8", "spark.executor.extraClassPath" -> "/nowhere/on/this/host.jar").isEmpty)
  }

  test("a Spark that the manager does not support is said first") {
    for (
      name <- Seq("org.apache.spark.shuffle.rdma.RdmaShuffleManager", "org.apache.spark.shuffle.UcxShuffleManager")
    ) {
      val found = problem("3.5.8", Nil, "spark.shuffle.manager" -> name).get
      assert(found.contains("supports Spark 2.") && found.contains("this is Spark 3.5.8"))
    }
    assert(problem("4.1.0", Nil, "spark.shuffle.manager" -> uniffle).exists(_.contains("supports Spark 2.x, 3.x")))
  }

  test("the switches of a Spark that this one is not are refused, whatever the shuffle manager, and not when off") {
    for (spark <- Seq("3.5.8", "4.1.0"); key <- Seq("spark.ib.enabled", "spark.roce.enabled")) {
      val found = problem(spark, Nil, key -> "true").get
      assert(found.contains(s"$key=true asks for OSU's RDMA-Spark") && found.contains(s"this is Spark $spark"), found)
      assert(found.contains("Spark 2.1.x") && found.contains("over TCP") && found.contains("on every host"), found)
      assert(problem(spark, Nil, key -> " True ", "spark.shuffle.manager" -> celeborn).contains(found))
      assert(problem(spark, Nil, key -> "false").isEmpty)
      assert(problem("2.1.0", Nil, key -> "true").isEmpty)
    }
    val both = problem("3.5.8", Nil, "spark.ib.enabled" -> "true", "spark.roce.enabled" -> "true").get
    assert(both.startsWith("spark.ib.enabled=true and spark.roce.enabled=true asks for"), both)
    for (known <- KnownShuffleManagers.distributions) {
      val profile = RunFile(Map("spark_profile" -> known.profile), Map.empty).withProfile.spark
      assert(problem("4.1.0", Nil, profile.toSeq: _*).exists(_.contains(known.title)), known.profile)
    }
  }

  test("every profile that names a manager names a known one, and each known one has a profile") {
    val names = Files.list(root.resolve("conf/spark")).iterator.asScala.map(_.getFileName.toString).toSeq
    val profiles = names.map(_.stripSuffix(".conf"))
    assert(KnownShuffleManagers.all.map(_.profile).forall(profiles.contains))
    for (name <- profiles) {
      val read = RunFile(Map("spark_profile" -> name, "workers" -> "2"), Map("spark.one" -> "1")).withProfile
      assert(read.settings == Map("workers" -> "2"))
      assert(read.spark("spark.one") == "1" && read.spark.size > 1, name)
      read.spark.get("spark.shuffle.manager").filter(_ != "sort").foreach { manager =>
        assert(KnownShuffleManagers.find(manager).isDefined, name)
      }
      for (
        known <- KnownShuffleManagers.find(read.spark.getOrElse("spark.shuffle.manager", ""));
        (key, value, _) <- known.fixed
      )
        assert(read.spark(key) == value, s"$name: $key")
    }
    val error = intercept[ConfigurationException](RunFile(Map("spark_profile" -> "celebron"), Map.empty).withProfile)
    assert(error.getMessage.contains("celebron"))
    val own = RunFile(Map("spark_profile" -> "sort"), Map("spark.shuffle.compress" -> "true")).withProfile
    assert(own.spark("spark.shuffle.compress") == "true")
  }

  for {
    (profile, coordinates, spark) <- Seq(
      ("celeborn", "org.apache.celeborn:celeborn-client-spark-3-shaded_2.12:0.5.4", "3.5.8"),
      ("uniffle", "org.apache.uniffle:rss-client-spark3-shaded:0.9.2", "3.5.8")
    )
  } test(s"$profile: the real client jar holds the class that the profile names; keys that lack are named one by one") {
    val jar = brought(coordinates)
    val known = KnownShuffleManagers.all.find(_.profile == profile).get
    assert(known.jarName.pattern.matcher(jar.getFileName.toString).matches)
    assert(known.jarsFor(spark) == coordinates)
    val settings = RunFile(Map("spark_profile" -> profile), Map.empty).withProfile.spark.toSeq
    def found(conf: (String, String)*) = problem(spark, Seq(jar), settings ++ conf: _*)
    assert(problem(spark, Nil, settings: _*).exists(_.contains(coordinates)))
    assert(found().exists(_.contains("executors would not")))
    val there = "spark.executor.extraClassPath" -> jar.toString
    val (key, _) = known.required.head
    assert(found(there).exists(text => text.contains(s"needs $key") && text.contains(s"conf/spark/$profile.conf")))
    assert(found(there, key -> "host:1").isEmpty)
    val (fixed, value, _) = known.fixed.head
    assert(found(there, key -> "host:1", fixed -> "other").exists(_.contains(s"$fixed=$value")))
  }

  private lazy val root: Path =
    Iterator
      .iterate(Paths.get("").toAbsolutePath)(_.getParent)
      .find(folder => Files.exists(folder.resolve("build.sbt")))
      .get

  /** Brought once by its coordinates into the user's cache, where the build's other tools are. */
  private def brought(coordinates: String): Path = {
    val (name, version) = (coordinates.split(':')(1), coordinates.split(':')(2))
    val base = sys.env.get("XDG_CACHE_HOME").fold(Paths.get(sys.props("user.home"), ".cache"))(Paths.get(_))
    val tools = sys.env.get("SPARKDL_TOOLS").fold(base.resolve("sparkdl-bench").resolve("tools"))(Paths.get(_))
    val jar = tools.resolve("shuffle-managers").resolve(s"$name-$version.jar")
    if (!Files.exists(jar)) {
      Files.createDirectories(jar.getParent)
      val log = Files.createTempFile("mvn", ".log")
      val plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
      val command =
        Seq("project/mvn", "-q", "-B", plugin, s"-Dartifact=$coordinates", s"-DoutputDirectory=${jar.getParent}")
      val process = new ProcessBuilder(command.asJava)
        .directory(root.toFile)
        .redirectErrorStream(true)
        .redirectOutput(log.toFile)
        .redirectInput(new File("/dev/null"))
        .start()
      if (!process.waitFor(300, TimeUnit.SECONDS)) process.destroyForcibly()
      if (!Files.exists(jar))
        cancel(s"$coordinates could not be brought by project/mvn: ${Files.readString(log).take(400)}")
    }
    jar
  }
}
