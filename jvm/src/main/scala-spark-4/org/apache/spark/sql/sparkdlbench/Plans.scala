package org.apache.spark.sql.sparkdlbench

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.Dataset

/** DataFrames as plans and back, which Spark keeps to its own package. */
private[spark] object Plans {
  def of(frame: DataFrame): LogicalPlan = classic(frame).queryExecution.analyzed

  /** A frame of this plan, in the session of `like`. */
  def frame(like: DataFrame, plan: LogicalPlan): DataFrame = Dataset.ofRows(classic(like).sparkSession, plan)

  private def classic(frame: DataFrame) = frame.asInstanceOf[Dataset[_]]
}
