package sparkdlbench.config

import java.util.ServiceLoader
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag
import sparkdlbench.common.ConfigurationException

/**
 * One value of one axis (algorithm, topology, transport, codec, engine, model family, data source, optimiser). A variant is
 * one file; it is found through `ServiceLoader`, whose lists the build writes from the sources, so adding one edits no list.
 * Instances carry no state of a run.
 */
trait Variant {

  /** As it stands in configuration files: lower case, words joined by hyphens. */
  def name: String

  /** One sentence for `sparkdl-bench list`. */
  def doc: String

  /** The configuration keys that only this variant reads. */
  def keys: Seq[Key[_]] = Nil
}

object Variants {

  /** Every variant of an axis, sorted by name. */
  def all[V <: Variant](implicit axis: ClassTag[V]): Seq[V] = {
    val service = axis.runtimeClass.asInstanceOf[Class[V]]
    ServiceLoader.load(service, service.getClassLoader).asScala.toSeq.sortBy(_.name)
  }

  /**
   * The variant called `name`, or an error that lists the valid ones.
   *
   * @param elsewhere
   *   what to say of names that one may expect on the axis, and that mean something else
   */
  def find[V <: Variant](axisName: String, name: String, elsewhere: Map[String, String] = Map.empty)(implicit
      axis: ClassTag[V]
  ): V = named(axisName, name, all[V], elsewhere)

  /** The same among `variants`. */
  private[config] def named[V <: Variant](
      axisName: String,
      name: String,
      variants: Seq[V],
      elsewhere: Map[String, String] = Map.empty
  ): V = {
    def hint = elsewhere.get(name).fold(Settings.suggestion(name, variants.map(_.name)))(" " + _)
    variants
      .find(_.name == name)
      .getOrElse(
        throw new ConfigurationException(
          s"There is no $axisName called '$name'.$hint " +
            s"Valid: ${variants.map(_.name).mkString(", ")}. `sparkdl-bench list $axisName` describes them."
        )
      )
  }
}
