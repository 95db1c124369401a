package sparkdlbench.transport

import org.scalatest.funsuite.AnyFunSuite

class RunSecretSuite extends AnyFunSuite {
  private def exposed(properties: (String, String)*) = RunSecret.exposed("tcp", properties.toMap.get)

  test("who could learn the secret without the session's is warned of, where there are other processes") {
    for (master <- Seq("local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://https://host")) {
      val warning = exposed("spark.master" -> master).get
      assert(warning.contains("Transport tcp") && warning.contains("spark.authenticate=true"), warning)
      assert(exposed("spark.master" -> master, "spark.authenticate" -> "false").nonEmpty)
      assert(exposed("spark.master" -> master, "spark.authenticate" -> "true").isEmpty)
    }
    for (master <- Seq("local", "local[4]", "local[*]", "local[2,3]")) assert(exposed("spark.master" -> master).isEmpty)
  }

  test("no two are alike, and none is printed") {
    val (one, other) = (RunSecret.random(), RunSecret.random())
    assert(one.key.length == 32 && !one.key.sameElements(other.key))
    assert(one.toString == "RunSecret(…)")
  }
}
