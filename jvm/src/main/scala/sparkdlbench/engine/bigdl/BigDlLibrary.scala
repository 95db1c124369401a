package sparkdlbench.engine.bigdl

import java.lang.reflect.{InvocationTargetException, Method}
import java.util.{List => JavaList}
import scala.reflect.ClassTag
import sparkdlbench.common.ConfigurationException

/**
 * BigDL DLlib (2.4), reached by name: its jars are needed at run time only, and never by those who do not choose it. Modules are made
 * through `PythonBigDL`, the one entrance that BigDL keeps stable for other languages; they are computed with through
 * `AbstractModule` and `Tensor`. Members of single layers are touched where nothing else will do: dropout's mask, and
 * buffers that BigDL sizes for its first batch alone.
 */
private[bigdl] final class BigDlLibrary private (loader: ClassLoader) {
  import BigDlLibrary._

  private val entrance = staticMethod("utils.python.api.PythonBigDL", "ofFloat").invoke(null)
  private val numeric = module("tensor.TensorNumericMath$TensorNumeric$NumericFloat$")
  private val tensors = module("tensor.Tensor$")
  private val makeTensor = classOfName("tensor.Tensor$").getMethod(
    "apply",
    classOf[Object],
    classOf[Array[Int]],
    classOf[ClassTag[_]],
    classOfName("tensor.TensorNumericMath$TensorNumeric")
  )
  private val moduleClass: Class[_] = classOfName("nn.abstractnn.AbstractModule")
  private val tensorClass: Class[_] = classOfName("tensor.Tensor")
  private val activity: Class[_] = classOfName("nn.abstractnn.Activity")
  private val tables = module("utils.T$")
  private val makeTable = tables.getClass.getMethod("array", classOf[Object])
  private val mkl: Class[_] = loader.loadClass("com.intel.analytics.bigdl.mkl.MKL")
  private val pinned = ThreadLocal.withInitial[java.lang.Boolean](() => false)
  private[bigdl] val forward = moduleClass.getMethod("forward", activity)
  private[bigdl] val backward = moduleClass.getMethod("backward", activity, activity)
  private[bigdl] val training = moduleClass.getMethod("training")
  private[bigdl] val evaluating = moduleClass.getMethod("evaluate")
  private[bigdl] val compacted = moduleClass.getMethod("getParameters")
  private[bigdl] val parameters = moduleClass.getMethod("parameters")
  private[bigdl] val extras = moduleClass.getMethod("getExtraParameter")
  private[bigdl] val tableEntry = classOfName("utils.Table").getMethod("apply", classOf[Object])
  private[bigdl] val storage = tensorClass.getMethod("storage")
  private[bigdl] val storageOffset = tensorClass.getMethod("storageOffset")
  private[bigdl] val elements = tensorClass.getMethod("nElement")
  private[bigdl] val contiguous = tensorClass.getMethod("contiguous")
  private[bigdl] val add = tensorClass.getMethod("add", tensorClass)
  private[bigdl] val size = tensorClass.getMethod("size")
  private[bigdl] val resize = tensorClass.getMethod("resize", classOf[Array[Int]], classOf[Array[Int]])
  private[bigdl] val array = classOfName("tensor.Storage").getMethod("array")

  /** A module as BigDL's Python interface makes it: `create("ReLU", false)` calls `createReLU(false)`. */
  def create(what: String, arguments: Any*): BigDlModule = {
    val name = s"create$what"
    val method = entrance.getClass.getMethods
      .find(each => each.getName == name && each.getParameterCount == arguments.size)
      .getOrElse(throw unfit(s"PythonBigDL.$name with ${arguments.size} arguments is not there", null))
    new BigDlModule(this, calling(method, entrance, arguments.map(_.asInstanceOf[AnyRef]): _*))
  }

  /** A container that holds `parts` in this order, so that its compact parameter storage is theirs one after the other. */
  def sequential(parts: Seq[BigDlModule]): BigDlModule = {
    val container = create("Sequential")
    val add = container.value.getClass.getMethods.find(each => each.getName == "add" && each.getParameterCount == 1).get
    parts.foreach(part => calling(add, container.value, part.value))
    container
  }

  /** A tensor over `values`, row-major, same memory. */
  def tensor(values: Array[Float], shape: Seq[Int]): BigDlTensor =
    new BigDlTensor(this, calling(makeTensor, tensors, values, shape.toArray, ClassTag.Float, numeric))

  /** What a module reads: one tensor as it is, several as BigDL's table. */
  private[bigdl] def activityOf(tensors: Seq[BigDlTensor]): AnyRef = tensors match {
    case Seq(only) => only.value
    case several => calling(makeTable, tables, several.map(_.value).toArray[AnyRef])
  }

  /** One model replica computes with one thread: BigDL counts them for a process, its MKL for the thread that calls it too. */
  def useOneThread(): Unit = {
    val engine = module("utils.Engine$")
    calling(engine.getClass.getMethod("setNodeAndCore", classOf[Int], classOf[Int]), engine, Int.box(1), Int.box(1))
    ()
  }

  /** To be called by the thread that computes, before it does. */
  def pinThread(): Unit = if (!pinned.get) {
    calling(mkl.getMethod("setNumThreads", classOf[Int]), null, Int.box(1))
    pinned.set(true)
  }

  def facts: Map[String, String] = Map(
    "engine" -> "bigdl",
    "bigdl.jar" -> Option(classOfName("nn.Linear").getProtectionDomain.getCodeSource)
      .fold("unknown")(_.getLocation.getPath.replaceAll(".*/", "")),
    "blas" -> "mkl",
    "blas.library" -> "BigDL's own",
    "blas.threads" -> String.valueOf(calling(mkl.getMethod("getNumThreads"), null)),
    "device" -> "cpu"
  )

  /** BigDL goes on with matrix products in Java where its MKL cannot be loaded, and says so in a log alone. */
  private def requireMkl(): Unit =
    if (calling(mkl.getMethod("isMKLLoaded"), null) != java.lang.Boolean.TRUE)
      throw unfit("its MKL was not loaded, and without it BigDL would compute in Java", null)

  /** A list that BigDL's entrance takes. */
  def list(values: Seq[Int]): JavaList[Integer] = {
    val made = new java.util.ArrayList[Integer]
    values.foreach(value => made.add(Int.box(value)))
    made
  }

  private def classOfName(name: String): Class[_] =
    try loader.loadClass(s"$Package.$name")
    catch { case error: ClassNotFoundException => throw absent(error) }

  private def module(name: String): AnyRef = classOfName(name).getField("MODULE$").get(null)

  private def staticMethod(owner: String, name: String): Method = classOfName(owner).getMethod(name)

  private[bigdl] def calling(method: Method, target: AnyRef, arguments: AnyRef*): AnyRef =
    try method.invoke(target, arguments: _*)
    catch { case error: InvocationTargetException => throw error.getCause }
}

