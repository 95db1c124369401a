package sparkdlbench.transport.push

import io.netty.channel.{Channel, ChannelConfig}

import scala.util.Try

/**
 * A frame's header and its payload in one write of Netty's to the kernel (writev). Netty limits such a write to twice what the
 * socket's send buffer had when it was made, 32 KiB, and raises the limit only after writes that reached it; a payload above
 * it does not join its header, so the limit stays and each header is a write, and a packet, of its own.
 */
object GatheringWrites {

  /** Lifts the limit; false where this Netty has none that is known, and frames are written in two then. */
  def lift(channel: Channel): Boolean = Try {
    val config = channel.config()
    val setter = classes(config)
      .flatMap(_.getDeclaredMethods)
      .find(method => method.getName == "setMaxBytesPerGatheringWrite" && method.getParameterCount == 1)
      .get
    setter.setAccessible(true) // Netty's own, as there is no option for it
    if (setter.getParameterTypes.head == java.lang.Long.TYPE) setter.invoke(config, Long.box(MaxBytes.toLong))
    else setter.invoke(config, Int.box(MaxBytes))
  }.isSuccess

  private def classes(config: ChannelConfig): Iterator[Class[_]] =
    Iterator.iterate[Class[_]](config.getClass)(_.getSuperclass).takeWhile(_ != null)

  private val MaxBytes = 1 << 30
}
