package sparkdlbench.engine.python

import org.apache.spark.SparkEnv
import sparkdlbench.common.{ConfigurationException, Facts, Json, RunFailedException, SparkDLException}
import sparkdlbench.config.Settings

import java.io.{DataInputStream, DataOutputStream, EOFException, File, IOException}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, StandardOpenOption}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * The Python process beside a rank: `python -m sparkdl_bench.engines._process`, whose file says what is written to its standard input and
 * read from its standard output. It ends with its input, so with the rank or the rank's JVM, however that ends. Every wait for it
 * is bounded (`engine.timeout`). Used by one thread at a time.
 *
 * @param engine
 *   name of the engine in it
 * @param python
 *   the program
 * @param said
 *   the file that its standard error is; it has no name any more, so nothing is left of it however the processes end
 */
private[python] final class PythonProcess private (
    engine: String,
    python: String,
    process: Process,
    said: FileChannel,
    limitSeconds: Int
) extends AutoCloseable {
  import PythonProcess._

  private val requests = new DataOutputStream(process.getOutputStream)
  private val answers = new DataInputStream(process.getInputStream)

  /** What goes wrong before its first answer is the installation's fault. */
  private var hasAnswered = false

  /** Since when it is waited for, `System.nanoTime`. */
  @volatile private var waitingSince: Option[Long] = None
  @volatile private var isLate = false
  private val watch = new Thread(() => keepWatch(), s"sparkdl-engine-$engine")
  watch.setDaemon(true)
  watch.start()

  /** The first request: what to compute, as one line of JSON. @return what really computes */
  def begin(question: String): Map[String, String] = {
    val facts = exchange(_.write(s"$question\n".getBytes(UTF_8)))(_ => words())
    hasAnswered = true
    Json.read(facts).properties().asScala.map(each => each.getKey -> each.getValue.asText).toMap
  }

  /** The gradient of the batch that lies in the shared memory. @return the sum of the rows' losses */
  def step(rows: Int, step: Long, weight: Float): Double = compute(StepRequest, rows, step, weight.toDouble)._1

  /** Of the batch that lies there: the sum of the losses, the rows that are classified rightly, and the class scores, `count` values. */
  def evaluate(rows: Int, count: Int): (Double, Long, Array[Float]) =
    exchange(ask(EvaluationRequest, rows, 0L, 1.0))(in => (in.readDouble(), in.readLong(), scores(in, count)))

  /** The class scores of the rows of the batch that lies there, `count` values. */
  def predict(rows: Int, count: Int): Array[Float] =
    exchange(ask(PredictionRequest, rows, 0L, 1.0))(scores(_, count))

  private def scores(in: DataInputStream, count: Int): Array[Float] = {
    val length = in.readInt()
    if (length != 4 * count) throw new IOException(s"it announced $length bytes of scores, and $count were asked for")
    val content = in.readNBytes(length)
    if (content.length < length) throw new EOFException("its answer ends in the middle")
    val values = new Array[Float](count)
    ByteBuffer.wrap(content).asFloatBuffer().get(values)
    values
  }

  private def compute(what: Int, rows: Int, step: Long, weight: Double): (Double, Long) =
    exchange(ask(what, rows, step, weight))(in => (in.readDouble(), in.readLong()))

  private def ask(what: Int, rows: Int, step: Long, weight: Double)(out: DataOutputStream): Unit = {
    out.writeInt(what)
    out.writeInt(rows)
    out.writeLong(step)
    out.writeDouble(weight)
  }

  private def exchange[T](ask: DataOutputStream => Unit)(read: DataInputStream => T): T = {
    waitingSince = Some(System.nanoTime())
    try {
      ask(requests)
      requests.flush()
      answers.readInt() match {
        case Done => read(answers)
        case UserError => throw new ConfigurationException(words())
        case Failed =>
          throw new RunFailedException(s"The engine '$engine' failed on host ${Facts.hostName}: ${words()}$lastWords.")
        case other => throw new IOException(s"it answered with the number $other")
      }
    } catch { case error: IOException => throw broken(error) }
    finally waitingSince = None
  }

  private def words(): String = {
    val length = answers.readInt()
    if (length < 0 || length > MostWords) throw new IOException(s"it announced $length bytes of text")
    val content = answers.readNBytes(length)
    if (content.length < length) throw new EOFException("its answer ends in the middle")
    new String(content, UTF_8)
  }

  /** What to say where it does not answer, or with something else than answers. */
  private def broken(cause: IOException): SparkDLException = {
    val ended = process.waitFor(EndMillis, TimeUnit.MILLISECONDS)
    val what =
      if (isLate) s"did not answer within $limitSeconds s (engine.timeout) and was stopped"
      else if (ended) s"ended with status ${process.exitValue}"
      else s"is none of ours: ${cause.getMessage}"
    val message =
      s"The engine '$engine' computes in a Python process beside each worker, and that on host ${Facts.hostName} ($python) $what$lastWords."
    if (hasAnswered)
      new RunFailedException(
        s"$message Status 137 is that of a process that was killed, most often for want of memory: it counts against " +
          "spark.executor.memoryOverhead. Where steps take longer, raise engine.timeout.",
        cause
      )
    else new ConfigurationException(s"$message ${remedy(engine)}", cause)
  }

  private def lastWords: String = {
    val text = Try(wholeOf(said)).getOrElse("").replaceAll("\\s+", " ").trim
    if (text.isEmpty) "" else s"; it said: ${text.takeRight(SaidAtMost)}"
  }

  /** Ends a process that is waited for longer than it may be: what waits for it then finds it ended. */
  private def keepWatch(): Unit = while (process.isAlive) {
    if (waitingSince.exists(System.nanoTime() - _ > limitSeconds * 1000000000L)) {
      isLate = true
      process.destroyForcibly(): Unit
    }
    Thread.sleep(WatchMillis)
  }

  def close(): Unit = {
    try requests.close() // the end of its input
    catch { case _: IOException => () } // it has ended before
    val ended =
      try process.waitFor(CloseMillis, TimeUnit.MILLISECONDS)
      catch {
        case _: InterruptedException =>
          Thread.currentThread().interrupt()
          false
      }
    if (!ended) process.destroyForcibly(): Unit
    said.close()
  }
}

