package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite

import java.util.SplittableRandom

class MemoryPlanSuite extends AnyFunSuite {
  private def layer(inputs: Int*) =
    PlannedLayer(
      inputs,
      hasParameters = true,
      worksInPlace = false,
      backwardReadsOutput = false,
      keepsValues = false,
      passesGradient = false
    )
  private def activation(input: Int) =
    layer(input).copy(hasParameters = false, worksInPlace = true, backwardReadsOutput = true)
  private def sum(one: Int, other: Int) = layer(one, other).copy(hasParameters = false, passesGradient = true)
  private def plan(widths: Long*)(layers: PlannedLayer*) = new MemoryPlan(layers.toVector, widths.toVector)

  test("an activation shares the memory of what it overwrites, but not of another activation or the model's input") {
    val made = plan(4, 8, 8, 8, 2)(layer(0), activation(1), activation(2), layer(3))
    assert(made.inPlace == Seq(false, true, false, false))
    assert(made.memory == Seq(0, 2, 2, 3, 4))
    assert(plan(4, 4, 2)(activation(0), layer(1)).inPlace.head == false)
  }

  test("what is read backwards is not overwritten through a layer that keeps its values either") {
    def flatten(input: Int) = layer(input).copy(hasParameters = false, worksInPlace = true, keepsValues = true)
    val read = plan(4, 8, 8, 8, 8, 2)(layer(0), activation(1), flatten(2), activation(3), layer(4))
    assert(read.inPlace == Seq(false, true, true, false, false))
    val unread = plan(4, 8, 8, 8, 2)(layer(0), flatten(1), activation(2), layer(3))
    assert(unread.inPlace == Seq(false, true, true, false))
  }

  test("a value that two layers read is not overwritten") {
    val made = plan(4, 8, 8, 8)(layer(0), activation(1), layer(1, 2))
    assert(!made.inPlace(1))
  }

  test("gradients take turns in arenas that are as large as the largest that lies in them") {
    val chain = plan(4, 100, 10, 200, 3)(layer(0), layer(1), layer(2), layer(3))
    assert(chain.gradientArena(0).isEmpty && chain.gradientArena(4).isEmpty)
    assert(chain.arenas.size == 2)
    assert((1 to 3).forall(value => chain.arenas(chain.gradientArena(value).get) >= Seq(4, 100, 10, 200, 3)(value)))
    assert(chain.gradientArena(3) == chain.gradientArena(1) && chain.gradientArena(2) != chain.gradientArena(3))
  }

  test("what several layers read gets one gradient written and the others added") {
    val made = plan(4, 8, 8, 8)(layer(0), layer(1), layer(1, 2))
    assert(made.targets(2).map(_.isDefined) == Seq(true, true))
    assert(made.targets(2)(0).contains(MemoryPlan.Direct))
    assert(made.targets(1).head.exists {
      case MemoryPlan.Added(arena) => !made.gradientArena(1).contains(arena); case _ => false
    })
    assert(made.targets(0).head.isEmpty)
  }

  test("a layer that reads a value twice writes it once and adds once, to different memory") {
    val made = plan(4, 8, 8)(layer(0), layer(1, 1))
    assert(made.targets(1)(0).contains(MemoryPlan.Direct))
    assert(made.targets(1)(1).exists {
      case MemoryPlan.Added(arena) => !made.gradientArena(1).contains(arena); case _ => false
    })
  }

  test("nothing below the first parameters gets a gradient") {
    val made = plan(4, 4, 4, 2)(layer(0).copy(hasParameters = false), layer(1), layer(2))
    assert(made.needsGradient == Seq(false, false, true, true))
    assert(made.targets(0).head.isEmpty && made.targets(1).head.isEmpty && made.targets(2).head.isDefined)
  }

  test("a residual block's gradients share one arena: the sum writes none of them") {
    val made = plan(4, 8, 8, 8, 8, 2)(layer(0), layer(1), layer(2), sum(3, 1), layer(4))
    assert(made.targets(3) == Seq(Some(MemoryPlan.Shared), Some(MemoryPlan.Shared)))
    assert(Set(1, 3, 4).map(made.gradientArena).size == 1 && made.gradientArena(2) != made.gradientArena(1))
    assert(made.targets(1).head.exists {
      case MemoryPlan.Added(arena) => !made.gradientArena(1).contains(arena); case _ => false
    })
  }

