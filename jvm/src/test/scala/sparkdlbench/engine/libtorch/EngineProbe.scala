package sparkdlbench.engine.libtorch

import sparkdlbench.common.ConfigurationException
import sparkdlbench.engine.Engine

import java.lang.management.ManagementFactory

/**
 * What the tests run in JVMs of their own, because a JVM can hold one BLAS: trains a small net with the settings given as
 * `key=value` arguments and prints facts and losses as `name: value` lines; after `Share`, which takes seconds, also how busy
 * other threads were.
 */
object EngineProbe {
  val Share = "--share"

  def main(arguments: Array[String]): Unit = {
    val settings = arguments.toSeq.filter(_ != Share).map { argument =>
      val parts = argument.split("=", 2)
      parts(0) -> parts(1)
    }
    try {
      val spec = EngineFixture.mlp(64, "100,50", 10)
      val engine = EngineFixture.load(spec, 32, settings = settings)
      engine.facts.foreach { case (name, value) => println(s"$name: $value") }
      println("losses: " + EngineFixture.losses(engine, spec, 32, 20, 0.1f).mkString(" "))
      engine.close()
      println(s"names searched: ${FoundLibraries.found.fold(0)(_.size)}")
      if (arguments.contains(Share)) println(s"other threads' share: ${shareOfOtherThreads(settings)}")
    } catch {
      case error: ConfigurationException => println(s"refused: ${error.getMessage}")
    }
  }

  /**
   * CPU time that native threads other than the caller's use while it computes with one thread, per CPU second of the
   * caller's. Java's own threads (compilers, collector) are kept out by computing inside few long native calls.
   */
  private def shareOfOtherThreads(settings: Seq[(String, String)]): Double = {
    val spec = EngineFixture.mlp(1024, "1024,1024", 10)
    val engine: Engine = EngineFixture.load(spec, 512, settings = settings)
    val data = EngineFixture.batch(spec, 512, 1)
    val process = ManagementFactory.getPlatformMXBean(classOf[com.sun.management.OperatingSystemMXBean])
    val threads = ManagementFactory.getThreadMXBean
    def steps(count: Int): Unit = for (_ <- 0 until count) engine.step(data, 1f, (_, _) => ())
    steps(5)
    val (processBefore, ownBefore) = (process.getProcessCpuTime, threads.getCurrentThreadCpuTime)
    steps(20)
    val own = threads.getCurrentThreadCpuTime - ownBefore
    val all = process.getProcessCpuTime - processBefore
    engine.close()
    (all - own).toDouble / own
  }
}
