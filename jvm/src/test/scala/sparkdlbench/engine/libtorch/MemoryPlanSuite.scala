package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite

class MemoryPlanSuite extends AnyFunSuite {
  private def layer(inputs: Int*) =
    PlannedLayer(inputs, hasParameters = true, worksInPlace = false, backwardReadsOutput = false, keepsValues = false)
  private def activation(input: Int) =
    layer(input).copy(hasParameters = false, worksInPlace = true, backwardReadsOutput = true)
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
}
