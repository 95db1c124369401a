package sparkdlbench.engine.libtorch

import org.bytedeco.mkl.global.mkl_rt
import org.bytedeco.openblas.global.openblas_full
import sparkdlbench.common.ConfigurationException

/** The matrix library under libtorch, loaded in this JVM. */
private[libtorch] trait Blas {
  def name: String

  /** Makes matrix products called from the calling thread use `threads` threads; how many it says that they use now. */
  def pinThreads(threads: Int): Int

  /** Version, threading layer, reproducibility mode. */
  def facts: Map[String, String]
}

/**
 * Intel oneMKL over the same OpenMP runtime as libtorch's (its GNU threading layer), so that one thread count rules both.
 * Reproducibility: conditional numerical reproducibility (CNR), set before MKL's first call; "Intel oneMKL Developer Guide",
 * chapter "Obtaining numerically reproducible results". Buffers are 64-byte aligned, threads fixed: the same bits on the same
 * kind of CPU.
 */
private[libtorch] final class Mkl(cbwr: String) extends Blas {
  mkl_rt.MKL_Set_Threading_Layer(mkl_rt.MKL_THREADING_GNU)
  mkl_rt.MKL_Set_Dynamic(0)
  if (cbwr != "off") setReproducibility()

  def name = "mkl"

  def pinThreads(threads: Int): Int = {
    mkl_rt.MKL_Set_Num_Threads_Local(threads)
    mkl_rt.MKL_Get_Max_Threads()
  }

  def facts: Map[String, String] = {
    val version = new Array[Byte](256)
    mkl_rt.MKL_Get_Version_String(version, version.length)
    val branch = mkl_rt.MKL_CBWR_Get(mkl_rt.MKL_CBWR_BRANCH)
    Map(
      "blas.version" -> new String(version, "US-ASCII").takeWhile(_ != '\u0000').trim,
      "blas.threading" -> NativeLibraries.threadingLayers.toSeq.sorted.mkString(", "),
      "mkl.cbwr" -> Mkl.branches
        .collectFirst { case (branchName, code) if code == branch => branchName }
        .getOrElse(branch.toString)
    )
  }

  private def setReproducibility(): Unit = {
    val code = Mkl.branches(cbwr)
    val status = mkl_rt.MKL_CBWR_Set(code)
    if (status != mkl_rt.MKL_CBWR_SUCCESS && mkl_rt.MKL_CBWR_Get(mkl_rt.MKL_CBWR_BRANCH) != code)
      throw new ConfigurationException(
        s"MKL refuses engine.cbwr='$cbwr' on this host (MKL_CBWR_Set returned $status). Branches other than auto and compatible exist " +
          "on Intel CPUs alone, and none can be chosen after something else in this JVM has used MKL. Set engine.cbwr=auto (the " +
          "best branch of the host's CPU), or off for no reproducibility mode."
      )
  }
}

private[libtorch] object Mkl {

  /** Values of `engine.cbwr` and their MKL_CBWR codes. */
  val branches: Map[String, Int] = Map(
    "off" -> mkl_rt.MKL_CBWR_BRANCH_OFF,
    "auto" -> mkl_rt.MKL_CBWR_AUTO,
    "compatible" -> mkl_rt.MKL_CBWR_COMPATIBLE,
    "avx2" -> mkl_rt.MKL_CBWR_AVX2,
    "avx512" -> mkl_rt.MKL_CBWR_AVX512
  )
}

/**
 * OpenBLAS as bytedeco builds it: POSIX threads of its own, one thread count a process. With one thread, calls from several
 * ranks' threads run beside each other; with more, OpenBLAS lets one call in at a time.
 */
private[libtorch] final class OpenBlas extends Blas {
  private var current = 0

  def name = "openblas"

  /** Asked under the lock: a rank beside this one may have another number. */
  def pinThreads(threads: Int): Int = synchronized {
    if (current != threads) {
      openblas_full.openblas_set_num_threads(threads)
      current = threads
    }
    openblas_full.openblas_get_num_threads()
  }

  def facts: Map[String, String] =
    Map("blas.version" -> openblas_full.openblas_get_config().getString.trim, "blas.threading" -> "pthreads")
}
