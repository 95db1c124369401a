package sparkdlbench.topology

import sparkdlbench.config.Variant

/** Along which edges values travel. */
trait Topology extends Variant
