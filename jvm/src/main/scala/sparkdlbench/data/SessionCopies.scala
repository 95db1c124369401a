package sparkdlbench.data

import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}

import java.util.concurrent.ConcurrentHashMap
import scala.util.Try

/**
 * Decoded copies of tables that only this session can use: each decoding makes one, and nothing but the run's own record names it. They are
 * removed when the session ends. A driver that is killed leaves its own; `sparkdl-bench data clean` removes those.
 */
private[data] object SessionCopies {
  private val byApplication = new ConcurrentHashMap[String, Set[Path]]()

  /** Those that the end of the session will remove. */
  def of(sc: SparkContext): Set[Path] = byApplication.getOrDefault(sc.applicationId, Set.empty)

  def add(sc: SparkContext, folder: Path): Unit =
    if (byApplication.merge(sc.applicationId, Set(folder), _ ++ _).size == 1)
      sc.addSparkListener(new SparkListener {
        override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = remove(sc)
      })

  def remove(sc: SparkContext): Unit =
    Option(byApplication.remove(sc.applicationId)).toSeq.flatten.foreach { folder =>
      Try(folder.getFileSystem(sc.hadoopConfiguration).delete(folder, true))
    }
}
