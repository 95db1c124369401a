package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Loader
import org.bytedeco.mkl.global.mkl_rt
import org.bytedeco.openblas.global.openblas_full
import org.bytedeco.pytorch.global.torch
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.engine.EngineDevice

import java.nio.file.{Path, Paths}

/** libtorch and its BLAS as this JVM holds them. */
final class NativeLibraries private[libtorch] (blas: Blas, cache: Path, blasFile: Option[String]) {
  private val pinned = ThreadLocal.withInitial[Integer](() => 0)

  /**
   * Makes libtorch and the BLAS use `threads` threads in calls from the calling thread. Both counts belong to a thread, so
   * ranks that are threads of one JVM do not disturb each other. A ConfigurationException where either says afterwards
   * that it uses another number.
   */
  def pinThreads(threads: Int): Unit = {
    if (pinned.get != threads) {
      // The first question makes ATen initialise this thread from the process-wide count; only after that does ours last.
      torch.get_num_threads()
      torch.set_num_threads(threads)
      NativeLibraries.checkThreads("libtorch", threads, torch.get_num_threads())
      pinned.set(threads)
    }
    NativeLibraries.checkThreads(blas.name, threads, blas.pinThreads(threads))
  }

  /** How many threads libtorch and the BLAS say, asked now, that they use in calls from the calling thread. */
  def threadFacts(threads: Int): Map[String, String] = {
    pinThreads(threads)
    Map(
      "torch.threads" -> torch.get_num_threads().toString,
      "blas.threads" -> blas.pinThreads(threads).toString
    )
  }

  /** What is really loaded. */
  def facts: Map[String, String] = Map(
    "libtorch.version" -> Option(Loader.getVersion("org.bytedeco", "pytorch")).getOrElse("unknown"),
    "libtorch.cpu_capability" -> torch.get_cpu_capability().getString,
    "blas" -> blas.name,
    "blas.library" -> blasFile.getOrElse("unknown"),
    "onednn" -> (if (torch.globalContext().userEnabledMkldnn()) "on" else "off"),
    "device" -> "cpu",
    "native.cache" -> cache.toString,
    "native.platform" -> NativeJars.platform
  ) ++ blas.facts
}

/**
 * Loads the native libraries of the libtorch engine. A JVM can hold them once: with one BLAS, chosen by the first request;
 * a second request for another is an error, never another library than asked for.
 */
object NativeLibraries {
  val blas: Key[String] = Key.choice(
    "engine.blas",
    "auto",
    Seq("auto", "mkl", "openblas"),
    "Matrix library under libtorch; auto: mkl on x86-64, openblas elsewhere"
  )
  val cbwr: Key[String] = Key.choice(
    "engine.cbwr",
    "auto",
    Seq("auto", "compatible", "avx2", "avx512", "off"),
    "MKL's reproducibility mode (MKL_CBWR); auto: the best branch of the CPU, bit-identical runs on the same kind of CPU"
  )
  val cache: Key[String] = Key.text(
    "engine.cache",
    "",
    "Folder on each executor's host into which native libraries are unpacked; empty: sparkdl-bench-<user> in java.io.tmpdir"
  )
  val onednn: Key[String] = Key.choice(
    "engine.onednn",
    "on",
    Seq("on", "off"),
    "oneDNN for convolutions; off: they are matrix products of the BLAS"
  )
  val keys: Seq[Key[_]] = Seq(blas, cbwr, cache, onednn, EngineDevice.key)

  private final case class Choice(blas: String, cbwr: String, onednn: String) {
    override def toString: String =
      s"engine.blas=$blas, ${if (blas == "mkl") s"engine.cbwr=$cbwr, " else ""}engine.onednn=$onednn"
  }

  private val ThreadingLayer = """.*/libmkl_(\w+_thread)\.so[.0-9]*""".r

  // Process-wide, because native libraries are.
  private var held: Option[(Choice, Either[Throwable, NativeLibraries])] = None

  /** Loads what `settings` ask for, or returns what is loaded when it is the same. */
  def load(settings: Settings): NativeLibraries = synchronized {
    NativeJars.checkClasses(settings(blas))
    checkDevice(settings)
    val choice = chosen(settings)
    held match {
      case Some((`choice`, Right(libraries))) => libraries
      case Some((_, Left(failure))) => throw failure
      case Some((other, _)) => throw conflict(choice, other)
      case None =>
        NativeJars.check(choice.blas)
        val folder = NativeCache.prepare(settings(cache), choice.blas)
        val result =
          try {
            val fingerprint = NativeJars.fingerprint(choice.blas)
            Right(NativeCache.loading(folder, fingerprint) {
              FoundLibraries.remembering(folder, fingerprint)(loadOnce(choice, folder))
            })
          } catch {
            case error: ConfigurationException => Left(error)
            case error: LinkageError => Left(unloadable(folder, error))
          }
        held = Some((choice, result))
        result.fold(failure => throw failure, libraries => libraries)
    }
  }

