import sbtassembly.AssemblyPlugin.autoImport._

// One build, two Spark lines: `sbt ++2.13.16 …` builds for Spark 4.x, `sbt ++2.12.18 …` for Spark 3.5.
val scalaForSpark4 = "2.13.16"
val scalaForSpark35 = "2.12.18"
def sparkLine(scalaBinary: String): String = if (scalaBinary == "2.12") "3.5" else "4"
def sparkVersion(scalaBinary: String): String = if (scalaBinary == "2.12") "3.5.8" else "4.1.0"

val pytorchVersion = "2.10.0-1.5.13"
val openblasVersion = "0.3.31-1.5.13"
val mklVersion = "2025.3-1.5.13"
val javacppVersion = "1.5.13"

ThisBuild / organization := "io.github.sparkdl-bench"
ThisBuild / version := "0.1.0"
ThisBuild / scalaVersion := scalaForSpark4
ThisBuild / licenses := Seq("Apache-2.0" -> url("https://www.apache.org/licenses/LICENSE-2.0"))

lazy val root = (project in file("."))
  .aggregate(jvm)
  .settings(publish / skip := true, crossScalaVersions := Nil)

lazy val jvm = (project in file("jvm"))
  .settings(
    name := "sparkdl-bench-spark-" + sparkLine(scalaBinaryVersion.value),
    crossScalaVersions := Seq(scalaForSpark4, scalaForSpark35),
    scalacOptions ++= Seq("-deprecation", "-feature", "-unchecked", "-Xlint:_,-byname-implicit", "-Xfatal-warnings", "-release", "17")
      .filterNot(option => scalaBinaryVersion.value == "2.12" && option.startsWith("-Xlint")) ++
      (if (scalaBinaryVersion.value == "2.12") Seq("-Xlint") else Nil),
    javacOptions ++= Seq("--release", "17"),
    Compile / unmanagedSourceDirectories ++= Seq(
      baseDirectory.value / "src" / "main" / "scala-spark",
      baseDirectory.value / "src" / "main" / ("scala-spark-" + sparkLine(scalaBinaryVersion.value))
    ),
    libraryDependencies ++= Seq(
      "org.apache.spark" %% "spark-core" % sparkVersion(scalaBinaryVersion.value) % Provided,
      "org.apache.spark" %% "spark-sql" % sparkVersion(scalaBinaryVersion.value) % Provided,
      "com.electronwill.night-config" % "toml" % "3.8.3",
      "org.bytedeco" % "javacpp" % javacppVersion,
      "org.bytedeco" % "javacpp" % javacppVersion classifier "linux-x86_64",
      "org.bytedeco" % "pytorch" % pytorchVersion,
      "org.bytedeco" % "pytorch" % pytorchVersion classifier "linux-x86_64",
      "org.bytedeco" % "openblas" % openblasVersion,
      "org.bytedeco" % "openblas" % openblasVersion classifier "linux-x86_64",
      "org.bytedeco" % "mkl" % mklVersion,
      "org.bytedeco" % "mkl" % mklVersion classifier "linux-x86_64",
      "org.bytedeco" % "mkl" % mklVersion classifier "linux-x86_64-redist",
      "org.scalatest" %% "scalatest" % "3.2.19" % Test
    ),
    Compile / resourceGenerators += Def.task {
      Services.generate((Compile / sources).value, (Compile / resourceManaged).value)
    }.taskValue,
    Test / fork := true,
    Test / javaOptions ++= Seq("-Xmx2g") ++ JavaModules.opens,
    assembly / assemblyJarName := s"sparkdl-bench-spark-${sparkLine(scalaBinaryVersion.value)}-assembly-${version.value}.jar",
    assembly / assemblyOption := (assembly / assemblyOption).value.withIncludeScala(false),
    assembly / assemblyMergeStrategy := {
      case PathList("META-INF", "services", _*) => MergeStrategy.concat
      case PathList("META-INF", "native-image", _*) => MergeStrategy.discard
      case PathList("META-INF", "versions", _*) => MergeStrategy.first
      case PathList("module-info.class") => MergeStrategy.discard
      case PathList("META-INF", _*) => MergeStrategy.discard
      case _ => MergeStrategy.first
    }
  )
