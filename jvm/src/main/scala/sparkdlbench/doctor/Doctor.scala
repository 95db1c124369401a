package sparkdlbench.doctor

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{KnownExecutor, SparkFacts}
import sparkdlbench.common.Failures
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.topology.Ps
import sparkdlbench.train.{Combination, MemoryCheck, SessionCheck, TrainingRun, TransportChoice}
import sparkdlbench.transport.RankPlacement

import java.util.concurrent.TimeoutException
import scala.concurrent.Await
import scala.concurrent.duration._
import scala.util.control.NonFatal

/**
 * What would go wrong with a run, before it does. The rules are those that a run itself is checked by, and some that only a
 * look at all of the session can tell.
 */
object Doctor {
  private val ProbeTimeout = 120.seconds

  /** Long enough for every slot to get its task before one ends. */
  private val TaskMillis = 300L

  /** And where the scheduler was slow. */
  private val LongTaskMillis = 3000L
  private val ListenersMillis = 5000L

  /** Block managers that each executor connects to; in larger clusters each tries others. */
  private val ConnectionsEach = 16

  /** Before Spark starts: the run's settings, and the properties that the session would have. */
  def beforeStart(conf: Map[String, String], raw: Map[String, String]): Seq[Finding] =
    withSettings(TrainingRun.asked(conf, raw))(wanted =>
      new PropertyChecks(conf, TransportChoice.beforeStart(wanted)).findings
    )

  /** With the session running: every check that a run makes of its session, its plan, and a look at the executors. */
  def session(sc: SparkContext, raw: Map[String, String]): Seq[Finding] =
    withSettings(TrainingRun.asked(sc.getConf.getAll.toMap, raw)) { wanted =>
      Finding.orElse("transport")(TransportChoice.in(sc, wanted)).fold(Seq(_), choice => found(sc, choice.settings))
    }

  private def found(sc: SparkContext, settings: Settings): Seq[Finding] = {
    val checked =
      SessionCheck.checks(sc, settings).flatMap { case (name, check) => Finding.of(name)(check()) }
    checked ++ planned(sc, settings) ++ (if (SparkFacts.slots(sc) > 0) executors(sc, settings) else Nil)
  }

  private def withSettings(raw: Map[String, String])(checks: Settings => Seq[Finding]): Seq[Finding] = {
    var resolved: Option[Settings] = None
    val wrong = Finding.of("settings") {
      val settings = RunKeys.resolve(raw)
      resolved = Some(settings)
      Combination.check(settings)
    }
    // A name that there is not is met by each check that asks for it.
    wrong ++ resolved.toSeq.flatMap(checks).filterNot(found => wrong.exists(_.message == found.message))
  }

  /** What a run plans before its first job, without decoding its data: each thing is looked at where the one before is in order. */
  private def planned(sc: SparkContext, settings: Settings): Seq[Finding] = {
    val found = for {
      data <- Finding.orElse("data")(TrainingRun.preview(sc, settings))
      setup <- Finding.orElse("settings")(TrainingRun.planned(sc, data.settings, data.facts, data.counted))
      estimate <- Finding.orElse("memory")(MemoryCheck.estimated(sc, setup))
    } yield estimate
    found.left.toSeq
  }

  private def executors(sc: SparkContext, settings: Settings): Seq[Finding] =
    try {
      val there = registered(sc)
      val first = look(sc, settings, TaskMillis)
      if (SilentExecutors.of(there, first).isEmpty || comeAndGo(sc)) new ExecutorChecks(first, sc.version).findings
      else {
        val before = registered(sc)
        val all = first ++ look(sc, settings, LongTaskMillis)
        new ExecutorChecks(all, sc.version).findings ++ SilentExecutors.findings(before, registered(sc), all)
      }
    } catch {
      case _: TimeoutException =>
        Seq(
          Finding(
            "executors",
            s"The executors did not answer within ${ProbeTimeout.toSeconds} s. Other jobs may hold their slots: look at the master's page, and end them or " +
              "give the session executors of its own."
          )
        )
      case NonFatal(error) if classIsMissing(error) =>
        Seq(
          Finding(
            "jar",
            s"The executors do not have the classes of sparkdl-bench (${Failures.reason(error)}). Give the session its jar: spark.jars, --packages, or " +
              "spark.executor.extraClassPath with a path that is there on every host."
          )
        )
      case NonFatal(error) =>
        Seq(
          Finding(
            "executors",
            s"The look at the executors failed: ${Failures.reason(error)} Look at the executors' logs."
          )
        )
    }

  /** With dynamic allocation an executor that took no task may have been about to go. */
  private def comeAndGo(sc: SparkContext): Boolean = sc.getConf.getBoolean("spark.dynamicAllocation.enabled", false)

  /** Executors with room for a task that have come up wholly, since their block managers have. */
  private def registered(sc: SparkContext): Seq[KnownExecutor] = {
    SparkFacts.awaitListeners(sc, ListenersMillis)
    val addresses = sc.getExecutorMemoryStatus.keySet
    SparkFacts.known(sc).filter(one => one.gone.isEmpty && one.slots > 0 && addresses.contains(one.address))
  }

  /**
   * What a task in each slot sees.
   *
   * @param millis
   *   how long a task takes at least
   */
  private def look(sc: SparkContext, settings: Settings, millis: Long): Seq[ExecutorFacts] = {
    val slots = math.max(1, SparkFacts.slots(sc))
    val addresses = sc.getExecutorMemoryStatus.keys.toIndexedSeq.sorted
    val around = RankPlacement(
      settings(RunKeys.workers) + Ps.ownServers(settings),
      SparkFacts.executors(sc),
      addresses.map(address => address.take(address.lastIndexOf(':'))).distinct.size
    )
    val job = sc
      .parallelize(0 until slots, slots)
      .map { index =>
        Thread.sleep(millis)
        val chosen =
          (0 until math.min(ConnectionsEach, addresses.size)).map(k => addresses((index + k) % addresses.size))
        ExecutorProbe.look(chosen, settings, around)
      }
      .collectAsync()
    try Await.result(job, ProbeTimeout)
    catch {
      case late: TimeoutException =>
        job.cancel()
        throw late
    }
  }

  private def classIsMissing(error: Throwable): Boolean =
    Iterator
      .iterate(error)(_.getCause)
      .takeWhile(_ != null)
      .take(20)
      .exists(cause =>
        String.valueOf(cause.getMessage).matches("(?s).*(ClassNotFoundException|NoClassDefFoundError): ?sparkdlbench.*")
      )
}
