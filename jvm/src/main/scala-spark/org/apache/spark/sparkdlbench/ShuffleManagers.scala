package org.apache.spark.sparkdlbench

import org.apache.spark.shuffle.{ShuffleBlockResolver, ShuffleManager}
import org.apache.spark.util.Utils
import org.apache.spark.{SparkConf, SparkException}

import java.lang.reflect.InvocationTargetException
import java.util.Locale
import scala.util.Try

/** Which shuffle manager wraps which, and how a session gets there. */
object ShuffleManagers {

  /** Holds the user's own `spark.shuffle.manager` while ours is set. */
  val DelegateKey = "spark.sparkdl.shuffle.delegate"
  val ManagerKey = "spark.shuffle.manager"
  val Sort = "sort"
  val Sorting: String = classOf[SparkDLShuffleManager].getName
  val Delegating: String = classOf[SparkDLDelegatingShuffleManager].getName

  /**
   * From Spark 4.3 only a `BlockingShuffleManager`, a trait that older lines do not have, is asked for its resolver. Ours
   * around sort is one, because sort is; ours around any other manager is not.
   */
  private lazy val wrapsOthers: Boolean =
    Try(Utils.classForName[Any]("org.apache.spark.shuffle.BlockingShuffleManager")).isFailure

  /** Its resolver, if it has one; looked up by name, because Spark 4.3 moved the method to another trait. */
  def resolver(manager: ShuffleManager): Option[ShuffleBlockResolver] =
    Try(manager.getClass.getMethod("shuffleBlockResolver")).toOption.map { method =>
      try method.invoke(manager).asInstanceOf[ShuffleBlockResolver]
      catch { case error: InvocationTargetException => throw error.getCause }
    }

  def isSort(name: String): Boolean = {
    val short = name.toLowerCase(Locale.ROOT)
    short == "sort" || short == "tungsten-sort" || name == "org.apache.spark.shuffle.sort.SortShuffleManager"
  }

  /** `wrap`, where the Spark line lets a plugin do it in time. */
  def wrapBeforeItIsMade(conf: SparkConf): Unit = if (SparkLine.pluginSetsShuffleManager) wrap(conf)

  /**
   * Sets our manager around the one that the configuration names; changes nothing where ours is named already, or where
   * that one cannot be wrapped (then `block-stream` says so).
   */
  def wrap(conf: SparkConf): Unit = {
    val own = conf.get(ManagerKey, Sort)
    if (own != Sorting && own != Delegating && (isSort(own) || wrapsOthers)) {
      conf.set(DelegateKey, own)
      conf.set(ManagerKey, if (isSort(own)) Sorting else Delegating): Unit
    }
  }

  /** Why a session without ours goes without streams, and how it gets them; short. */
  def lacking: String = "block-stream, which is faster, needs a session " +
    (if (SparkLine.pluginSetsShuffleManager) "with spark.plugins=sparkdlbench.SparkDLPlugin"
     else s"with spark.plugins=sparkdlbench.SparkDLPlugin and $ManagerKey=$Sorting on both class paths") +
    "; sparkdl_bench.configure(builder) sets that"

  /** What to set where the manager in use (`present`) does not take our streams in. */
  def setup(present: String): String = {
    val why = s"block-stream needs a shuffle manager that takes its streams in, but this executor has $present. "
    if (!wrapsOthers)
      why + s"Start the application with spark.plugins=sparkdlbench.SparkDLPlugin and $ManagerKey=sort (from Spark 4.3 no other can be wrapped), or use another transport."
    else if (SparkLine.pluginSetsShuffleManager)
      why + "Start the application with spark.plugins=sparkdlbench.SparkDLPlugin (which wraps your own spark.shuffle.manager), or use another transport."
    else
      why + s"Start the application with spark.plugins=sparkdlbench.SparkDLPlugin, spark.shuffle.manager=$Sorting and this package's jar on " +
        s"spark.driver.extraClassPath and spark.executor.extraClassPath (to keep a shuffle manager of your own: spark.shuffle.manager=$Delegating " +
        s"and its class in $DelegateKey), or use another transport."
  }

  /** Makes a shuffle manager as Spark does: (SparkConf, isDriver), (SparkConf) or no argument. */
  def create(name: String, conf: SparkConf, isDriver: Boolean): ShuffleManager = {
    if (isSort(name) || name == Sorting || name == Delegating)
      throw new SparkException(
        s"$DelegateKey is '$name'; for the sort manager set $ManagerKey=$Sorting, and leave $DelegateKey away."
      )
    val manager = Try(Utils.classForName[ShuffleManager](name)).getOrElse(
      throw new SparkException(
        s"The shuffle manager '$name' named by $DelegateKey is not on the class path. Add its jar to " +
          (if (SparkLine.pluginSetsShuffleManager) "spark.jars."
           else "spark.driver.extraClassPath and spark.executor.extraClassPath.")
      )
    )
    def make(types: Class[_]*)(values: AnyRef*): Option[ShuffleManager] =
      Try(manager.getConstructor(types: _*)).toOption.map { constructor =>
        try constructor.newInstance(values: _*)
        catch { case error: InvocationTargetException => throw error.getCause }
      }
    make(classOf[SparkConf], java.lang.Boolean.TYPE)(conf, java.lang.Boolean.valueOf(isDriver))
      .orElse(make(classOf[SparkConf])(conf))
      .orElse(make()())
      .getOrElse(throw new SparkException(s"The shuffle manager $name has no constructor that Spark could use."))
  }
}
