package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Loader
import sparkdlbench.ConfigurationException

import java.io.IOException

/** Says which jars of native libraries are missing from the class path, before anything is loaded. */
private[libtorch] object NativeJars {

  /** One jar: Maven artifact of group org.bytedeco, classifier, and a file that must be in it. */
  private final case class NativeJar(artifact: String, classifier: String, resource: String)

  def platform: String = Loader.getPlatform

  /** Throws a ConfigurationException that lists what is missing for a BLAS on this platform. */
  def check(blas: String): Unit = {
    if (!isPresent("org/bytedeco/pytorch/global/torch.class")) throw missing(Seq("org.bytedeco:pytorch, openblas, mkl, javacpp"))
    val absent = needed(blas).filterNot(jar => isPresent(jar.resource))
    if (absent.nonEmpty) throw missing(absent.map(coordinates))
  }

  private def needed(blas: String): Seq[NativeJar] = {
    def jar(artifact: String, library: String, suffix: String = "") =
      NativeJar(artifact, platform + suffix, s"org/bytedeco/$artifact/$platform/${System.mapLibraryName(library)}")
    val always = Seq(jar("javacpp", "jnijavacpp"), jar("openblas", "jniopenblas_nolapack"), jar("pytorch", "jnitorch"))
    if (blas == "mkl") always ++ Seq(jar("mkl", "jnimkl_rt"), jar("mkl", "mkl_rt", "-redist").copy(resource = mklRuntime)) else always
  }

  private def mklRuntime = s"org/bytedeco/mkl/$platform/libmkl_rt.so.2"

  private def isPresent(resource: String) = getClass.getClassLoader.getResource(resource) != null

  private def coordinates(jar: NativeJar): String = {
    val version =
      try Option(Loader.getVersion("org.bytedeco", jar.artifact))
      catch { case _: IOException => None }
    s"org.bytedeco:${jar.artifact}:${version.getOrElse(s"<version of ${jar.artifact}.jar>")}:${jar.classifier}"
  }

  private def missing(what: Seq[String]) = new ConfigurationException(
    s"The libtorch engine needs native libraries for $platform that are not on the class path: ${what.mkString(", ")} " +
      "(Maven coordinates with their classifier). `spark.jars.packages` takes no classifiers: add the assembled jar " +
      "of sparkdl-bench, or fetch them with `sparkdl-bench jars fetch DIR` and put DIR's jars on spark.jars."
  )
}
