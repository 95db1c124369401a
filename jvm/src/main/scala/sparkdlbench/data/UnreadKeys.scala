package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings, Variants}

/** Keys of data sets that a run sets and its own source does not read. */
private[sparkdlbench] object UnreadKeys {

  /**
   * Those that say how rows are read and kept, and not which they are: they may stand in a file or a session that serves several
   * sources. Benchmarks tell how many rows to test on whichever rows they train on. `data.path` and `data.test_path` are none of them: who
   * names files wants to train on what is in them.
   */
  private def harmless: Seq[Key[_]] = Seq(
    FileSource.splitBytes,
    RecordSource.cacheDir,
    DataKeys.memoryLimit,
    DataKeys.onError,
    Skipped.most,
    Synthetic.testRows
  )

  /** Throws a ConfigurationException where a key asks for other rows than the source gives. */
  def check(source: DataSource, settings: Settings): Unit = {
    val sources = Variants.all[DataSource]
    val passed = (source.keys ++ harmless).map(_.name).toSet
    sources.flatMap(_.keys).filterNot(key => passed(key.name)).sortBy(_.name).find(isSet(_, settings)).foreach { key =>
      val readers = sources.filter(_.keys.exists(_.name == key.name)).map(_.name)
      throw new ConfigurationException(
        s"Configuration key '${key.name}' is '${settings.entries(key.name)}', and the data source '${source.name}' does not read it: the run would have other " +
          s"rows than that asks for. Leave the key out, or set data.source to one that reads it: ${readers.mkString(", ")}."
      )
    }
  }

  private def isSet(key: Key[_], settings: Settings): Boolean =
    settings.entries.get(key.name).exists(value(key, _) != value(key, key.default))

  private def value(key: Key[_], text: String): Option[Any] = key.parse(text)
}
