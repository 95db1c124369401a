package sparkdlbench.config

import java.util.ServiceLoader
import scala.jdk.CollectionConverters._

/**
 * An axis of variants: which key of a run names one of them, and how that is checked. It is declared beside the trait of its
 * variants and found through `ServiceLoader`, as they are; so whoever lists or checks all keys of a run names no axis.
 */
trait Axis {

  /** Its place among the axes, where they are listed or checked. */
  def place: Int

  /** As `sparkdl-bench list` takes it. */
  def name: String

  /** As messages call it. */
  def title: String = name

  /** The key that names the variant of a run. */
  def key: Key[String]

  /** Keys that all its variants share. */
  def keys: Seq[Key[_]] = Nil

  /** All of them, sorted by name. */
  def variants: Seq[Variant]

  /** Throws a ConfigurationException where the settings name no variant of it, or one that cannot read them. */
  def check(settings: Settings): Unit = Variants.named(title, settings(key), variants): Unit
}

object Axis {

  /** Every axis there is, in order. */
  def all: Seq[Axis] = ServiceLoader.load(classOf[Axis], classOf[Axis].getClassLoader).asScala.toSeq.sortBy(_.place)
}

/** Keys that every run has and that one package reads, declared there; found as an `Axis` is. */
trait KeyGroup {
  def keys: Seq[Key[_]]
}

object KeyGroup {
  def all: Seq[KeyGroup] =
    ServiceLoader.load(classOf[KeyGroup], classOf[KeyGroup].getClassLoader).asScala.toSeq
}
