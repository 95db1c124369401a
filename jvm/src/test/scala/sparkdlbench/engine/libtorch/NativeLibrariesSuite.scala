package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Loader
import sparkdlbench.{OnOneLine, TakesLong}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.model.RunKeysForTests

import java.io.File
import java.net.URL
import java.nio.charset.StandardCharsets
import java.nio.file.attribute.UserPrincipalNotFoundException
import java.nio.file.{FileSystemException, Files, Path, StandardOpenOption}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._

class NativeLibrariesSuite extends OnOneLine {
  private val timeoutSeconds = 240L
  private val isX86 = NativeJars.platform.endsWith("x86_64")

  /** A JVM that runs EngineProbe; `await` gives its output lines. */
  private final class Probe(classPath: String, arguments: Seq[String]) {
    private val output = Files.createTempFile("engine-probe", ".log")
    private val process = new ProcessBuilder(
      (Seq(
        s"${System.getProperty("java.home")}/bin/java",
        "-Xmx512m",
        "-cp",
        classPath,
        "sparkdlbench.engine.libtorch.EngineProbe"
      ) ++
        arguments).asJava
    ).redirectErrorStream(true).redirectOutput(output.toFile).start()

    def await(): Map[String, String] =
      try {
        if (!process.waitFor(timeoutSeconds, TimeUnit.SECONDS)) fail(s"no end after $timeoutSeconds s: $text")
        assert(process.exitValue == 0, text)
        text
          .split('\n')
          .filter(_.contains(": "))
          .map(line => line.takeWhile(_ != ':') -> line.drop(line.indexOf(':') + 2))
          .toMap
      } finally {
        process.destroyForcibly()
        Files.deleteIfExists(output)
      }

    private def text = new String(Files.readAllBytes(output), StandardCharsets.UTF_8)
  }

  private val ownClassPath = System.getProperty("java.class.path")
  private def probe(arguments: String*) = new Probe(ownClassPath, arguments).await()
  private def losses(found: Map[String, String]) =
    found.getOrElse("losses", fail(s"no losses: $found")).split(' ').map(_.toDouble).toSeq

  private def withFolder[T](body: Path => T): T = {
    val folder = Files.createTempDirectory("native-cache")
    try body(folder)
    finally Files.walk(folder).sorted(java.util.Comparator.reverseOrder[Path]()).forEach(path => Files.delete(path))
  }

  // Without MKL's jars, as on processors that it does not exist for.
  private lazy val openblas = {
    val entries = ownClassPath.split(File.pathSeparator).toSeq.filterNot(new File(_).getName.startsWith("mkl-"))
    new Probe(entries.mkString(File.pathSeparator), Seq(EngineProbe.Share, "engine.blas=openblas")).await()
  }
  private lazy val byDefault = probe(EngineProbe.Share)

  test("the default on x86-64 is MKL in its reproducible mode, and is what is loaded") {
    assume(isX86, s"MKL exists for x86-64 alone, this is ${NativeJars.platform}")
    assert(byDefault("blas") == "mkl")
    assert(byDefault("blas.library").contains("/org/bytedeco/mkl/"))
    assert(byDefault("blas.version").contains("Math Kernel Library"))
    assert(byDefault("mkl.cbwr") == "auto")
    assert(byDefault("threads") == "1")
  }

  test("OpenBLAS is loaded when asked for, without any jar of MKL, and agrees with MKL to 1e-4") {
    assert(openblas.get("blas").contains("openblas"), openblas)
    assert(openblas("blas.library").contains("/org/bytedeco/openblas/"))
    assert(openblas("blas.version").contains("OpenBLAS"))
    assume(isX86, s"MKL exists for x86-64 alone, this is ${NativeJars.platform}")
    losses(openblas).zip(losses(byDefault)).foreach { case (a, b) => assert((a / b - 1).abs < 1e-4) }
  }

  test("one thread means one thread, with either BLAS") {
    Seq(byDefault, openblas).foreach { found =>
      assert(found("other threads' share").toDouble < 0.3, found)
    }
  }

  test("the thread counts are what the libraries say, and another number than asked for is refused") {
    Seq(byDefault, openblas).foreach { found =>
      assert((found("threads"), found("torch.threads"), found("blas.threads")) == (("1", "1", "1")), found)
    }
    val libraries = NativeLibraries.load(RunKeysForTests.settings())
    val counted = Seq(1, 2, 1).map(libraries.threadFacts)
    for ((asked, said) <- Seq(1, 2, 1).zip(counted))
      assert(said == Map("torch.threads" -> asked.toString, "blas.threads" -> asked.toString))
    NativeLibraries.checkThreads("mkl", 2, 2)
    val message = intercept[ConfigurationException](NativeLibraries.checkThreads("mkl", 2, 1)).getMessage
    assert(message.contains("with 2 threads (engine.threads") && message.contains("mkl says that it uses 1"), message)
  }

  test("two runs in two JVMs give the same bits") {
    assert(losses(probe()) == losses(byDefault))
  }

  test("other reproducibility branches are set or refused with the reason") {
    assume(isX86, s"MKL exists for x86-64 alone, this is ${NativeJars.platform}")
    assert(probe("engine.cbwr=compatible")("mkl.cbwr") == "compatible")
    val avx512 = probe("engine.cbwr=avx512")
    assert(avx512.get("mkl.cbwr").contains("avx512") || avx512("refused").contains("engine.cbwr='avx512'"))
  }

