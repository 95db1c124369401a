package sparkdlbench.data

import sparkdlbench.config.Settings

import java.nio.{FloatBuffer, LongBuffer}

/** What benchmarks ask of rows that were loaded. */
object LoadedRows {

  /** Touches some rows of each set: the same number in every executor that holds the same rows. */
  def checksum(sets: DataSets): Double = Seq(sets.train, sets.test).map { store =>
    val (row, label) = (FloatBuffer.allocate(store.width), LongBuffer.allocate(store.labels))
    (0 until store.rows by math.max(1, store.rows / 100)).map { id =>
      store.read(id, 0, row, label)
      row.array.map(_.toDouble).sum + label.get(0)
    }.sum
  }.sum

  /** The folder of the decoded rows, where the source has one. */
  def decodedDir(settings: Settings): Option[String] =
    settings.entries.get(RecordSource.decodedDir.name).filter(_.nonEmpty)
}
