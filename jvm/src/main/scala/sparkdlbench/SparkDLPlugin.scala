package sparkdlbench
import sparkdlbench.train.RankReport
object SparkDLPlugin { def report(r: RankReport): Unit = () }
