package sparkdlbench.bench

import org.apache.spark.SparkContext
import sparkdlbench.common.Json
import sparkdlbench.config.RunKeys
import sparkdlbench.data.DataSetStatistics
import sparkdlbench.results.RunFolder

/** What is in a data set, by itself: `data.DataSetStatistics`, kept as `statistics.json` in a results folder of its own. */
object DataStatistics {
  val File = "statistics.json"

  /** What came out, as JSON, with `folder`. */
  def run(sc: SparkContext, raw: Map[String, String]): String = {
    val settings = RunKeys.resolve(raw)
    val found = DataSetStatistics.of(sc, settings)
    val folder = RunFolder.create(settings(RunKeys.results), s"${settings(RunKeys.name)}-statistics")
    val result = Json.fields("schema" -> RunFolder.Schema) ++ found ++ Json.fields("folder" -> folder.path.toString)
    try folder.write(File, Json.line(result))
    finally folder.close()
    Json.line(result)
  }
}
