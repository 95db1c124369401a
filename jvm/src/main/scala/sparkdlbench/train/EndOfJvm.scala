package sparkdlbench.train

import org.apache.hadoop.util.ShutdownHookManager
import org.apache.logging.log4j.Level
import org.apache.logging.log4j.core.config.Configurator

import java.io.{OutputStream, PrintStream}
import scala.util.Try

/**
 * What becomes of runs that still go on when the JVM is told to end: by a signal, or because the Python process that started it is gone. They
 * are cancelled and write their summaries while Spark still answers, then Spark's own hook stops the session. A JVM of a command of
 * ours ends within `HaltMillis` in any case.
 */
object EndOfJvm {

  /** Hooks of a higher number come first; Spark stops its contexts with 40. */
  private val Priority = 100
  private val CancelMillis = 8000L

  /** Between a run's folder and the begin of its training lie milliseconds; whoever prepared it may also never train it. */
  private val BeginMillis = 1000L
  private val HaltMillis = 20000L
  private val HaltStatus = 1

  /** Set for whatever a `sparkdl-bench` of Python starts. */
  private val CommandMark = "SPARKDL_COMMAND"
  private val Why = "the driver's JVM was told to end, by a signal or because the program that started it is gone"
  private val runs = new RunsToEnd[TrainingRun](_.cancel(Why), CancelMillis, BeginMillis)
  @volatile private var begun = false
  @volatile private var command: Option[Seq[TrainingRun] => Option[String]] = None

  /** Set where the hook is there; a JVM that ends already takes none. */
  private lazy val hooked: Boolean =
    Try(ShutdownHookManager.get().addShutdownHook(() => end(), Priority)).isSuccess && (!ofPython || limited)
  private lazy val limited: Boolean =
    Try(Runtime.getRuntime.addShutdownHook(new Thread(() => haltLater()))).isSuccess
  private def ofPython: Boolean = sys.env.contains(CommandMark)

  /** True once the JVM ends. */
  def hasBegun: Boolean = begun

  /**
   * Within a command of ours: bounds the end of the JVM, and makes `line` the last one on standard error.
   *
   * @param line
   *   what to say, from the runs that were going on; None for nothing
   */
  def ofCommand(line: Seq[TrainingRun] => Option[String]): Unit = {
    command = Some(line)
    if (hooked) limited: Unit
  }

  /**
   * Makes a run, with its folder, that is about to be trained: ended here, it gets a summary all the same.
   *
   * @throws sparkdlbench.common.RunFailedException
   *   the JVM ends, and no run begins any more
   */
  def preparing(make: => TrainingRun): TrainingRun = if (hooked) runs.preparing(make) else make

  /** Watches over a run as long as `body` trains it. */
  def watching[T](run: TrainingRun)(body: => T): T = if (hooked) runs.watching(run)(body) else body

  private def end(): Unit = {
    begun = true
    val own = System.err
    if (command.nonEmpty) silence()
    val ended = runs.end() // with a command of ours and without
    command.flatMap(_(ended)).foreach(own.println(_))
    own.flush()
  }

  /**
   * What Spark says of its end is nobody's concern: neither its log, nor what its threads print on finding that the pool for their
   * next piece of work has been shut down. Scala's futures print that as a stack, past any log.
   */
  private def silence(): Unit = {
    Try(Configurator.setAllLevels("", Level.OFF)): Unit
    System.setErr(new PrintStream(new OutputStream {
      override def write(byte: Int): Unit = ()
      override def write(bytes: Array[Byte], from: Int, length: Int): Unit = ()
    }))
  }

  private def haltLater(): Unit = {
    val thread = new Thread(() => { Thread.sleep(HaltMillis); Runtime.getRuntime.halt(HaltStatus) }, "sparkdl-halt")
    thread.setDaemon(true)
    thread.start()
  }
}
