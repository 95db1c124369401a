package org.apache.spark.sparkdlbench

import org.apache.spark.io.CompressionCodec
import org.apache.spark.{SparkConf, SparkEnv}
import sparkdlbench.common.RunFailedException

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import scala.util.control.NonFatal

/**
 * Spark's own codecs of shuffles. Their native code lies in the folder for temporary files from its first use on, and the results of a run leave
 * through a shuffle: where somebody has tidied that folder away in the days of a training, or where it may not hold code, the driver's thread that
 * tells where they are would end without a word, and everybody wait for it. So codecs are used once before the training.
 */
object SparkCodecs {

  /** Throws a RunFailedException where one cannot be used in this process. */
  def load(): Unit = loaded

  private lazy val loaded: Unit = use(SparkEnv.get.conf)

  private[sparkdlbench] def use(conf: SparkConf): Unit =
    for (
      (key, default) <- Seq(
        "spark.io.compression.codec" -> "lz4",
        "spark.shuffle.mapStatus.compression.codec" -> "zstd"
      )
    ) {
      val name = conf.get(key, default)
      try tryOnce(CompressionCodec.createCodec(conf, name))
      catch {
        case error @ (_: LinkageError | NonFatal(_)) =>
          throw new RunFailedException(
            s"Spark's codec $name ($key) cannot be used in this process: $error. It brings native code, which it puts into java.io.tmpdir, " +
              s"'${System.getProperty("java.io.tmpdir")}': that folder must be there, be writable, and not be mounted with noexec. Set another one with " +
              "-Djava.io.tmpdir in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions.",
            error
          )
      }
    }

  private def tryOnce(codec: CompressionCodec): Unit = {
    val bytes = new ByteArrayOutputStream
    val out = codec.compressedOutputStream(bytes)
    out.write(1)
    out.close()
    val in = codec.compressedInputStream(new ByteArrayInputStream(bytes.toByteArray))
    try if (in.read() != 1) throw new IllegalStateException("it does not give back what it was given")
    finally in.close()
  }
}
