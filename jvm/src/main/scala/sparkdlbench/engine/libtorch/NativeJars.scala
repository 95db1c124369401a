package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Loader

import java.io.{File, IOException}
import java.net.JarURLConnection
import java.nio.charset.StandardCharsets
import java.util.UUID
import sparkdlbench.common.ConfigurationException

/** Says which jars of native libraries are missing from the class path, before anything is loaded. */
private[libtorch] object NativeJars {

  /** One jar: Maven artifact of group org.bytedeco, classifier, and a file that must be in it. */
  private final case class NativeJar(artifact: String, classifier: String, resource: String)

  def platform: String = Loader.getPlatform

  /**
   * Throws where the Java side of the libraries is missing; call before `platform` and any bytedeco class.
   *
   * @param blas
   *   as the settings name it: `auto`, `mkl` or `openblas`
   */
  def checkClasses(blas: String): Unit = {
    val arch = System.getProperty("os.arch")
    val absent =
      classes(blas, arch).collect { case (artifact, resource) if !isPresent(resource) => s"org.bytedeco:$artifact" }
    if (absent.nonEmpty) throw missing(absent, s"${System.getProperty("os.name")} $arch")
  }

  /**
   * By artifact, the class that shows its jar. MKL's is asked for where it may be loaded alone: nothing brings it for other
   * processors than x86-64 (natives.properties), whose users are told so where they ask for it.
   *
   * @param arch
   *   the JVM's `os.arch`; x86-64 is `amd64` on Linux and `x86_64` on macOS
   */
  private[libtorch] def classes(blas: String, arch: String): Seq[(String, String)] = {
    val always = Seq(
      "javacpp" -> "org/bytedeco/javacpp/Loader.class",
      "openblas" -> "org/bytedeco/openblas/global/openblas_full.class",
      "pytorch" -> "org/bytedeco/pytorch/global/torch.class"
    )
    if (blas != "openblas" && Set("amd64", "x86_64").contains(arch))
      always :+ ("mkl" -> "org/bytedeco/mkl/global/mkl_rt.class")
    else always
  }

  /** Throws a ConfigurationException that lists the jars of natives that are missing for a BLAS on this platform. */
  def check(blas: String): Unit = {
    val absent = needed(blas).filterNot(jar => isPresent(jar.resource))
    if (absent.nonEmpty) throw missing(absent.map(coordinates), platform)
  }

  /** Differs where other jars would unpack other files: what JavaCPP itself compares, name, size and time. */
  def fingerprint(blas: String): String = {
    val entries = needed(blas).map { jar =>
      getClass.getClassLoader.getResource(jar.resource).openConnection() match {
        case inJar: JarURLConnection =>
          val jarName = new File(inJar.getJarFile.getName).getName
          s"$jarName ${inJar.getJarEntry.getSize} ${inJar.getJarEntry.getTime}"
        case other => s"${other.getURL} ${other.getContentLengthLong} ${other.getLastModified}"
      }
    }
    UUID.nameUUIDFromBytes((blas +: entries).mkString("\n").getBytes(StandardCharsets.UTF_8)).toString
  }

  /** Whether there are jars of natives that this package does not bring, which change what libtorch finds: those for GPUs. */
  def hasOthers: Boolean =
    isPresent(s"org/bytedeco/cuda/$platform/${System.mapLibraryName("jnicudart")}") ||
      isPresent(s"org/bytedeco/pytorch/$platform-gpu/${System.mapLibraryName("jnitorch")}")

  private def needed(blas: String): Seq[NativeJar] = {
    def jar(artifact: String, library: String, suffix: String = "") =
      NativeJar(artifact, platform + suffix, s"org/bytedeco/$artifact/$platform/${System.mapLibraryName(library)}")
    val always = Seq(jar("javacpp", "jnijavacpp"), jar("openblas", "jniopenblas_nolapack"), jar("pytorch", "jnitorch"))
    if (blas == "mkl")
      always ++ Seq(jar("mkl", "jnimkl_rt"), jar("mkl", "mkl_rt", "-redist").copy(resource = mklRuntime))
    else always
  }

  private def mklRuntime = s"org/bytedeco/mkl/$platform/libmkl_rt.so.2"

  private def isPresent(resource: String) = getClass.getClassLoader.getResource(resource) != null

  private def coordinates(jar: NativeJar): String = {
    val version =
      try Option(Loader.getVersion("org.bytedeco", jar.artifact))
      catch { case _: IOException => None }
    s"org.bytedeco:${jar.artifact}:${version.getOrElse(s"<version of ${jar.artifact}.jar>")}:${jar.classifier}"
  }

  private def missing(what: Seq[String], system: String) = new ConfigurationException(
    s"The libtorch engine needs libraries for $system that are not on the class path: ${what.mkString(", ")} " +
      "(Maven coordinates; the last part is the classifier). `spark.jars.packages` takes no classifiers: add the assembled jar " +
      "of sparkdl-bench, or fetch them with `sparkdl-bench jars fetch DIR` and put DIR's jars on spark.jars."
  )
}
