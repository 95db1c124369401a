package sparkdlbench.train

import sparkdlbench.algorithm.{Algorithm, BatchShares}
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.loss.{ClassWeights, IgnoredLabel, Loss}
import sparkdlbench.model.ModelSpec
import sparkdlbench.optimizer.{Clipping, OptimizerVariant}
import sparkdlbench.topology.{JobTransport, Ps, Topology}
import sparkdlbench.transport.TransportVariant

/** Refuses combinations of variants that make no sense, with the reason. */
object Combination {
  def check(settings: Settings): Unit = refusal(settings).foreach(reason => throw new ConfigurationException(reason))

  /** None where the variants go together, otherwise why not and what to do. With transport auto, where one goes with the others. */
  def refusal(settings: Settings): Option[String] = RunKeys.workerRange(settings) match {
    case Some(range) => WorkerNumbers.refusal(settings, range)
    case None => ofOneNumber(settings)
  }

  private def ofOneNumber(settings: Settings): Option[String] =
    if (settings(RunKeys.transport) == TransportVariant.Auto) {
      val each = TransportChoice.candidates.map(name => refusalOf(settings.updated(RunKeys.transport, name)))
      if (each.contains(None)) None else each.head
    } else refusalOf(settings)

  private def refusalOf(settings: Settings): Option[String] = {
    val algorithm = Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm))
    NonFinite.refuses(settings).orElse(Best.refuses(settings)).orElse(of(settings, algorithm))
  }

  private def of(settings: Settings, algorithm: Algorithm): Option[String] =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: JobTransport =>
        carried(transport, settings, algorithm)
          .orElse(clipping(settings, Some(cutting(transport, settings)).filter(_ => !transport.updatesWhole(settings))))
          .orElse(transport.refuses(settings))
          .orElse(algorithm.refuses(settings))
          .orElse(layerwise(transport, settings))
      case _ =>
        clipping(settings, Some(algorithm).filter(!_.sumsEveryStep).map("algorithm " + _.name))
          .orElse(algorithm.refuses(settings))
          .orElse(idle(algorithm, settings))
          .orElse(
            Topology
              .of(settings)
              .refuses(settings(RunKeys.workers), ChosenCodecs.gradient(settings), ChosenCodecs.parameters(settings))
          )
    }

  /** What can be told only when the model is known. */
  def check(settings: Settings, spec: ModelSpec): Unit = {
    ClassWeights.check(settings, spec.classes)
    IgnoredLabel.check(settings)
    if (Loss.of(settings).hasNumbers && spec.layers.lastOption.exists(_.kind == "log-softmax"))
      throw new ConfigurationException(
        s"loss.name=${settings(RunKeys.loss)} takes the model's outputs as they are, and the model '${spec.name}' ends with a layer of kind log-softmax, whose only output would " +
          "always be 0. Take that layer out of the model, or set loss.name=cross-entropy."
      )
    val transport = Variants.find[TransportVariant]("transport", settings(RunKeys.transport))
    val algorithm = Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm))
    val other = transport match {
      case _: JobTransport =>
        Some(s"transport ${transport.name} makes a Spark job per step and carries nothing while gradients are computed")
      case _ if !algorithm.sumsEveryStep =>
        Some(s"with algorithm ${algorithm.name} the workers' weights differ, and so what their layers give")
      case _ if algorithm.fullBatch =>
        Some(s"with algorithm ${algorithm.name} each worker computes its rows in parts of its own")
      case _ if settings(BatchShares.kind) == "speed" =>
        Some(
          "with batch_shares.by = speed each then waits for the slowest there, so that all seem to be as fast as that one"
        )
      case _ => None
    }
    if (spec.exchanges.nonEmpty && settings(RunKeys.workers) > 1)
      other.foreach { reason =>
        throw new ConfigurationException(
          s"Batch normalisation over all workers' rows (model.sync_batch_norm, or a layer's option sync) exchanges means and sums in the middle " +
            s"of each pass, but $reason. Use algorithm sync-sgd with batch_shares.by = even over a transport of the one-stage shape, such as " +
            "block-stream, or batch normalisation over each worker's own rows."
        )
      }
  }

  private def idle(algorithm: Algorithm, settings: Settings): Option[String] =
    if (!Ps.own(settings) || algorithm.ranksMayIdle) None
    else
      Some(
        s"Algorithm ${algorithm.name} takes the mean over all ranks, and ps.place = own brings servers that train nothing. Set ps.place = workers, " +
          s"or use algorithm ${Variants.all[Algorithm].filter(_.ranksMayIdle).map(_.name).sorted.mkString(" or ")}."
      )

  private def carried(transport: JobTransport, settings: Settings, algorithm: Algorithm): Option[String] = {
    val topology = settings(RunKeys.topology)
    if (!transport.topologies.contains(topology))
      Some(
        s"Transport ${transport.name} makes a Spark job per step and cannot carry the topology '$topology'. " +
          s"Valid with it: ${transport.topologies.toSeq.sorted.mkString(", ")}."
      )
    else if (!algorithm.sumsEveryStep && !(algorithm.isAtDriver && topology == "tree"))
      Some(
        s"Transport ${transport.name} makes a Spark job per step, in which all workers' gradients are summed: it carries the algorithm " +
          s"${names(_.sumsEveryStep)} alone, with topology tree also ${names(each =>
              each.isAtDriver && !each.sumsEveryStep
            )}, not '${algorithm.name}'. " +
          "Use a transport of the one-stage shape, such as block-stream."
      )
    else None
  }

  private def names(which: Algorithm => Boolean): String =
    Variants.all[Algorithm].filter(which).map(_.name).mkString(" or ")

  private def layerwise(transport: JobTransport, settings: Settings): Option[String] = {
    val optimizer = Variants.find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer))
    if (optimizer.layerwise && !transport.updatesWhole(settings))
      Some(
        s"Optimizer ${optimizer.name} needs the lengths of whole layers, and transport ${transport.name} with topology ${settings(RunKeys.topology)} " +
          "updates each slice in the job that sums it, before anybody knows those of layers that are cut. Use a transport of the one-stage shape, such as " +
          "block-stream, or transport shuffle with shuffle.exchanges = one or topology = tree."
      )
    else None
  }

  /** @param other what does not know the sum of the gradients before it changes weights */
  private def clipping(settings: Settings, other: Option[String]): Option[String] =
    other.filter(_ => settings(Clipping.norm) > 0).map { name =>
      s"clip_norm = ${settings(Clipping.norm)} shortens the sum of all workers' gradients, which $name does not know before it changes the " +
        "weights. Set clip_norm=0, or use algorithm sync-sgd over a transport of the one-stage shape, such as block-stream, or over transport shuffle with " +
        "shuffle.exchanges = one or topology = tree."
    }

  private def cutting(transport: JobTransport, settings: Settings): String =
    s"transport ${transport.name} with topology ${settings(RunKeys.topology)}"
}
