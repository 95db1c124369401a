package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.config.RunKeys

/** What a session is refused for before any job. (Slots, versions and dynamic allocation: the doctor's suites.) */
class SessionCheckSuite extends AnyFunSuite {
  private def encryption(sessionEncrypts: Boolean, values: (String, String)*): Unit =
    SessionCheck.encryption(sessionEncrypts, RunKeys.resolve(values.toMap))

  test("in a session that encrypts, a transport that does not is refused unless somebody says so") {
    for (name <- Seq("tcp", "ucx", "mpi")) {
      encryption(sessionEncrypts = false, "transport" -> name)
      val refusal = intercept[ConfigurationException](encryption(sessionEncrypts = true, "transport" -> name))
      assert(refusal.getMessage.contains(s"transport $name would send gradients and weights in the clear"))
      assert(refusal.getMessage.contains("allow_plaintext = true"))
      encryption(sessionEncrypts = true, "transport" -> name, "allow_plaintext" -> "true")
    }
  }

  test("one that encrypts, by itself or through Spark, is not") {
    encryption(sessionEncrypts = true, "transport" -> "tcp", "tcp.tls" -> "true")
    for (name <- Seq("block-stream", "block-manager", "shuffle"))
      encryption(sessionEncrypts = true, "transport" -> name)
  }
}