private[python] object PythonProcess {
  private val Module = "sparkdl_bench.engines._process"
  private val Done = 0
  private val UserError = 1
  private val Failed = 2
  private val StepRequest = 1
  private val EvaluationRequest = 2
  private val PredictionRequest = 3
  private val WatchMillis = 200L
  private val EndMillis = 2000L
  private val CloseMillis = 5000L
  private val MostWords = 1 << 20
  private val LookMillis = 20000L
  private val SaidAtMost = 1500

  /** Starts the process; `begin` is the first that waits for it. @param threads of its matrix library */
  def start(engine: String, threads: Int, settings: Settings): PythonProcess = {
    val python = program(settings(PythonEngine.python))
    val file = Files.createTempFile("sparkdl-engine-", ".log")
    val said = FileChannel.open(file, StandardOpenOption.READ)
    val builder = new ProcessBuilder(python, "-m", Module).redirectError(file.toFile)
    val variables = withPath(builder, settings)
    // Read by the libraries when they are loaded.
    Seq("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS").foreach(variables.put(_, threads.toString))
    val process =
      try builder.start()
      catch {
        case error: IOException =>
          said.close()
          throw new ConfigurationException(
            s"The engine '$engine' computes in a Python process beside each worker, and on host ${Facts.hostName} '$python' cannot be started (${error.getMessage}). " +
              remedy(engine),
            error
          )
      } finally Files.deleteIfExists(file): Unit
    new PythonProcess(engine, python, process, said, settings(PythonEngine.timeoutSeconds))
  }

  private def wholeOf(channel: FileChannel): String = {
    val content = ByteBuffer.allocate(channel.size.toInt)
    while (content.hasRemaining && channel.read(content, content.position().toLong) > 0) ()
    new String(content.array, 0, content.position(), UTF_8)
  }

  /** Whether the Python of this host has the engine's packages, without loading them. Only a clear no is one. */
  def lacking(engine: String, settings: Settings): Option[String] = {
    val python = program(settings(PythonEngine.python))
    val packages = Seq("sparkdl_bench", engine)
    val look = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if not u.find_spec(n)])"
    val builder = new ProcessBuilder(python +: "-c" +: look +: packages: _*).redirectErrorStream(true)
    withPath(builder, settings)
    def here = s"The engine '$engine' computes in a Python process beside each worker, and on host ${Facts.hostName}"
    try {
      val process = builder.start()
      process.getOutputStream.close()
      if (!process.waitFor(LookMillis, TimeUnit.MILLISECONDS)) { process.destroyForcibly(); None }
      else {
        val words = new String(process.getInputStream.readAllBytes(), UTF_8).trim
        val missing = packages.filter(words.split(' ').contains)
        if (process.exitValue() != 0 || missing.isEmpty) None
        else Some(s"$here '$python' has no package ${missing.mkString(" and no ")}. ${remedy(engine)}")
      }
    } catch {
      case error: IOException => Some(s"$here '$python' cannot be started (${error.getMessage}). ${remedy(engine)}")
    }
  }

  private def withPath(builder: ProcessBuilder, settings: Settings): java.util.Map[String, String] = {
    val variables = builder.environment()
    val path = Seq(settings(PythonEngine.pythonPath), variables.getOrDefault("PYTHONPATH", "")).filter(_.nonEmpty)
    if (path.nonEmpty) variables.put("PYTHONPATH", path.mkString(File.pathSeparator)): Unit
    variables
  }

  /** As PySpark chooses the Python of its workers, where the key does not say. */
  private def program(configured: String): String =
    if (configured != PythonEngine.Auto) configured
    else
      Option(SparkEnv.get)
        .flatMap(_.conf.getOption("spark.pyspark.python"))
        .orElse(sys.env.get("PYSPARK_PYTHON"))
        .getOrElse("python3")

  private def remedy(engine: String): String = {
    val version = Facts.build.getOrElse("version", "")
    val needed = if (engine == "torch") s"sparkdl-bench[torch]==$version" else s"sparkdl-bench==$version"
    s"Every host needs a Python with the package of this version (pip install '$needed'); engine.python names it, engine.python_path folders to look for " +
      "packages in. Or set engine.name=libtorch, which needs none."
  }
}
