import sbtassembly.AssemblyPlugin.autoImport._

// One build, two Spark lines: `sbt ++2.13.16 …` builds for Spark 4.x, `sbt ++2.12.18 …` for Spark 3.5.
val scalaForSpark4 = "2.13.16"
val scalaForSpark35 = "2.12.18"
def sparkLine(scalaBinary: String): String = if (scalaBinary == "2.12") "3.5" else "4"
def sparkVersion(scalaBinary: String): String = if (scalaBinary == "2.12") "3.5.8" else "4.1.0"

// The registries lack spark-mllib-local 3.5.8.
def mllibVersion(scalaBinary: String): String = if (scalaBinary == "2.12") "3.5.9" else sparkVersion(scalaBinary)

// As in python/sparkdl_bench/ucx.py, which brings it, and in UcxLibraries.scala.
val ucxVersion = "1.18.1"

// What the natives of the POM and of the assembled jar are for; other platforms come by `sparkdl-bench jars fetch`.
val platform = "linux-x86_64"

// Jars whose classes go into the thin jar, so that it needs nothing besides Spark and the natives.
lazy val Bundled = config("bundled").hide

// A real HDFS for the tests: its jars have a process of their own, never the class path of Spark.
lazy val MiniHdfs = config("minihdfs").hide

// The coverage-guided fuzzer of `make fuzz`: its jars go to its own process, never to the class path of tests.
lazy val Jazzer = config("jazzer").hide

lazy val fuzzClasspath =
  taskKey[File]("Compiles the tests and writes the class paths of `make fuzz`: target/fuzz/classpath and …/jazzer")

lazy val stageJars =
  taskKey[File]("Places the thin jar and all that it needs besides Spark into target/jars-<Spark line>")

ThisBuild / organization := "io.github.sparkdl-bench"
ThisBuild / version := SharedVersion.read((ThisBuild / baseDirectory).value / "python" / "sparkdl_bench" / "version.py")
ThisBuild / scalaVersion := scalaForSpark4
ThisBuild / versionScheme := Some("early-semver")
ThisBuild / description := "Trains neural nets on Spark, in-band, and measures every way of synchronising them"
ThisBuild / licenses := Seq("Apache-2.0" -> url("https://www.apache.org/licenses/LICENSE-2.0.txt"))
ThisBuild / homepage := Some(url("https://github.com/sparkdl-bench/sparkdl-bench"))
ThisBuild / organizationName := "sparkdl-bench"
ThisBuild / organizationHomepage := Some(url("https://github.com/sparkdl-bench"))
ThisBuild / startYear := Some(2026)
ThisBuild / scmInfo := Some(
  ScmInfo(
    url("https://github.com/sparkdl-bench/sparkdl-bench"),
    "scm:git:https://github.com/sparkdl-bench/sparkdl-bench.git",
    "scm:git:ssh://git@github.com/sparkdl-bench/sparkdl-bench.git"
  )
)
ThisBuild / developers := List(
  Developer("sparkdl-bench", "The sparkdl-bench authors", "", url("https://github.com/sparkdl-bench"))
)
// The same times in every jar of a commit, whenever and wherever it is built.
ThisBuild / packageTimestamp := Some(1262304000000L) // 2010-01-01, as sbt itself takes

// sbt's own limits, but for two processes of tests at once instead of one.
Global / concurrentRestrictions := Seq(
  Tags.limitAll(java.lang.Runtime.getRuntime.availableProcessors),
  Tags.limit(Tags.ForkedTestGroup, 2),
  Tags.exclusiveGroup(Tags.Clean)
)

lazy val root = (project in file("."))
  .aggregate(jvm)
  .settings(publish / skip := true, crossScalaVersions := Nil)

