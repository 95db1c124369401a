package sparkdlbench.fuzz

import org.apache.logging.log4j.Level
import org.scalatest.BeforeAndAfterAll
import sparkdlbench.OnOneLine
import sparkdlbench.data.ParserFuzzSuite

import java.nio.file.Files
import java.util.concurrent.{Callable, ExecutionException, Executors, TimeUnit}
import scala.jdk.CollectionConverters._
import scala.util.Random

/** The targets of `make fuzz` on the inputs of tests/fuzz, among them whatever has once broken a reader, and on some made of them from a seed. */
class FuzzReplaySuite extends OnOneLine with BeforeAndAfterAll {
  private val LimitSeconds = 30L
  private val Mutants = 100

  private var level: Level = _

  override def beforeAll(): Unit = level = FuzzTarget.quiet()
  override def afterAll(): Unit = FuzzTarget.loud(level)

  FuzzTargets.all.foreach { target =>
    test(target.name) {
      val executor = Executors.newSingleThreadExecutor()
      def check(what: String, input: Array[Byte]): Boolean =
        try executor.submit((() => target.check(input)): Callable[Boolean]).get(LimitSeconds, TimeUnit.SECONDS)
        catch {
          case broken: ExecutionException => throw new AssertionError(s"$what: ${broken.getCause}", broken.getCause)
          case late: Throwable => throw new AssertionError(s"$what took more than $LimitSeconds s", late)
        }
      try {
        val seeds = target.seeds
        assert(seeds.nonEmpty)
        seeds.zipWithIndex.foreach { case (seed, number) => assert(check(s"seed $number", seed), s"seed $number") }
        val kept = FuzzTargets.kept(target.name)
        kept.zipWithIndex.foreach { case (input, number) => check(s"input $number of tests/fuzz", input) }
        val all = (seeds ++ kept).toIndexedSeq
        (1 to Mutants).foreach { seed =>
          check(s"mutant $seed", ParserFuzzSuite.mutated(all(seed % all.size), new Random(seed.toLong)))
        }
      } finally executor.shutdownNow(): Unit
    }
  }

  test("every file of tests/fuzz is a target's") {
    val files = Files.list(FuzzTargets.folder)
    val names =
      try files.iterator.asScala.map(_.getFileName.toString).toSet
      finally files.close()
    assert(names.subsetOf(FuzzTargets.all.map(_.name + ".txt").toSet))
    assert(FuzzTargets.all.map(_.name).distinct.size >= 24)
    assert(FuzzTargets.bytes("""a\x00\\n\n""").toSeq == Seq('a', 0, '\\', 'n', '\n').map(_.toByte))
  }
}