  test("a sum's gradients lie apart where one is written while the other is still to be read") {
    // An activation overwrites the gradient that the shortcut's layer reads after it.
    val activated = plan(4, 8, 8, 8, 8, 2)(layer(0), layer(0), activation(2), sum(1, 3), layer(4))
    assert(activated.inPlace(2))
    assert(activated.targets(3) == Seq(Some(MemoryPlan.Shared), Some(MemoryPlan.Direct)))
    // A layer adds to the shortcut's gradient before the main path's is read.
    val added = plan(4, 8, 8, 8, 8, 16, 2)(layer(0), layer(1), layer(1), sum(2, 1), layer(3, 4), layer(5))
    assert(added.targets(3) == Seq(Some(MemoryPlan.Shared), Some(MemoryPlan.Direct)))
    // The model's result has memory of its own for its gradient.
    assert(plan(4, 8, 8, 8)(layer(0), layer(1), sum(2, 1)).targets(2) == Seq.fill(2)(Some(MemoryPlan.Direct)))
  }

  test("each layer of 2,000 random graphs reads its whole gradient, whatever lies in the arenas before") {
    var shared = 0
    for (seed <- 1 to 2000) {
      val random = new SplittableRandom(seed.toLong)
      def earlier(value: Int): Int = value - random.nextInt(math.min(3, value + 1))
      val drawn = (0 until 3 + random.nextInt(9)).map { value =>
        random.nextInt(6) match {
          case 0 => activation(value)
          case 1 | 2 => sum(value, earlier(value))
          case 3 => layer(value, earlier(value))
          case 4 => activation(value).copy(backwardReadsOutput = false, keepsValues = true)
          case _ => layer(earlier(value))
        }
      }
      // The last layer reads what no other does.
      val layers = drawn :+ layer((1 to drawn.size).filterNot(drawn.flatMap(_.inputs).contains): _*)
      val made = new MemoryPlan(layers, Vector.fill(layers.size + 1)(4L))
      shared += made.targets.flatten.count(_.contains(MemoryPlan.Shared))
      assertGradients(layers, made, clue = s"seed $seed")
    }
    assert(shared > 2000)
  }

  /** Runs the backward pass over the plan's arenas, of one number each, beside one whose gradients have memory of their own. */
  private def assertGradients(layers: IndexedSeq[PlannedLayer], made: MemoryPlan, clue: String): Unit = {
    def factor(layer: Int, input: Int): Long =
      if (layers(layer).passesGradient || layers(layer).keepsValues) 1L else 3L + layer + input
    val expected = new Array[Long](layers.size + 1)
    val arenas = Array.fill(made.arenas.size)(-1000L)
    var result = 1L
    expected(layers.size) = 1L
    def read(value: Int): Long = made.gradientArena(value).fold(result)(arenas(_))
    def write(value: Int, gradient: Long): Unit = made.gradientArena(value) match {
      case Some(arena) => arenas(arena) = gradient
      case None => result = gradient
    }
    for (layer <- layers.indices.reverse) {
      val inputs = layers(layer).inputs.zipWithIndex
      inputs.foreach { case (value, input) => expected(value) += expected(layer + 1) * factor(layer, input) }
      if (made.needsGradient(layer + 1)) {
        assert(read(layer + 1) == expected(layer + 1), s"layer $layer, $clue")
        val written = made.targets(layer).zip(inputs)
        written.foreach {
          case (Some(MemoryPlan.Direct), (value, input)) => write(value, read(layer + 1) * factor(layer, input))
          case (Some(MemoryPlan.Added(arena)), (_, input)) => arenas(arena) = read(layer + 1) * factor(layer, input)
          case (Some(MemoryPlan.Shared), (value, _)) =>
            assert(made.gradientArena(value) == made.gradientArena(layer + 1))
          case (None, _) => ()
        }
        written.collect { case (Some(MemoryPlan.Added(arena)), (value, _)) =>
          write(value, read(value) + arenas(arena))
        }
      }
    }
  }
}
