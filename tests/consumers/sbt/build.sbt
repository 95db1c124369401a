// A Scala team's project that trains a net with sparkdl-bench. Run it: SPARKDL_REPOSITORY=/where/it/was/published sbt "run results"
val sparkLine = sys.env.getOrElse("SPARK_LINE", "4")

name := "digits"
scalaVersion := (if (sparkLine == "3.5") "2.12.18" else "2.13.17")

resolvers += "sparkdl-bench" at file(sys.env("SPARKDL_REPOSITORY")).toURI.toString
libraryDependencies ++= Seq(
  "io.github.sparkdl-bench" %% s"sparkdl-bench-spark-$sparkLine" % "0.1.0",
  "org.apache.spark" %% "spark-sql" % (if (sparkLine == "3.5") "3.5.8" else "4.1.0")
)

// What Spark needs on JDK 17 and later outside of spark-submit.
fork := true
javaOptions ++= Seq("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")
  .map(name => s"--add-opens=java.base/java.$name=ALL-UNNAMED")
javaOptions ++= Seq("nio.ch", "util.calendar").map(name => s"--add-opens=java.base/sun.$name=ALL-UNNAMED")
