package sparkdlbench

import org.scalatest.Tag

/**
 * A test of 10 seconds and more whose subject a shorter one of the suite has too, or whose subject seldom changes. CI runs these
 * after all others, and on a machine that is too slow it leaves them out: `.ci/run`, `project/run_tests.py --long`.
 */
object TakesLong extends Tag("sparkdlbench.TakesLong")
