package sparkdlbench.fuzz

import org.apache.logging.log4j.core.config.Configurator
import org.apache.logging.log4j.{Level, LogManager}
import org.apache.spark.internal.Logging
import sparkdlbench.common.SparkDLException

import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path}

/**
 * A reader of what somebody else wrote, and the law for it: whatever the bytes, it returns, or throws an error that its caller expects, soon, and takes no
 * memory beyond a multiple of its input. One object a reader, called `…Fuzz` in a package called `fuzz`: `FuzzTargets` finds it. `make fuzz` runs
 * it under Jazzer, which calls `fuzzerTestOneInput`; `FuzzReplaySuite` runs it on the inputs of tests/fuzz in `make test`.
 *
 * @param name
 *   for the command line and for its file in tests/fuzz
 */
abstract class FuzzTarget(val name: String) {

  /** Good inputs, which it must read without an error. */
  def seeds: Seq[Array[Byte]]

  /** Reads an input. */
  protected def read(input: Array[Byte]): Unit

  /** Whether a reader may end so. */
  protected def isLawful(error: Throwable): Boolean = error.isInstanceOf[SparkDLException]

  /** Bytes that an input may make it allocate beyond 200 times its length. */
  protected def allocation: Long = 64L << 20

  /** Fails with an AssertionError where the law is broken. @return whether the input was read without an error */
  final def check(input: Array[Byte]): Boolean = {
    val (first, refusal) = measured(input)
    // The first that goes some way pays for what is loaded on it, under a fuzzer for its instrumentation too.
    val taken = if (isTooMuch(first, input)) measured(input)._1 else first
    if (isTooMuch(taken, input))
      throw new AssertionError(s"$name allocated $taken bytes for an input of ${input.length}")
    refusal.foreach { error =>
      if (error.getMessage == null || error.getMessage.isEmpty) throw new AssertionError(s"$name: no message", error)
    }
    refusal.isEmpty
  }

  private def isTooMuch(taken: Long, input: Array[Byte]): Boolean = taken > allocation + 200L * input.length

  /** Bytes that reading an input allocates, and how it was refused. */
  private def measured(input: Array[Byte]): (Long, Option[Throwable]) = {
    val before = FuzzTarget.allocated
    val refusal =
      try { read(input); None }
      catch { case error: Throwable if isLawful(error) => Some(error) }
    (FuzzTarget.allocated - before, refusal)
  }

  /** What Jazzer calls, once and then for each input. */
  final def fuzzerInitialize(): Unit = FuzzTarget.quiet()

  final def fuzzerTestOneInput(input: Array[Byte]): Unit = check(input): Unit
}

object FuzzTarget extends Logging {
  private val threads = ManagementFactory.getThreadMXBean.asInstanceOf[com.sun.management.ThreadMXBean]

  private def allocated: Long = threads.getThreadAllocatedBytes(Thread.currentThread.getId)

  /** Refusals are logged for whoever runs a cluster; here they are thousands. @return the level before */
  def quiet(): Level = {
    logDebug("Spark configures its loggers with the first word.")
    val before = LogManager.getLogger(Ours).getLevel
    Configurator.setLevel(Ours, Level.OFF)
    before
  }

  def loud(level: Level): Unit = Configurator.setLevel(Ours, level)

  private val Ours = "sparkdlbench"

  /** A folder for the files that a target reads; it goes with the process. */
  def folder(): Path = {
    val made = Files.createTempDirectory("sparkdl-fuzz-")
    Runtime.getRuntime.addShutdownHook(new Thread(() => remove(made.toFile)))
    made
  }

  private def remove(file: java.io.File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(remove)
    file.delete(): Unit
  }
}
