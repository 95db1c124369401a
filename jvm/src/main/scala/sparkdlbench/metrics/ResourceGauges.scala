package sparkdlbench.metrics

import com.codahale.metrics.{Gauge, MetricRegistry}

/**
 * This process's use of the machine, for whatever sinks Spark's metrics system has: the quantities of `ResourceSample`, read when a sink asks. Bytes
 * unless the name says otherwise; what the system does not tell is -1.
 */
private[sparkdlbench] object ResourceGauges {

  def register(registry: MetricRegistry): Unit = {
    def gauge[T](name: String)(value: => T): Unit =
      registry.register(name, new Gauge[T] { override def getValue: T = value }): Unit
    gauge("cpuNanos")(ResourceSample.cpuNanos)
    gauge("residentBytes")(ResourceSample.residentBytes)
    gauge("heapBytes")(ResourceSample.heapBytes)
    gauge("directBytes")(ResourceSample.directBytes)
    gauge("gcMillis")(ResourceSample.gcMillis)
    gauge("diskReadBytes")(ResourceSample.readBytes)
    gauge("diskWrittenBytes")(ResourceSample.writtenBytes)
    gauge("networkReceivedBytes")(ResourceSample.network.values.map(_._1).sum)
    gauge("networkSentBytes")(ResourceSample.network.values.map(_._2).sum)
    gauge("gpuUse")(gpuUse)
    gauge("gpuMemoryBytes")(gpuMemoryBytes)
  }

  /** Mean over the host's GPUs, 0 to 1; -1 while no run of this process samples them. */
  private def gpuUse: Double = {
    val told = GpuUse.current.values.map(_.use).filter(_ >= 0).toSeq
    if (told.isEmpty) -1.0 else told.sum / told.size
  }

  /** Of all the host's GPUs; -1 while no run of this process samples them. */
  private def gpuMemoryBytes: Long = {
    val told = GpuUse.current.values.map(_.memoryBytes).filter(_ >= 0).toSeq
    if (told.isEmpty) -1L else told.sum
  }
}
