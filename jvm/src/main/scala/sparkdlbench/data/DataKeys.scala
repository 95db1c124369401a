package sparkdlbench.data

import sparkdlbench.config.Key

/** Keys that several data sources read. */
object DataKeys {
  val path: Key[String] =
    Key.text("data.path", "", "Folder of the data set: a path, or a URI of any file system that Hadoop knows")
  val classes: Key[Int] = Key.int("data.classes", "10", 2, "Number of classes; labels are 0 until this")
}
