package sparkdlbench.doctor

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{KnownExecutor, SparkTestSupport}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys
import sparkdlbench.transport.tcp.PortRange
import sparkdlbench.transport.{LocalCluster, RankPlacement}

import java.net.{InetAddress, ServerSocket}
import java.nio.file.{Files, Paths}

/** Planted faults, one test each, and a healthy cluster with none. */
class DoctorSuite extends AnyFunSuite {
  private val run = Map("workers" -> "2", "batch" -> "32", "model.hidden" -> "64")
  private val cluster = Map("spark.master" -> "local-cluster[2,1,1024]")

  private def before(conf: (String, String)*): Seq[Finding] = Doctor.beforeStart(cluster ++ conf, run)

  private def assertOne(found: Seq[Finding], check: String, words: String*): Unit = {
    assert(found.map(_.check) == Seq(check), found)
    words.foreach(word => assert(found.head.message.contains(word), found.head.message))
  }

  private def facts(id: String): ExecutorFacts =
    ExecutorFacts(
      id,
      s"10.0.0.$id",
      s"machine-$id",
      "4.1.0",
      Map("version" -> "1", "commit" -> "a"),
      Nil,
      None,
      Nil,
      None
    )

  private def executors(facts: ExecutorFacts*): Seq[Finding] =
    new ExecutorChecks(facts, "4.1.0", Map("version" -> "1", "commit" -> "a")).findings

  test("nothing is wrong with healthy properties and healthy executors") {
    assert(before().isEmpty)
    assert(
      before("spark.master" -> "spark://some-host:7077", "spark.driver.host" -> "10.1.2.3")
        .filterNot(_.check == "interfaces")
        .isEmpty
    )
    assert(executors(facts("1"), facts("2")).isEmpty)
  }

  test("a wrong setting") {
    assertOne(Doctor.beforeStart(cluster, run + ("codec" -> "fp31")), "settings", "fp31")
  }

  test("dynamic allocation") {
    assertOne(before("spark.dynamicAllocation.enabled" -> "true"), "dynamic-allocation", "spark.executor.instances")
  }

  test("encryption that Spark would leave out without a word") {
    assertOne(before("spark.network.crypto.enabled" -> "true"), "encryption", "spark.authenticate=true")
    assert(before("spark.network.crypto.enabled" -> "true", "spark.authenticate" -> "true").isEmpty)
  }

  test("a transport that does not encrypt in a session that does") {
    val secure = Seq("spark.network.crypto.enabled" -> "true", "spark.authenticate" -> "true")
    def found(settings: (String, String)*) = Doctor.beforeStart(cluster ++ secure, run ++ settings)
    for (name <- Seq("tcp", "ucx", "mpi")) {
      assertOne(found("transport" -> name), "encryption", s"transport $name would send", "allow_plaintext = true")
      assert(found("transport" -> name, "allow_plaintext" -> "true").isEmpty)
      // As the session's own properties say it.
      assertOne(before(secure :+ ("spark.sparkdl.transport" -> name): _*), "encryption", s"transport $name")
    }
    assert(found("transport" -> "tcp", "tcp.tls" -> "true").isEmpty)
    assert(found("transport" -> "block-stream").isEmpty)
  }

  test("a transport that there is not is one finding") {
    assertOne(Doctor.beforeStart(cluster, run + ("transport" -> "tcpp")), "settings", "Did you mean 'tcp'")
  }

  test("a shuffle manager whose class is not there") {
    assertOne(before("spark.shuffle.manager" -> "com.example.Missing"), "shuffle-manager", "com.example.Missing")
  }

