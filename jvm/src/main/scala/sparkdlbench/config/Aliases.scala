package sparkdlbench.config

import scala.collection.immutable.ListMap
import sparkdlbench.common.ConfigurationException

import java.util.Locale

/**
 * What people write for a key or a value: accepted where it can mean one thing alone, and recorded by the name that it stands for.
 *
 *   - A key by its last part where only one key ends so (`learning_rate`), and a group for its name (`model` is `model.name`).
 *   - Other libraries' words for a key (`lr`, `optimizer.lr`, `batch_size`).
 *   - A value in other cases and with other joints (`ResNet18` is `resnet-18`), and other words for it (`float16`).
 */
object Aliases {

  /** Other libraries' words; those with several meanings are refused with all of them. */
  private val words: Map[String, Seq[String]] = Map(
    Seq("optimizer.learning_rate") -> Seq("lr", "learningrate", "base_lr", "step_size", "eta"),
    Seq("optimizer.name") -> Seq("optim", "optimiser", "solver"),
    Seq("optimizer.weight_decay") -> Seq("wd", "l2", "l2_regularization"),
    Seq("batch") -> Seq("batch_size", "batchsize", "global_batch", "global_batch_size", "train_batch_size", "bs"),
    Seq("batch_per_worker") -> Seq("local_batch_size", "per_worker_batch_size", "per_device_train_batch_size"),
    Seq("workers") -> Seq("num_workers", "n_workers", "nworkers", "world_size", "num_processes", "nproc", "ranks"),
    Seq("epochs") -> Seq("n_epochs", "num_epochs", "nb_epoch", "max_epochs", "epoch", "num_train_epochs"),
    Seq("max_steps") -> Seq("max_iter", "max_iterations", "num_steps", "n_steps", "iterations"),
    Seq("max_steps", "schedule.steps") -> Seq("steps"),
    Seq("seed") -> Seq("random_seed", "random_state", "rng_seed"),
    Seq("loss.name") -> Seq("criterion", "objective", "loss_function"),
    Seq("model.name") -> Seq("net", "network", "arch", "architecture"),
    Seq("model.hidden") -> Seq("hidden_sizes", "hidden_layers", "hidden_layer_sizes", "hidden_units"),
    Seq("data.source") -> Seq("data", "dataset", "data_source"),
    Seq("data.path") -> Seq("data_dir", "data_path", "input"),
    Seq("results") -> Seq("output", "output_dir", "results_dir", "out_dir"),
    Seq("clip_norm") -> Seq("grad_clip", "gradient_clipping", "max_grad_norm", "clipnorm"),
    Seq("codec") -> Seq("compression", "gradient_compression"),
    Seq("engine.threads") -> Seq("num_threads", "n_threads", "omp_num_threads"),
    Seq("schedule.name") -> Seq("lr_schedule", "lr_scheduler", "scheduler"),
    Seq("schedule.warmup_steps") -> Seq("warmup", "num_warmup_steps")
  ).flatMap { case (keys, written) => written.map(_ -> keys) }

  /** Other words for values, by key; letters and digits alone. */
  private val otherValues: Map[String, Map[String, String]] = Map(
    "codec" -> Map(
      ("float32", "fp32"),
      ("f32", "fp32"),
      ("none", "fp32"),
      ("float16", "fp16"),
      ("half", "fp16"),
      ("bfloat16", "bf16")
    ),
    "algorithm" -> Map(
      "sync" -> "sync-sgd",
      "synchronous" -> "sync-sgd",
      "syncsgd" -> "sync-sgd",
      "localsgd" -> "local-sgd"
    ),
    "topology" -> Map("parameterserver" -> "ps"),
    "loss.name" -> Map(
      "mse" -> "mean-squared",
      "mseloss" -> "mean-squared",
      "squarederror" -> "mean-squared",
      "meansquarederror" -> "mean-squared",
      "l2" -> "mean-squared",
      "mae" -> "absolute",
      "l1" -> "absolute",
      "l1loss" -> "absolute",
      "absoluteerror" -> "absolute",
      "meanabsoluteerror" -> "absolute",
      "huberloss" -> "huber",
      "bce" -> "binary-cross-entropy",
      "bcewithlogits" -> "binary-cross-entropy",
      "bcewithlogitsloss" -> "binary-cross-entropy",
      "sigmoidcrossentropy" -> "binary-cross-entropy",
      "crossentropyloss" -> "cross-entropy",
      "softmaxcrossentropy" -> "cross-entropy"
    ),
    "model.name" -> Map(
      "resnet" -> "resnet-18",
      "vgg" -> "vgg-16",
      "logistic" -> "softmax",
      "inception" -> "googlenet"
    ),
    "engine.name" -> Map("pytorch" -> "torch"),
    "data.source" -> Map("cifar" -> "cifar10", "svmlight" -> "libsvm", "dataframe" -> "table")
  )

  /** The key that names a variant of each axis, and the names that it takes. */
  val named: ListMap[String, () => Seq[String]] =
    ListMap(Axis.all.map(axis => axis.key.name -> (() => axis.variants.map(_.name))): _*)

  private lazy val known: Set[String] = RunKeys.all.map(_.name).toSet

  /** What may stand for a key: for which keys. One: accepted; several: refused with all of them. */
  lazy val keys: Map[String, Seq[String]] = {
    val endings = known.toSeq.filter(_.contains('.')).groupBy(key => key.substring(key.lastIndexOf('.') + 1))
    val groups = known.toSeq.filter(_.endsWith(".name")).map(key => key.stripSuffix(".name") -> Seq(key))
    val declared = words.map { case (written, meant) => written -> meant.filter(known) }.filter(_._2.nonEmpty)
    // `lr` behind its group's name too: optimizer.lr.
    val inGroups = declared.toSeq
      .flatMap { case (written, meant) => meant.filter(_.contains('.')).map(key => group(key) + written -> key) }
      .groupBy(_._1)
      .map { case (written, pairs) => written -> pairs.map(_._2).sorted }
    (inGroups ++ endings.map { case (written, meant) => written -> meant.sorted } ++ groups ++ declared) -- known
  }

  private def group(key: String): String = key.substring(0, key.lastIndexOf('.') + 1)

  /** By key, what may stand for a value, as `letters` has it, and the value. */
  lazy val values: Map[String, Map[String, String]] = {
    val choices = RunKeys.all.map(key => key.name -> key.kind).collect { case (name, Kind.Choice(all)) => name -> all }
    (named.map { case (key, all) => key -> all() }.toSeq ++ choices).map { case (key, all) =>
      val ours = all.groupBy(letters).collect { case (written, Seq(one)) => written -> one }
      key -> (otherValues.getOrElse(key, Map.empty).filter { case (_, value) => all.contains(value) } ++ ours)
    }.toMap
  }

  /** The letters and digits of a word, in lower case. */
  def letters(text: String): String = text.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9]", "")

  /** The key that a name stands for; the name itself where it is none or stands for no key. */
  def key(written: String): String =
    if (known(written)) written
    else
      keys.getOrElse(written, Nil) match {
        case Seq() => written
        case Seq(one) => one
        case several =>
          throw new ConfigurationException(
            s"The key '$written' may mean ${several.mkString(" or ")}. Write the one that is meant."
          )
      }

  /** The value that a text stands for; the text itself where it is valid or stands for none. */
  def value(key: String, written: String): String = {
    val all = named.get(key).map(_()).getOrElse(Nil)
    if (all.contains(written)) written
    else values.get(key).flatMap(_.get(letters(written))).getOrElse(written)
  }
}
