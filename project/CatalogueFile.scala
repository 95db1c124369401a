import sbt._

/** Has the compiled classes write down all keys, variants and other names that they know, for the thin jar. */
object CatalogueFile {
  private val Main = "sparkdlbench.train.Catalogue"

  /**
   * @param classes
   *   what was compiled; as long as it is the same, the file is not made again
   * @param classpath
   *   that and what it needs
   */
  def generate(classes: Seq[File], classpath: Seq[File], target: File, cache: File, log: Logger): File = {
    val file = target / "sparkdlbench" / "catalogue.json"
    val made = FileFunction.cached(cache, FilesInfo.hash) { _ =>
      IO.createDirectory(file.getParentFile)
      val options =
        ForkOptions().withRunJVMOptions(Vector("-Xshare:auto", "-XX:TieredStopAtLevel=1") ++ JavaModules.opens)
      val status =
        Fork.java(options, Seq("-cp", classpath.mkString(java.io.File.pathSeparator), Main, file.getPath))
      if (status != 0) sys.error(s"$Main ended with exit status $status and wrote no $file")
      log.info(s"wrote $file")
      Set(file)
    }
    made(classes.flatMap(folder => (folder ** "*").get).filter(_.isFile).toSet)
    file
  }
}
