package sparkdlbench.data

import org.apache.spark.SparkContext
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{Key, RunKeys, Settings, Variants}
import sparkdlbench.loss.Target

import java.nio.{FloatBuffer, LongBuffer}
import scala.collection.immutable.ListMap

/**
 * One pass over a data set as one Spark job: map, each task takes the moments of its part; reduce, the driver merges them in the parts'
 * order, so the same set gives the same digits. Values are the stored ones, before `data.scale`, `data.normalize` and augmentation.
 */
object DataSetStatistics {

  /** What came out, for JSON. */
  def of(sc: SparkContext, settings: Settings): ListMap[String, Any] = {
    val source = Variants.find[DataSource]("data source", settings(RunKeys.data))
    val start = System.nanoTime()
    val qualified = source.qualified(settings, sc.hadoopConfiguration)
    val (description, numbers, parts) = source match {
      case records: RecordSource => ofRecords(records, qualified, sc)
      case other => ofRows(other, qualified, sc)
    }
    parts.flatMap(_.failure).headOption.foreach(reason => throw new ConfigurationException(reason))
    val skipped = Skipped.limited(parts.map(_.skipped), settings)
    val sets =
      Seq(false, true).map(test => parts.filter(_.test == test).map(_.moments).foldLeft(Moments.none)(_ merge _))
    if (sets.map(_.count).sum == 0)
      throw new ConfigurationException(
        s"The data set ($description) has no rows, so there is nothing to take statistics of."
      )
    Json.fields(
      "source" -> source.name,
      "description" -> description,
      "parts" -> parts.size,
      "seconds" -> (System.nanoTime() - start) / 1e9,
      "skipped" -> skipped.toMap,
      "train" -> sets.head.toMap(numbers),
      "test" -> Some(sets(1)).filter(_.count > 0).map(_.toMap(numbers))
    )
  }

  private def ofRecords(source: RecordSource, settings: Settings, sc: SparkContext): (String, Int, Seq[PartMoments]) = {
    val plan = source.plan(settings, sc)
    val (layout, policy) = (plan.layout, RecordSource.badRecords(settings))
    described(sc, source.name) {
      val parts = plan
        .work()
        .mapPartitions(_.map { work =>
          val sink = new MomentsSink(layout, policy)
          val failure =
            try { work.decode(sink); None }
            catch { case bad: BadRecordException => Some(bad.getMessage) }
          PartMoments(work.test, sink.moments, sink.skipped, failure)
        })
      (layout.description, if (layout.hasNumbers) layout.labels else 0, parts.collect().toSeq)
    }
  }

  /** A source that every executor opens whole: one task for the training rows, one for the test rows. */
  private def ofRows(source: DataSource, settings: Settings, sc: SparkContext): (String, Int, Seq[PartMoments]) = {
    // With the rows and values as they are stored, so that test rows are not cropped either.
    val stored = Seq[(Key[_], String)](
      DataKeys.share -> "1",
      Normalization.mode -> "none",
      DataKeys.scale -> "1",
      Augmentation.padding -> "0",
      Augmentation.crop -> "0",
      Augmentation.flip -> "false"
    )
    val plain = stored
      .filter { case (key, _) => source.keys.exists(_.name == key.name) }
      .foldLeft(settings) { case (found, (key, value)) => found.updated(key, value) }
    val facts = source.inspect(plain, sc.hadoopConfiguration)
    val (name, hadoop) = (source.name, new SerializableConfiguration(sc.hadoopConfiguration))
    described(sc, name) {
      val parts = sc.parallelize(Seq(false, true), 2).map { test =>
        val sets = Variants.find[DataSource]("data source", name).open(plain, hadoop.value)
        PartMoments(test, ofStore(if (test) sets.test else sets.train), Skipped.none, None)
      }
      (facts.description, 0, parts.collect().toSeq)
    }
  }

  private def ofStore(store: RowStore): Moments = {
    val row = new Array[Float](store.width)
    val (whole, label, moments) =
      (FloatBuffer.wrap(row), LongBuffer.allocate(store.labels), new RunningMoments(store.width))
    (0 until store.rows).foreach { id =>
      store.read(id, 0, whole, label)
      moments.add(row, label.get(0).toInt)
    }
    moments.result
  }

  private def described[T](sc: SparkContext, source: String)(body: => T): T = {
    sc.setJobDescription(s"sparkdl-bench: statistics of $source")
    try body
    finally sc.setJobDescription(null)
  }
}

private[data] final case class PartMoments(test: Boolean, moments: Moments, skipped: Skipped, failure: Option[String])

private[data] final class MomentsSink(layout: RecordLayout, policy: BadRecords)
    extends RecordSink(layout, policy.skip, policy.limit) {
  private val running = new RunningMoments(layout.width + (if (layout.hasNumbers) layout.labels else 0))
  override protected def wantsFloats: Boolean = true
  protected def accept(row: Array[Byte], label: Int): Unit = throw new IllegalStateException("this sink takes numbers")
  override protected def acceptFloats(row: Array[Float], label: Int): Unit =
    if (layout.hasNumbers) running.add(row ++ (label +: otherLabels).map(Target.value), 0)
    else running.add(row, label)
  def moments: Moments = running.result
}
