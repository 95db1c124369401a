package sparkdlbench.common

import java.lang.management.ManagementFactory
import java.net.InetAddress
import java.nio.file.{Files, Paths}
import java.util.Properties
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._
import scala.util.Try

/** What has to be known to repeat a measurement. */
object Facts {

  /** Version, Spark line, Scala version and commit of this build. */
  lazy val build: Map[String, String] = {
    val properties = new Properties()
    val stream = getClass.getResourceAsStream("/sparkdlbench/build.properties")
    if (stream != null)
      try properties.load(stream)
      finally stream.close()
    ListMap(properties.asScala.toSeq.sorted: _*)
  }

  /** This host's name, for errors that say where something is wrong. */
  def hostName: String = Try(InetAddress.getLocalHost.getHostName).getOrElse("(of unknown name)")

  def host: Map[String, Any] = ListMap(
    "name" -> Try(InetAddress.getLocalHost.getHostName).getOrElse("unknown"),
    "cpu" -> cpuInfo("model name"),
    "cpu_flags" -> cpuInfo("flags").split(' ').filter(flag => flag.startsWith("avx") || flag.startsWith("amx")).toSeq,
    "cores" -> Runtime.getRuntime.availableProcessors,
    "memory_bytes" -> memory,
    "os" -> s"${System.getProperty("os.name")} ${System.getProperty("os.version")} ${System.getProperty("os.arch")}",
    "java" -> s"${System.getProperty("java.vm.name")} ${System.getProperty("java.version")}",
    "load_average" -> ManagementFactory.getOperatingSystemMXBean.getSystemLoadAverage
  )

  private def lines(file: String): Seq[String] =
    Try(Files.readAllLines(Paths.get(file)).asScala.toSeq).getOrElse(Nil)

  private def cpuInfo(field: String): String =
    lines("/proc/cpuinfo").find(_.startsWith(field)).map(_.split(":", 2)(1).trim).getOrElse("unknown")

  private def memory: Long = lines("/proc/meminfo")
    .find(_.startsWith("MemTotal"))
    .map(_.replaceAll("[^0-9]", "").toLong * 1024)
    .getOrElse(-1L)
}