lazy val jvm = (project in file("jvm"))
  .settings(
    name := "sparkdl-bench-spark-" + sparkLine(scalaBinaryVersion.value),
    moduleName := name.value, // by itself sbt would make 3-5 of 3.5
    crossScalaVersions := Seq(scalaForSpark4, scalaForSpark35),
    scalacOptions ++= Seq("-deprecation", "-feature", "-unchecked", "-Xfatal-warnings", "-release", "17"),
    scalacOptions += (if (scalaBinaryVersion.value == "2.12") "-Xlint" else "-Xlint:_,-byname-implicit"),
    javacOptions ++= Seq("--release", "17"),
    Compile / unmanagedSourceDirectories ++= Seq(
      baseDirectory.value / "src" / "main" / "scala-spark",
      baseDirectory.value / "src" / "main" / ("scala-spark-" + sparkLine(scalaBinaryVersion.value))
    ),
    // Spark brings Scala; a version of ours in the POM would win over Spark's in a Maven build and break its reflection.
    autoScalaLibrary := false,
    libraryDependencies ++= Seq(
      "org.scala-lang" % "scala-library" % scalaVersion.value % Provided,
      "org.apache.spark" %% "spark-core" % sparkVersion(scalaBinaryVersion.value) % Provided,
      "org.apache.spark" %% "spark-sql" % sparkVersion(scalaBinaryVersion.value) % Provided,
      // Vectors as columns of predictions. Of what these need besides, nothing is used, and not all is in the registries.
      ("org.apache.spark" %% "spark-mllib" % mllibVersion(scalaBinaryVersion.value) % Provided).intransitive(),
      ("org.apache.spark" %% "spark-mllib-local" % mllibVersion(scalaBinaryVersion.value) % Provided).intransitive(),
      // Algorithm lbfgs; every distribution of Spark brings it for MLlib.
      "org.scalanlp" %% "breeze" % "2.1.0" % Provided,
      // As old as the oldest supported Spark's Jackson: an older reader runs on a newer core, not the other way round.
      ("com.fasterxml.jackson.dataformat" % "jackson-dataformat-toml" % "2.15.2" % Bundled).intransitive(),
      // OpenSSL's own calls, to encrypt the connections of block-stream in place.
      ("net.java.dev.jna" % "jna" % "5.18.1" % Bundled).intransitive(),
      // Transport ucx; brought by `sparkdl-bench jars fetch --ucx` where it is wanted, never needed otherwise.
      "org.openucx" % "jucx" % ucxVersion % Provided,
      "org.scalatest" %% "scalatest" % "3.2.19" % Test,
      // Writes LMDB files as Caffe's tools do, to hold our reader against.
      "org.lmdbjava" % "lmdbjava" % "0.9.1" % Test
    ),
    libraryDependencies ++= Natives.modules(
      (ThisBuild / baseDirectory).value / "python" / "sparkdl_bench" / "natives.properties",
      platform
    ),
    Compile / resourceGenerators += Def.task {
      Services.generate((Compile / sources).value, (Compile / resourceManaged).value)
    }.taskValue,
    Compile / resourceGenerators += Def.task {
      val scalaBinary = scalaBinaryVersion.value
      BuildFacts.generate(
        (Compile / resourceManaged).value,
        (ThisBuild / baseDirectory).value,
        version.value,
        sparkLine(scalaBinary),
        sparkVersion(scalaBinary),
        scalaVersion.value
      )
    }.taskValue,
    // The Spark profiles, for runs that spark-submit starts.
    Compile / resourceGenerators += Def.task {
      val profiles =
        IO.listFiles((ThisBuild / baseDirectory).value / "conf" / "spark").filter(_.getName.endsWith(".conf"))
      val folder = (Compile / resourceManaged).value / "sparkdlbench" / "spark"
      IO.copy(profiles.map(file => file -> folder / file.getName)).toSeq
    }.taskValue,
    // The patterns of what stays out of results and messages, Python's as well.
    Compile / resourceGenerators += Def.task {
      val patterns = (ThisBuild / baseDirectory).value / "python" / "sparkdl_bench" / "redaction.json"
      val copied = (Compile / resourceManaged).value / "sparkdlbench" / patterns.getName
      IO.copy(Seq(patterns -> copied)).toSeq
    }.taskValue,
    // The words for what algorithms count: a run's page has the same as Python's reports.
    Compile / resourceGenerators += Def.task {
      val words = (ThisBuild / baseDirectory).value / "python" / "sparkdl_bench" / "report" / "counted.json"
      val copied = (Compile / resourceManaged).value / "sparkdlbench" / words.getName
      IO.copy(Seq(words -> copied)).toSeq
    }.taskValue,
    ivyConfigurations += MiniHdfs,
    libraryDependencies ++= Seq(
      "org.apache.hadoop" % "hadoop-client-minicluster" % "3.5.0" % MiniHdfs,
      "org.slf4j" % "slf4j-simple" % "1.7.36" % MiniHdfs,
      "org.junit.jupiter" % "junit-jupiter-api" % "5.10.2" % MiniHdfs,
      "org.mockito" % "mockito-core" % "4.11.0" % MiniHdfs
    ),
    Test / javaOptions += {
      val jars = Classpaths.managedJars(MiniHdfs, Set("jar", "bundle"), update.value).files
      s"-Dsparkdl.minihdfs=${jars.mkString(java.io.File.pathSeparator)}"
    },
    ivyConfigurations += Jazzer,
    libraryDependencies += "com.code-intelligence" % "jazzer" % "0.24.0" % Jazzer,
    fuzzClasspath := {
      val folder = (ThisBuild / baseDirectory).value / "target" / "fuzz"
      def write(name: String, jars: Seq[File]) =
        IO.write(folder / name, jars.mkString(java.io.File.pathSeparator))
      write("classpath", (Test / fullClasspath).value.files)
      write("jazzer", Classpaths.managedJars(Jazzer, Set("jar", "bundle"), update.value).files)
      folder
    },
    Test / fork := true,
    Test / javaOptions ++= Seq("-Xmx2g") ++ JavaModules.opens,
    // Tests start hundreds of short-lived JVMs, executors most of all: the optimising compiler would take half of their time.
    Test / envVars += "JDK_JAVA_OPTIONS" -> "-XX:TieredStopAtLevel=1",
    Test / javaOptions += "-XX:TieredStopAtLevel=4", // this one lives for minutes
    // Two of them at once: suites that wait for executors leave the cores idle for half of their time. Four groups of
    // much the same length, so that neither core waits for the other's at the end.
    Test / testGrouping := {
      val parts = Seq(Seq("train", "ml"), Seq("transport", "topology"), Seq("algorithm", "job", "engine"))
      def part(test: TestDefinition) =
        parts.indexWhere(_.exists(name => test.name.startsWith(s"sparkdlbench.$name.")))
      val process = Tests.SubProcess((Test / forkOptions).value)
      (Test / definedTests).value.groupBy(part).toSeq.sortBy(_._1).map { case (index, tests) =>
        Tests.Group(parts.lift(index).fold("all else")(_.mkString(", ")), tests, process)
      }
    }
  )
  .settings(bundling ++ publishing ++ assembling ++ cataloguing)
  .settings(
    stageJars := StageJars.stage(
      (ThisBuild / baseDirectory).value / "target" / s"jars-${sparkLine(scalaBinaryVersion.value)}",
      (Compile / packageBin).value,
      (Runtime / managedClasspath).value.files.filterNot(_.getName.startsWith("scala-library"))
    )
  )

