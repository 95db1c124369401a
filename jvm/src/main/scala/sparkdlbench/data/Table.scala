package sparkdlbench.data

import org.apache.spark.SparkContext
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

/**
 * A table or view of the session (of its catalog, or temporary: `global_temp.name`), so any DataFrame. Its rows have no order that
 * another look would repeat: they are decoded once for each run, and `data.decoded_dir` of run.json says where; a run that resumes, or
 * is compared with this one, names that folder. What was decoded has a digest (`DataFacts.rowsIdentity`), by which other rows are known.
 */
final class Table extends DataSource with RecordSource {
  def name = "table"
  def doc = "A table or view of the Spark session, so any DataFrame; decoded once for each run"
  override def givesNumbers: Boolean = true
  def ownKeys: Seq[Key[_]] = Seq(Table.table, Table.testTable) ++ FrameRows.keys

  def plan(settings: Settings, spark: SparkContext): RecordPlan = {
    val session = FrameRows.session()
    def frame(key: Key[String]) =
      FrameRows.reading(s"The table '${settings(key)}' (`${key.name}`)")(session.table(settings(key)))
    if (settings(Table.table).isEmpty)
      throw new ConfigurationException(
        "Configuration key 'data.table' is not set. Set it to the name of a table or view of the session; a DataFrame gets a name by " +
          "createOrReplaceGlobalTempView(\"rows\"), and is then global_temp.rows."
      )
    val test = if (settings(Table.testTable).isEmpty) None else Some(frame(Table.testTable))
    FrameRows.plan(frame(Table.table), test, None, Table.shown(settings(Table.table)), fromFiles = false, settings)
  }
}

private object Table {

  /** Python gives each DataFrame a view for the length of the call, whose name says nothing. */
  def shown(name: String): String = if (name.matches(""".*\bsparkdl_[0-9a-f]{32}""")) "DataFrame" else s"table $name"

  val table: Key[String] = Key.text("data.table", "", "A table or view of the Spark session, temporary or not")
  val testTable: Key[String] =
    Key.text(
      "data.test_table",
      "",
      "The table or view to test on; empty: one of every data.test_every rows of data.table tests"
    )
}