  test(
    "three JVMs at once fill one empty cache folder; a fourth searches for nothing that they have looked for",
    TakesLong
  ) {
    withFolder { folder =>
      val cache = Seq(s"engine.cache=$folder/deeper")
      val probes = (1 to 3).map(_ => new Probe(ownClassPath, cache))
      val found = probes.map(_.await())
      assert(found.map(losses).distinct.size == 1)
      assert(found.forall(_("blas.library").startsWith(folder.toString)))
      val names = found.map(_("names searched").toInt).distinct
      assert(names.size == 1 && names.head > 10, "three JVMs found different libraries, or JavaCPP has no map any more")
      val index = Files.walk(folder).iterator.asScala.filter(_.getFileName.toString.startsWith("found-")).toSeq
      assert(index.size == 1, index)
      Files.write(index.head, "only in the index\n".getBytes(StandardCharsets.UTF_8), StandardOpenOption.APPEND)
      val fourth = new Probe(ownClassPath, cache).await()
      assert(fourth("names searched").toInt == names.head + 1)
      assert(losses(fourth) == losses(found.head))
    }
  }

  test("what was found is told by its place in a jar; what the system or a folder had is looked for again") {
    val resource = s"org/bytedeco/javacpp/${NativeJars.platform}/${System.mapLibraryName("jnijavacpp")}"
    val url = classOf[Loader].getClassLoader.getResource(resource)
    val map = new java.util.HashMap[String, Array[URL]]
    map.put("jnijavacpp", Array(url))
    map.put("renamed@.1#other@.2", Array(new URL(s"$url#libother.so.2")))
    map.put("nowhere@.9", Array.empty)
    map.put("in a folder", Array(new URL("file:/usr/lib/libx.so")))
    val lines = FoundLibraries.describe(map)
    assert(lines == Seq(s"jnijavacpp\t$resource", "nowhere@.9", s"renamed@.1#other@.2\t$resource#libother.so.2"))
    val filled = new java.util.HashMap[String, Array[URL]]
    FoundLibraries.fill(filled, lines :+ "gone@.1\torg/bytedeco/gone.so")
    assert(filled.keySet.asScala == Set("jnijavacpp", "nowhere@.9", "renamed@.1#other@.2"))
    filled.asScala.foreach { case (name, urls) =>
      assert(urls.map(_.toString).toSeq == map.get(name).map(_.toString).toSeq)
    }
  }

  test("missing jars are named by their Maven coordinates") {
    val entries = ownClassPath.split(File.pathSeparator).toSeq
    def refusal(keep: String => Boolean) =
      new Probe(entries.filter(keep).mkString(File.pathSeparator), Seq("engine.blas=mkl")).await()("refused")
    if (isX86) {
      val withoutMkl = refusal(entry => !entry.matches(".*mkl-.*linux-x86_64-redist.jar"))
      assert(withoutMkl.contains(":linux-x86_64-redist") && withoutMkl.contains("org.bytedeco:mkl:20"))
      assert(withoutMkl.contains("sparkdl-bench jars fetch DIR"))
      val withoutNatives = refusal(entry => !entry.matches(".*linux-x86_64.*jar"))
      Seq("javacpp", "pytorch", "openblas", "mkl").foreach(name =>
        assert(withoutNatives.contains(s"org.bytedeco:$name:"))
      )
    }
    assert(refusal(entry => !entry.contains("bytedeco")).contains("org.bytedeco:pytorch"))
  }

  test("MKL's classes are asked for where it may be loaded alone") {
    def asked(blas: String, arch: String) = NativeJars.classes(blas, arch).map(_._1).toSet
    val always = Set("javacpp", "openblas", "pytorch")
    for (arch <- Seq("amd64", "x86_64")) {
      assert(asked("auto", arch) == always + "mkl" && asked("mkl", arch) == always + "mkl")
      assert(asked("openblas", arch) == always)
    }
    for (blas <- Seq("auto", "mkl", "openblas")) assert(asked(blas, "aarch64") == always)
  }

  test("another BLAS in the same JVM is an error, the same one is not") {
    val settings = RunKeysForTests.settings()
    val first = NativeLibraries.load(settings)
    assert(NativeLibraries.load(RunKeysForTests.settings("engine.blas" -> first.facts("blas"))) eq first)
    val other = if (first.facts("blas") == "mkl") "openblas" else "mkl"
    val refused =
      intercept[ConfigurationException](NativeLibraries.load(RunKeysForTests.settings("engine.blas" -> other)))
    assert(refused.getMessage.contains(s"engine.blas=$other") || refused.getMessage.contains("needs an x86-64 host"))
    assert(NativeLibraries.load(settings) eq first)
  }

  test("a cache folder that cannot be used is refused by name") {
    withFolder { folder =>
      val file = Files.createFile(folder.resolve("file"))
      val message =
        intercept[ConfigurationException](NativeCache.prepare(file.resolve("below").toString, "mkl")).getMessage
      assert(message.contains(file.toString) && message.contains("engine.cache"))
    }
  }

  test("a cache folder that belongs to somebody else is not trusted") {
    withFolder { folder =>
      val foreign = Files.createDirectory(folder.resolve("foreign"))
      try Files.setOwner(foreign, foreign.getFileSystem.getUserPrincipalLookupService.lookupPrincipalByName("nobody"))
      catch {
        case error @ (_: FileSystemException | _: UserPrincipalNotFoundException) =>
          cancel(s"cannot give a folder away: $error")
      }
      assert(
        intercept[ConfigurationException](NativeCache.prepare(foreign.toString, "mkl")).getMessage
          .contains("belongs to nobody")
      )
    }
  }
}