// JNA's own native code, where its calls are made.
def isBridge(path: String): Boolean = path.matches("com/sun/jna/linux-(x86-64|aarch64)/.*\\.so")

def bundling: Seq[Setting[_]] = Seq(
  ivyConfigurations += Bundled,
  Compile / unmanagedJars ++= Classpaths.managedJars(Bundled, Set("jar", "bundle"), update.value),
  Compile / packageBin / mappings ++= {
    val folder = target.value / "bundled"
    val jars = Classpaths.managedJars(Bundled, Set("jar", "bundle"), update.value).files
    val classes =
      jars.flatMap(
        IO.unzip(_, folder, (path: String) => path.startsWith("com/") && (path.endsWith(".class") || isBridge(path)))
      )
    classes pair Path.relativeTo(folder)
  }
)

// What a command line can check before it starts a JVM; made of the compiled classes, so that nothing is written twice.
def cataloguing: Seq[Setting[_]] = Seq(
  Compile / packageBin / mappings += {
    val folder = target.value / s"catalogue-${scalaBinaryVersion.value}"
    CatalogueFile.generate(
      (Compile / products).value,
      (Compile / fullClasspath).value.files,
      folder,
      streams.value.cacheDirectory / "catalogue",
      streams.value.log
    ) -> "sparkdlbench/catalogue.json"
  }
)

// `SPARKDL_REPOSITORY=DIR sbt +publish` writes a folder that Maven, sbt, Ivy and `spark-submit --packages` can read. What
// registries ask for besides (sources, documentation, signatures) is in `make release` alone (project/release.py).
def publishing: Seq[Setting[_]] = Seq(
  publishMavenStyle := true,
  publishTo := {
    val default = (ThisBuild / baseDirectory).value / "target" / "repository"
    Some(MavenCache("folder", sys.env.get("SPARKDL_REPOSITORY").fold(default)(file)))
  },
  publishConfiguration := publishConfiguration.value.withOverwrite(true),
  publishM2Configuration := publishM2Configuration.value.withOverwrite(true),
  Compile / packageDoc / publishArtifact := false
)

def assembling: Seq[Setting[_]] = Seq(
  assembly / assemblyJarName := s"${name.value}_${scalaBinaryVersion.value}-assembly-${version.value}.jar",
  assembly / assemblyOption := (assembly / assemblyOption).value.withIncludeScala(false),
  assembly / assemblyMergeStrategy := {
    case PathList("META-INF", "services", service) if service.startsWith("sparkdlbench.") => MergeStrategy.concat
    case PathList("META-INF", name) if name.startsWith("LICENSE") || name.startsWith("NOTICE") => MergeStrategy.rename
    case PathList("META-INF", _*) => MergeStrategy.discard
    case PathList("module-info.class") => MergeStrategy.discard
    // C and Fortran headers: nothing reads them at run time.
    case PathList("org", "bytedeco", _, _, "include", _*) => MergeStrategy.discard
    case _ => MergeStrategy.first
  }
)
