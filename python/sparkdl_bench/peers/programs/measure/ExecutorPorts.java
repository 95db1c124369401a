import java.net.DatagramSocket;
import java.net.InetAddress;
import org.apache.spark.SparkEnv;
import org.nd4j.parameterserver.distributed.v2.transport.PortSupplier;

/** The driver's port is what all were told; each executor takes one that is free, since several share this host. */
public class ExecutorPorts implements PortSupplier {
  private final int driver;

  public ExecutorPorts(int driver) {
    this.driver = driver;
  }

  @Override
  public int getPort() {
    if ("driver".equals(SparkEnv.get().executorId())) return driver;
    try {
      DatagramSocket socket = new DatagramSocket(0, InetAddress.getByName("127.0.0.1"));
      try {
        return socket.getLocalPort();
      } finally {
        socket.close();
      }
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
