package sparkdlbench.data

import sparkdlbench.common.Json

import java.io.File
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._

/** A real HDFS (name node and one data node) in a process of its own, for as long as this JVM lives; loopback only. */
object MiniHdfs {
  private val StartSeconds = 90

  /** Its URI, hdfs://…; the same for all suites. */
  lazy val uri: String = start()

  private def start(): String = {
    val classPath =
      sys.props.getOrElse("sparkdl.minihdfs", throw new AssertionError("the build passes the class path of HDFS"))
    val folder = Files.createTempDirectory("mini-hdfs")
    val details = folder.resolve("details.json")
    val process = new ProcessBuilder(
      Paths.get(sys.props("java.home"), "bin", "java").toString,
      "-Xmx400m",
      s"-Dtest.build.data=$folder",
      s"-Dhadoop.tmp.dir=$folder/tmp",
      "-cp",
      classPath,
      "org.apache.hadoop.test.MiniDFSClusterManager",
      "-format",
      "-datanodes",
      "1",
      "-writeDetails",
      details.toString
    ).directory(folder.toFile)
      .redirectErrorStream(true)
      .redirectOutput(new File(folder.toFile, "log.txt"))
      .redirectInput(new File("/dev/null"))
      .start()
    sys.addShutdownHook {
      process.destroy()
      if (!process.waitFor(10, TimeUnit.SECONDS)) process.destroyForcibly()
      remove(folder)
    }
    awaitDetails(process, details, folder.resolve("log.txt"))
    s"hdfs://127.0.0.1:${Json.read(Files.readString(details)).path("namenode_port").asInt}"
  }

  private def awaitDetails(process: Process, details: Path, log: Path): Unit = {
    val end = System.nanoTime() + StartSeconds * 1000000000L
    while (!(Files.exists(details) && Files.size(details) > 0)) {
      if (!process.isAlive || System.nanoTime() > end)
        throw new AssertionError(s"HDFS did not start: ${Files.readAllLines(log).asScala.takeRight(20).mkString("\n")}")
      Thread.sleep(200)
    }
  }

  private def remove(folder: Path): Unit = {
    val all = Files.walk(folder)
    try all.iterator.asScala.toSeq.reverse.foreach(path => Files.deleteIfExists(path))
    catch { case _: java.io.IOException => () }
    finally all.close()
  }
}
