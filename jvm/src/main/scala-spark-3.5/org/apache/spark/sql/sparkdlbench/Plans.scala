package org.apache.spark.sql.sparkdlbench

import org.apache.spark.sql.{DataFrame, Dataset}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** DataFrames as plans and back, which Spark keeps to its own package. */
private[spark] object Plans {
  def of(frame: DataFrame): LogicalPlan = frame.queryExecution.analyzed

  /** A frame of this plan, in the session of `like`. */
  def frame(like: DataFrame, plan: LogicalPlan): DataFrame = Dataset.ofRows(like.sparkSession, plan)
}
