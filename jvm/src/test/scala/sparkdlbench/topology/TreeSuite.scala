package sparkdlbench.topology

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Fp32
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.train.Combination
import sparkdlbench.transport.{ThreadGroup, TransportVariant}
import sparkdlbench.vector.FlatBuffer

class TreeSuite extends AnyFunSuite {

  test("the tree has the shape of Spark's own treeAggregate") {
    // The rounds of RDD.treeAggregate, as its source states them.
    def ofSpark(partitions: Int, depth: Int): Seq[Int] = {
      var count = partitions
      val scale = math.max(math.ceil(math.pow(count, 1.0 / depth)).toInt, 2)
      val levels = Seq.newBuilder[Int]
      while (count > scale + math.ceil(count.toDouble / scale)) {
        count /= scale
        levels += count
      }
      levels.result()
    }
    for (size <- 1 to 300; depth <- 1 to 4) assert(Tree.levels(size, depth) == ofSpark(size, depth))
    assert(Tree.levels(5, 2) == Nil)
    assert(Tree.levels(6, 2) == List(2))
    assert(Tree.levels(64, 2) == List(8))
    assert(Tree.levels(64, 3).size == 2)
    assert(Tree.levels(300, 1) == Nil)
  }

  test("every child has one parent, and parents' children are in order") {
    for (children <- 1 to 40; parents <- 1 to children) {
      val all = (0 until parents).map(Tree.children(_, parents, children))
      assert(all.flatten.sorted == (0 until children))
      for (parent <- 0 until parents) {
        assert(all(parent) == all(parent).sorted)
        assert(all(parent).forall(Tree.parent(_, parents) == parent))
      }
    }
  }

  test("no transport carries a topology of the other shape, and says which to use") {
    val plain = new Fp32
    for (transport <- Variants.all[TransportVariant]; topology <- Variants.all[Topology]) {
      val settings =
        RunKeys.resolve(Map("transport" -> transport.name, "topology" -> topology.name, "workers" -> "4"))
      val fits = transport match {
        case job: JobTransport => job.topologies.contains(topology.name)
        case _ => topology.amongRanks
      }
      if (fits) Combination.check(settings)
      else {
        val message = intercept[ConfigurationException](Combination.check(settings)).getMessage
        assert(message.contains(topology.name) && message.contains("sliced"), message)
      }
    }
    assert((new Tree).refuses(1, plain, plain).exists(_.contains("transport = shuffle")))
    intercept[ConfigurationException](
      ThreadGroup.run(2)((new Tree).bind(_, new FlatBuffer(4), new FlatBuffer(4), 4, plain, plain))
    )
  }

  test("codecs that leave values out are refused") {
    for (codec <- Seq("threshold", "topk")) {
      val settings = RunKeys.resolve(Map("transport" -> "shuffle", "topology" -> "tree", "codec" -> codec))
      assert(intercept[ConfigurationException](Combination.check(settings)).getMessage.contains(codec))
    }
  }
}
