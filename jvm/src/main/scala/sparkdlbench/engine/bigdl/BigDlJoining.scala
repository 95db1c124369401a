package sparkdlbench.engine.bigdl

final class BigDlAdd extends BigDlLayerKind {
  def name = "add"
  // Not in place: others may read its inputs.
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlLayer(Seq(at.library.create("CAddTable", false)))
}

final class BigDlConcat extends BigDlLayerKind {
  def name = "concat"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer =
    new BigDlLayer(Seq(at.library.create("JoinTable", BigDlConcat.Channels, BigDlConcat.AsCounted)))
}

private object BigDlConcat {

  /** Dimensions count from 1, and rows are the first. */
  val Channels = 2

  /** BigDL adds no dimension for rows by itself. */
  val AsCounted = 0
}
