package sparkdlbench.transport.tcp

import io.netty.buffer.ByteBufAllocator
import io.netty.handler.ssl.{ClientAuth, OpenSsl, SslContext, SslContextBuilder, SslHandler, SslProvider}
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.RunSecret

import java.io.ByteArrayInputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths}
import java.security.KeyStore
import java.security.cert.X509Certificate
import java.util.concurrent.TimeUnit
import javax.net.ssl.KeyManagerFactory

/**
 * TLS 1.3 for both sides of a connection, from the run's one key and certificate: each side shows that certificate and accepts no
 * other, so names and authorities play no part.
 */
final class TlsPair private (serverSide: SslContext, clientSide: SslContext) {
  def server(buffers: ByteBufAllocator): SslHandler = serverSide.newHandler(buffers)

  def client(buffers: ByteBufAllocator): SslHandler = {
    val handler = clientSide.newHandler(buffers)
    val parameters = handler.engine().getSSLParameters
    parameters.setEndpointIdentificationAlgorithm(null) // whoever shows the run's certificate has the run's key
    handler.engine().setSSLParameters(parameters)
    handler
  }
}

object TlsPair {
  private val Alias = "sparkdl"
  private val Protocol = "TLSv1.3"
  private val KeytoolSeconds = 60L

  /** A key of the P-256 curve and a certificate that ends with it, valid for a year, in a PKCS #12 store; by the JDK's keytool. */
  def newCertificate(key: Array[Byte]): Array[Byte] = {
    val folder = Files.createTempDirectory(
      "sparkdl-tls",
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
    )
    val store = folder.resolve("run.p12")
    try {
      keytool(store, password(key))
      Files.readAllBytes(store)
    } finally {
      Files.deleteIfExists(store)
      Files.deleteIfExists(folder): Unit
    }
  }

  def of(secret: RunSecret): TlsPair = {
    val store = KeyStore.getInstance("PKCS12")
    val bytes = secret.certificate.getOrElse(
      throw new RunFailedException(
        "The run has no certificate, though its transport is to use TLS. Start the run anew."
      )
    )
    store.load(new ByteArrayInputStream(bytes), password(secret.key).toCharArray)
    val keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm)
    keys.init(store, password(secret.key).toCharArray)
    val certificate = store.getCertificate(Alias).asInstanceOf[X509Certificate]
    val server = SslContextBuilder.forServer(keys).trustManager(certificate).clientAuth(ClientAuth.REQUIRE)
    val client = SslContextBuilder.forClient().keyManager(keys).trustManager(certificate)
    def made(builder: SslContextBuilder) = builder.protocols(Protocol).sslProvider(provider).build()
    new TlsPair(made(server), made(client))
  }

  /** BoringSSL, which Spark brings for Netty, where this process can load it: the JDK encrypts at a fraction of its speed. */
  private def provider: SslProvider = if (OpenSsl.isAvailable) SslProvider.OPENSSL else SslProvider.JDK

  private def password(key: Array[Byte]): String = key.map(byte => f"${byte & 0xff}%02x").mkString

  private def keytool(store: Path, password: String): Unit = {
    val program = Paths.get(sys.props("java.home"), "bin", "keytool")
    val command = Seq(program.toString, "-genkeypair", "-alias", Alias, "-keyalg", "EC", "-groupname", "secp256r1") ++
      Seq("-sigalg", "SHA256withECDSA", "-validity", "365", "-dname", "CN=sparkdl-bench run", "-storetype", "PKCS12") ++
      Seq("-keystore", store.toString, "-storepass:env", "SPARKDL_STORE_PASSWORD")
    val builder = new ProcessBuilder(command: _*).redirectErrorStream(true)
    builder.environment().put("SPARKDL_STORE_PASSWORD", password) // not on the command line, which others can read
    val process = builder.start()
    val ended = process.waitFor(KeytoolSeconds, TimeUnit.SECONDS)
    if (!ended) process.destroyForcibly()
    if (!ended || process.exitValue != 0)
      throw new RunFailedException(
        s"The driver could not make the run's certificate with $program: " +
          (if (ended) new String(process.getInputStream.readAllBytes(), UTF_8).trim
           else s"no end within $KeytoolSeconds s") +
          ". Run the driver on a JDK or JRE that has keytool, or set tcp.tls = false."
      )
  }
}
