package org.apache.spark.rpc.netty

import org.apache.spark.SparkEnv

import java.util.LinkedList
import java.util.concurrent.{ConcurrentHashMap, ConcurrentMap}
import java.util.concurrent.atomic.AtomicLong
import scala.jdk.CollectionConverters._

/**
 * Counts every message that arrives at an endpoint of the driver's RPC environment, from executors as from the driver
 * itself, by endpoint and type: Spark's inboxes get lists that count what is added to them.
 */
object DriverMessages {
  private val counts = new ConcurrentHashMap[String, AtomicLong]

  /** Begins with the endpoints that there are now; those registered later are not seen. Once a SparkContext. */
  def listen(): Unit = {
    val dispatcher = field(SparkEnv.get.rpcEnv, "dispatcher")
    val loops = field(dispatcher, "endpoints").asInstanceOf[ConcurrentMap[String, MessageLoop]].asScala
    val inboxes = loops.values.toSeq.distinct.flatMap {
      case shared: SharedMessageLoop =>
        field(shared, "endpoints").asInstanceOf[ConcurrentMap[String, Inbox]].asScala.values
      case dedicated: DedicatedMessageLoop => Seq(field(dedicated, "inbox").asInstanceOf[Inbox])
    }
    inboxes.foreach(replaceList)
  }

  /** Messages so far, by "endpoint message". */
  def soFar: Map[String, Long] = counts.asScala.map { case (kind, count) => kind -> count.get }.toMap

  private def replaceList(inbox: Inbox): Unit = inbox.synchronized {
    val list = classOf[Inbox].getDeclaredField("messages")
    list.setAccessible(true)
    val present = list.get(inbox).asInstanceOf[LinkedList[InboxMessage]]
    list.set(inbox, new CountingList(inbox.endpointName, present))
  }

  private final class CountingList(endpoint: String, present: LinkedList[InboxMessage])
      extends LinkedList[InboxMessage](present) {
    override def add(message: InboxMessage): Boolean = {
      counts.computeIfAbsent(s"$endpoint ${kind(message)}", _ => new AtomicLong).incrementAndGet()
      super.add(message)
    }
  }

  private def kind(message: InboxMessage): String = message match {
    case RpcMessage(_, content, _) => name(content)
    case OneWayMessage(_, content) => name(content)
    case other => name(other)
  }

  private def name(content: Any): String = content match {
    case plugin: Product if plugin.productPrefix == "PluginMessage" =>
      s"PluginMessage(${name(plugin.productElement(1))})"
    case product: Product => product.productPrefix
    case other => other.getClass.getName.split("[.$]").last
  }

  private def field(of: AnyRef, name: String): AnyRef = {
    val found = of.getClass.getDeclaredField(name)
    found.setAccessible(true)
    found.get(of)
  }
}