  private def chosen(settings: Settings): Choice = {
    val isX86 = NativeJars.platform.endsWith("x86_64")
    val name = if (settings(blas) != "auto") settings(blas) else if (isX86) "mkl" else "openblas"
    if (name == "mkl" && !isX86)
      throw new ConfigurationException(
        s"engine.blas=mkl needs an x86-64 host, but this one is ${NativeJars.platform}; set engine.blas=openblas or auto."
      )
    Choice(name, if (name == "mkl") settings(cbwr) else "off", settings(onednn))
  }

  private[libtorch] def checkDevice(settings: Settings): Unit = if (settings(EngineDevice.key) != EngineDevice.Cpu)
    throw new ConfigurationException(
      s"engine.device=${settings(EngineDevice.key)} was asked for, and the engine 'libtorch' computes on the CPU: its flat buffers are host memory, and the " +
        "libtorch that this package brings is built without CUDA. Set engine.device=cpu, or engine.name=torch, which computes on a GPU " +
        "with the PyTorch of the hosts' own Python (docs/reference/models.md)."
    )

  /** @param library which of the two */
  private[libtorch] def checkThreads(library: String, asked: Int, found: Int): Unit = if (found != asked)
    throw new ConfigurationException(
      s"The engine 'libtorch' was to compute with $asked threads (engine.threads, or spark.task.cpus where that is 0), and $library says that " +
        s"it uses $found, although it got this number. Valid are the numbers that it accepts on this host: set engine.threads to $found, or look " +
        "what limits it in the executors' environment (OMP_THREAD_LIMIT, OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS, a " +
        "library in the same JVM that sets it too), or choose the other engine.blas."
    )

  private def loadOnce(choice: Choice, folder: Path): NativeLibraries = {
    if (choice.blas == "mkl") System.setProperty("org.bytedeco.openblas.load", "mkl_rt")
    loadOpenMp()
    // libtorch before the BLAS' first function: bytedeco also tries to load MKL's threading layer for Intel's OpenMP, which is not there.
    // Before MKL has loaded another layer that fails, as it should; after that MKL would call it where it is loaded, and end the JVM.
    Loader.load(if (choice.blas == "mkl") classOf[mkl_rt] else classOf[openblas_full])
    Loader.load(classOf[torch])
    val library = if (choice.blas == "mkl") new Mkl(choice.cbwr) else new OpenBlas
    torch.globalContext().setUserEnabledMkldnn(choice.onednn == "on")
    val file = blasFile()
    val isMkl = file.map(_.contains("/org/bytedeco/mkl/"))
    if (isMkl.exists(_ != (choice.blas == "mkl")))
      throw new ConfigurationException(
        s"$choice was asked for, but this JVM has loaded ${file.mkString} as libtorch's BLAS, so something else in it has used " +
          "bytedeco's libraries before. Start the session without it, or set engine.blas to what it has loaded."
      )
    keepFreedBlocks()
    new NativeLibraries(library, folder, file)
  }

  /**
   * Frees one block of just below 32 MiB. From then on glibc takes blocks up to its size from the heap instead of mapping each anew, and
   * keeps up to twice as much free at the heap's end (mallopt(3), M_MMAP_THRESHOLD): else what a layer allocates in each step
   * is given back and faulted in again in each step. Elsewhere it changes nothing.
   */
  private def keepFreedBlocks(): Unit = torch.empty(LargestKept / 4).close()

  private val LargestKept = 31L << 20

  /** libtorch's own OpenMP runtime first: MKL then finds it by its name and takes no second one from the system. */
  private def loadOpenMp(): Unit = {
    val resource = s"/org/bytedeco/pytorch/${NativeJars.platform}/libgomp.so.1"
    if (classOf[torch].getResource(resource) != null)
      System.load(Loader.cacheResource(classOf[torch], resource).getPath)
  }

  /** The file behind the name `libopenblas`, through which libtorch calls its BLAS; None where the system does not tell. */
  private def blasFile(): Option[String] = mapped.find(_.matches(".*/libopenblas\\.so[.0-9]*"))

  private def mapped: Seq[String] = NativeCache.mappedFiles(Paths.get("/")).map(_.toString).toSeq

  /** MKL's threading layers in this JVM. */
  private[libtorch] def threadingLayers: Set[String] =
    mapped.collect { case ThreadingLayer(name) => name }.toSet

  private def conflict(wanted: Choice, held: Choice) = new ConfigurationException(
    s"$wanted was asked for, but this JVM already holds the native libraries for $held, and a JVM can hold one choice only. Use the " +
      "same setting for all runs of a session, or start a new session (new executors) for each."
  )

  private def unloadable(folder: Path, error: LinkageError) = new ConfigurationException(
    s"The native libraries of the libtorch engine for ${NativeJars.platform} could not be loaded from $folder: $error. The folder " +
      "(engine.cache) needs 1.5 GB free on a file system that allows execution, and the system needs libstdc++.",
    error
  )
}