private[bigdl] object BigDlLibrary {
  private val Package = "com.intel.analytics.bigdl.dllib"

  /** Scala line that BigDL's jars are built for. */
  private val ScalaLine = "2.12"

  // Process-wide, because its threads and its MKL are.
  private var held: Option[BigDlLibrary] = None

  /** Why this Spark cannot have it. */
  def refusal: Option[String] = {
    val scala = util.Properties.versionNumberString
    if (scala.startsWith(ScalaLine + ".")) None
    else
      Some(
        s"engine.name=bigdl needs Spark 3.5: BigDL's jars are built for Scala $ScalaLine, and this Spark runs on Scala $scala. Use Spark 3.5, or " +
          "engine.name=libtorch."
      )
  }

  def load(): BigDlLibrary = synchronized {
    refusal.foreach(reason => throw new ConfigurationException(reason))
    held.getOrElse {
      val context = Thread.currentThread.getContextClassLoader
      val library =
        try new BigDlLibrary(if (context == null) getClass.getClassLoader else context)
        catch { case error @ (_: ReflectiveOperationException | _: LinkageError) => throw unfit(error.toString, error) }
      library.useOneThread()
      library.requireMkl()
      held = Some(library)
      library
    }
  }

  private def absent(cause: Throwable) = new ConfigurationException(
    "engine.name=bigdl needs BigDL's two jars on the class path of driver and executors, and they are not there. Bring them with " +
      "`sparkdl-bench peers install bigdl`; `sparkdl-bench run` then adds them itself, and a session of your own names them in spark.jars and in " +
      "spark.executor.extraClassPath. Or set engine.name=libtorch.",
    cause
  )

  private[bigdl] def unfit(what: String, cause: Throwable) = new ConfigurationException(
    s"BigDL on this class path cannot be used: $what. The engine 'bigdl' is made for bigdl-dllib-spark3 2.4.0 with bigdl-core 2.3.0, which " +
      "`sparkdl-bench peers install bigdl` brings. Put those in place, or set engine.name=libtorch.",
    cause
  )
}

