package sparkdlbench.transport.ucx

import org.openucx.jucx.ucp.UcpWorker

import java.util.concurrent.ConcurrentLinkedQueue
import scala.util.Try

/**
 * The one thread that uses a UCX worker. It makes progress while there is some to make, spins for a while, then sleeps until
 * something arrives or somebody has work for it.
 *
 * @param spinNanos
 *   how long to look on before it sleeps
 * @param onError
 *   something was thrown that nobody expected
 */
private[ucx] final class UcxLoop(name: String, worker: UcpWorker, spinNanos: Long, onError: Throwable => Unit) {
  private val tasks = new ConcurrentLinkedQueue[Runnable]
  @volatile private var sleeping = false
  @volatile private var stopping = false
  private var ending = false
  private val thread = new Thread(() => run(), name)
  thread.setDaemon(true)

  def start(): Unit = thread.start()

  /** Has the thread run `task` soon. */
  def execute(task: Runnable): Unit = { tasks.add(task); if (sleeping) signal() }

  /** Lets UCX look after what it does by time. */
  def wake(): Unit = if (sleeping) signal()

  /** Whoever has seen the thread sleep may come after it has woken and closed the worker. */
  private def signal(): Unit = synchronized(if (!ending) worker.signal())

  /** Ends the thread after it has run `last`, which may close the worker; waits for that, but not for ever. */
  def stop(last: Runnable, millis: Long): Unit = {
    tasks.add { () =>
      synchronized { ending = true }
      try last.run()
      finally stopping = true
    }
    if (thread.isAlive) signal()
    thread.join(millis)
  }

  /** Makes progress until `done`, at most for so long. On the loop's own thread. */
  def progressUntil(millis: Long)(done: => Boolean): Unit = {
    val end = System.nanoTime() + millis * 1000000L
    while (!done && System.nanoTime() < end) if (worker.progress() == 0) Thread.`yield`()
  }

  private def run(): Unit = while (!stopping)
    try {
      var busy = runTasks()
      while (!stopping && worker.progress() > 0) busy = true
      if (!busy && !stopping) idle()
    } catch { case error: Throwable => onError(error); if (!error.isInstanceOf[Exception]) stopping = true }

  private def runTasks(): Boolean = {
    var task = tasks.poll()
    val any = task != null
    while (task != null) { task.run(); task = if (stopping) null else tasks.poll() }
    any
  }

  private def idle(): Unit = if (!spin()) {
    sleeping = true
    // Whoever adds a task from now on sees `sleeping` and sends a signal, which ends the wait whenever it comes.
    try if (tasks.isEmpty) worker.waitForEvents()
    finally sleeping = false
  }

  private def spin(): Boolean = spinNanos > 0 && {
    val end = System.nanoTime() + spinNanos
    var found = false
    while (!found && System.nanoTime() < end) {
      found = worker.progress() > 0 || !tasks.isEmpty
      if (!found) Thread.onSpinWait()
    }
    found
  }
}

private[ucx] object UcxLoop {

  /** Runs what may throw where nobody could catch it: a callback from native code. */
  def guarded(onError: Throwable => Unit)(body: => Unit): Unit = Try(body).failed.foreach(onError)
}