  test("a port that something else holds") {
    val socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))
    val port = socket.getLocalPort.toString
    val conf = Seq("spark.driver.host" -> "127.0.0.1", "spark.driver.port" -> port, "spark.port.maxRetries" -> "0")
    try assertOne(before(conf: _*), "ports", port, "spark.driver.port")
    finally socket.close()
    assert(before(conf: _*).isEmpty)
  }

  test("a driver on the loopback device of a cluster of other hosts") {
    val found = before("spark.master" -> "spark://some-host:7077", "spark.driver.host" -> "127.0.0.1")
    assertOne(found, "interfaces", "spark.driver.host is 127.0.0.1", "some-host")
  }

  test("more threads of BLAS than cores") {
    assertOne(Doctor.beforeStart(cluster, run + ("engine.threads" -> "4")), "blas-threads", "spark.task.cpus=4")
    assert(Doctor.beforeStart(cluster + ("spark.task.cpus" -> "4"), run + ("engine.threads" -> "4")).isEmpty)
  }

  test("executors without room for a task") {
    assertOne(before("spark.executor.cores" -> "1", "spark.task.cpus" -> "2"), "slots", "spark.executor.cores to 2")
  }

  test("another jar, or another Spark, in an executor") {
    assertOne(
      executors(facts("1"), facts("2").copy(build = Map("version" -> "1", "commit" -> "b"))),
      "jar",
      "executor 2",
      "1 b"
    )
    assertOne(executors(facts("1"), facts("2").copy(spark = "4.0.0")), "spark-version", "executor 2", "4.0.0")
  }

  test("hosts with unequal numbers of executors") {
    val crowded = Seq("2", "3", "4").map(id => facts(id).copy(machine = "machine-2", host = "10.0.0.2"))
    assertOne(executors(facts("1") +: crowded: _*), "executors-per-host", "10.0.0.2 runs 3", "10.0.0.1 runs 1")
  }

  test("executors of several machines that go by a loopback address") {
    assertOne(executors(facts("1"), facts("2").copy(host = "127.0.1.1")), "interfaces", "executor 2", "SPARK_LOCAL_IP")
  }

  test("an executor that cannot reach another one's block manager") {
    val closed = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))
    val address = s"127.0.0.1:${closed.getLocalPort}"
    assert(ExecutorProbe.refusal(address).isEmpty)
    closed.close()
    val why = ExecutorProbe.refusal(address)
    assert(why.exists(_.contains("refused")), why)
    assertOne(
      executors(facts("1").copy(unreachable = Seq(address -> why.get)), facts("2")),
      "reachability",
      address,
      "spark.blockManager.port"
    )
  }

  test("an executor that is registered and gets no task") {
    def there(ids: String*) = ids.map(id => KnownExecutor(id, s"10.0.0.$id:7000", 1, 0, None))
    val (both, one) = (there("1", "2"), Seq(facts("1"), facts("1")))
    assertOne(
      SilentExecutors.findings(both, both, one),
      "executors",
      "executor 2 at 10.0.0.2:7000",
      "2 executors are registered",
      "spark.excludeOnFailure.enabled"
    )
    assert(SilentExecutors.findings(both, both, one :+ facts("2")).isEmpty)
    // One came, or went, while the tasks were given out.
    assert(SilentExecutors.findings(both, there("1", "2", "3"), one).isEmpty)
    assert(SilentExecutors.findings(both, there("1"), one).isEmpty)
  }

  test("a transport that could not connect in an executor") {
    val found = executors(facts("1"), facts("2").copy(transport = Some("Set this.")))
    assertOne(found, "transport", "could not connect in executor 2 on 10.0.0.2. Set this.")
  }

  test("too few free ports for the ranks of a host") {
    val here = InetAddress.getByName("127.0.0.1")
    val socket = new ServerSocket(0, 1, here)
    val port = socket.getLocalPort
    def refusal(ranks: Int) = intercept[ConfigurationException](PortRange(port, port).check(here, ranks)).getMessage
    try assert(refusal(1).contains(s"tcp.ports = $port, of which 0 are free at 127.0.0.1"))
    finally socket.close()
    PortRange(port, port).check(here, 1)
    assert(refusal(2).contains("at least 2 here"))
    PortRange(0, 0).check(here, 1000)
    assert(RankPlacement(ranks = 5, executors = 4, hosts = 2).ranksOnAHost == 3)
    assert(RankPlacement(ranks = 2, executors = 4, hosts = 4).ranksOnAHost == 1)
    assert(!RankPlacement(ranks = 2, executors = 1, hosts = 1).severalProcesses)
  }

  test("UCX devices that a host does not have") {
    assert(ExecutorProbe.missingDevices(Some("lo,all")).isEmpty)
    assert(ExecutorProbe.missingDevices(Some("nothing0:1,lo")) == Seq("nothing0"))
    assert(ExecutorProbe.missingDevices(None).isEmpty)
  }

  test(
    "a real cluster: healthy; too few slots; data that are not there; what transports find; too little memory; a core that is held; what the session says"
  ) {
    LocalCluster.run(2, 1, LocalCluster.prepared :+ ("spark.executorEnv.UCX_NET_DEVICES" -> "lo"): _*) { sc =>
      for (name <- Seq("block-manager", "block-stream", "tcp"))
        assert(Doctor.session(sc, run + ("transport" -> name)).isEmpty, name)
      assertOne(Doctor.session(sc, run ++ Map("workers" -> "3", "slots_wait" -> "1")), "slots", "workers = 3")
      assertOne(
        Doctor.session(sc, run ++ Map("data.source" -> "idx", "data.path" -> "/nothing/there")),
        "data",
        "/nothing/there"
      )
      transportsFind(sc)
      val large = run ++ Map("model.hidden" -> "8192,8192", "transport" -> "block-stream")
      assertOne(Doctor.session(sc, large), "memory", "spark.executor.memory")
      besideAnotherJob(sc)
      // Last: the session is not as it says from here on.
      SparkTestSupport.set(sc, "spark.network.crypto.enabled", "true")
      assertOne(Doctor.session(sc, run + ("transport" -> "tcp")), "encryption", "transport tcp would send")
      SparkTestSupport.set(sc, "spark.network.crypto.enabled", "false")
      SparkTestSupport.set(sc, "spark.shuffle.manager", "com.example.Missing")
      assertOne(Doctor.session(sc, run), "shuffle-manager", "com.example.Missing")
    }
  }

  test("UCX devices that the hosts of a real cluster do not have") {
    LocalCluster.run(1, 1, "spark.executorEnv.UCX_NET_DEVICES" -> "mlx5_9:1") { sc =>
      assertOne(Doctor.session(sc, run + ("workers" -> "1")), "ucx-devices", "mlx5_9", "executor 0 on 127.0.0.1")
    }
  }

  test(
    "a real cluster without our plugin: native libraries that cannot be unpacked; nothing takes the streams of block-stream in"
  ) {
    LocalCluster.run(2, 1) { sc =>
      // First: an executor that has the libraries unpacks none.
      val blocked = Files.createTempFile("not-a-folder", "")
      val wrong = run + (RunKeysOfEngine.cache -> blocked.resolve("cache").toString)
      assertOne(Doctor.session(sc, wrong), "native-libraries", "executor 0 on 127.0.0.1", blocked.toString)
      assertOne(
        Doctor.session(sc, run + ("transport" -> "block-stream")),
        "transport",
        "executor 0 on 127.0.0.1, executor 1 on 127.0.0.1. block-stream needs a shuffle manager",
        "spark.plugins=sparkdlbench.SparkDLPlugin"
      )
      // One rank has nobody to send to.
      assert(Doctor.session(sc, run ++ Map("workers" -> "1", "transport" -> "block-stream")).isEmpty)
    }
  }

  /** An executor whose only core another job holds. */
  private def besideAnotherJob(sc: SparkContext): Unit = {
    val sign = Files.createTempDirectory("busy").resolve("runs").toString
    sc.setJobGroup("other", "another job", interruptOnCancel = true)
    val other = sc
      .parallelize(Seq(1), 1)
      .map { one =>
        Files.createFile(Paths.get(sign))
        Thread.sleep(120000)
        one
      }
      .collectAsync()
    sc.clearJobGroup()
    try {
      val end = System.nanoTime() + 60000000000L
      while (!Files.exists(Paths.get(sign)) && System.nanoTime() < end) Thread.sleep(20)
      assertOne(Doctor.session(sc, run), "executors", "2 executors are registered, and no task came to executor")
      // With dynamic allocation it may have been about to go.
      SparkTestSupport.set(sc, "spark.dynamicAllocation.enabled", "true")
      assertOne(Doctor.session(sc, run), "dynamic-allocation", "spark.executor.instances")
    } finally {
      other.cancel()
      SparkTestSupport.set(sc, "spark.dynamicAllocation.enabled", "false")
    }
  }

  /** What the transports themselves would say when they connect. */
  private def transportsFind(sc: SparkContext): Unit = {
    def check(words: Seq[String], settings: (String, String)*): Unit =
      assertOne(Doctor.session(sc, run ++ settings), "transport", words: _*)
    check(Seq("tcp.interface = nosuch0 fits no address"), "transport" -> "tcp", "tcp.interface" -> "nosuch0")
    val many = run ++ Map("transport" -> "tcp", "tcp.ports" -> "many")
    assertOne(Doctor.session(sc, many), "settings", "tcp.ports", "many")
    val socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))
    val port = socket.getLocalPort.toString
    try check(Seq(s"tcp.ports = $port", "at least 2 here"), "transport" -> "tcp", "tcp.ports" -> port)
    finally socket.close()
    check(Seq("sparkdl-bench jars fetch --ucx"), "transport" -> "ucx", "ucx.libraries" -> "/nothing/there")
    check(Seq("mpi.python = /nothing/python is no program"), "transport" -> "mpi", "mpi.python" -> "/nothing/python")
    val shell = Seq("mpi.python" -> "/bin/sh", "mpi.launcher" -> "/bin/true")
    check(Seq("/bin/true is not Open MPI 5"), shell :+ ("transport" -> "mpi"): _*)
    val launcher = Files.write(Files.createTempFile("mpiexec", ""), "#!/bin/sh\necho Open MPI 5.0".getBytes("UTF-8"))
    assert(launcher.toFile.setExecutable(true))
    val without = Seq("mpi.python" -> "/bin/false", "mpi.launcher" -> launcher.toString)
    check(Seq("/bin/false cannot import mpi4py"), without :+ ("transport" -> "mpi"): _*)
  }
}

private object RunKeysOfEngine {
  val cache: String = RunKeys.all.map(_.name).find(_ == "engine.cache").get
}