/** A layer, or a container of layers. */
private[bigdl] final class BigDlModule(library: BigDlLibrary, private[bigdl] val value: AnyRef) {
  import library.calling

  def forward(inputs: Seq[BigDlTensor]): BigDlTensor =
    new BigDlTensor(library, calling(library.forward, value, library.activityOf(inputs)))

  /** After `forward` of the same inputs: the gradient of each; adds to the gradients of the parameters. */
  def backward(inputs: Seq[BigDlTensor], gradient: BigDlTensor): Seq[BigDlTensor] = {
    val found = calling(library.backward, value, library.activityOf(inputs), gradient.value)
    if (inputs.size == 1) Seq(new BigDlTensor(library, found))
    else inputs.indices.map(input => new BigDlTensor(library, calling(library.tableEntry, found, Int.box(input + 1))))
  }

  def train(): Unit = { calling(library.training, value); () }
  def evaluate(): Unit = { calling(library.evaluating, value); () }

  /** Its compact storage: all parameters one after the other in one array, and all gradients in another. */
  def compacted(): (Array[Float], Array[Float]) = calling(library.compacted, value) match {
    case (weights: AnyRef, gradients: AnyRef) =>
      (new BigDlTensor(library, weights).array, new BigDlTensor(library, gradients).array)
    case other => throw BigDlLibrary.unfit(s"getParameters gave $other", null)
  }

  /** Its parameter tensors, in the order of the storage. */
  def parameters: Seq[BigDlTensor] = calling(library.parameters, value) match {
    case (weights: Array[AnyRef], _) => weights.toSeq.map(new BigDlTensor(library, _))
    case other => throw BigDlLibrary.unfit(s"parameters gave $other", null)
  }

  /** What it learns beside its parameters: running statistics. */
  def extras: Seq[BigDlTensor] = calling(library.extras, value) match {
    case tensors: Array[AnyRef] => tensors.toSeq.map(new BigDlTensor(library, _))
    case other => throw BigDlLibrary.unfit(s"getExtraParameter gave $other", null)
  }

  /** Sets a variable of its Scala class. */
  def set(variable: String, to: AnyRef): Unit = {
    val name = s"${variable}_$$eq"
    val method = value.getClass.getMethods
      .find(_.getName == name)
      .getOrElse(throw BigDlLibrary.unfit(s"${value.getClass.getName} has no variable '$variable'", null))
    calling(method, value, to)
    ()
  }

  /** A tensor that it keeps to itself, whenever asked for; None while it has not made it. */
  def hidden(name: String): () => Option[BigDlTensor] = {
    val field =
      try value.getClass.getDeclaredField(name)
      catch {
        case error: NoSuchFieldException =>
          throw BigDlLibrary.unfit(s"${value.getClass.getName} has no field '$name'", error)
      }
    field.setAccessible(true)
    () => Option(field.get(value)).map(new BigDlTensor(library, _)).filter(_.length > 0)
  }
}

private[bigdl] final class BigDlTensor(library: BigDlLibrary, private[bigdl] val value: AnyRef) {
  import library.calling

  /** The array that its values lie in, not a copy. */
  def array: Array[Float] = calling(library.array, calling(library.storage, value)).asInstanceOf[Array[Float]]

  /** Index of its first value in `array`. */
  def offset: Int = calling(library.storageOffset, value).asInstanceOf[Int] - 1
  def length: Int = calling(library.elements, value).asInstanceOf[Int]
  def contiguous: BigDlTensor = new BigDlTensor(library, calling(library.contiguous, value))

  /** Adds the values of a tensor of the same shape to its own. */
  def add(other: BigDlTensor): Unit = { calling(library.add, value, other.value); () }

  /** Gives its first dimension this size; what it holds is lost. */
  def resizeRows(rows: Int): Unit = {
    val sizes = calling(library.size, value).asInstanceOf[Array[Int]]
    if (sizes.head != rows) { calling(library.resize, value, sizes.updated(0, rows), null); () }
  }
}
