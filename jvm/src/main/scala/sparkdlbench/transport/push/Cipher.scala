package sparkdlbench.transport.push

import sparkdlbench.config.Key

/** Who encrypts a rank's connections where the session does. What goes over the wire is the same, and so are keys and handshake, which are Spark's. */
object Cipher {
  val Auto = "auto"
  val Spark = "spark"

  val key: Key[String] = Key.choice(
    "cipher",
    Auto,
    Seq(Auto, Spark),
    "Where the session encrypts by AES-CTR or AES-GCM, who does it for a rank's connections: auto (OpenSSL, where this host has it; else Spark's own code), spark"
  )
}
