package org.apache.spark.sparkdlbench

import org.apache.spark.SparkConf
import org.apache.spark.io.CompressionCodec
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException

import java.io.{InputStream, OutputStream}

class SparkCodecsSuite extends AnyFunSuite {
  private def conf(values: (String, String)*) = new SparkConf(false).setAll(values)

  private def refused(values: (String, String)*): String =
    intercept[RunFailedException](SparkCodecs.use(conf(values: _*))).getMessage

  test("the codecs of a session are used, whatever they are") {
    SparkCodecs.use(conf())
    SparkCodecs.use(
      conf("spark.io.compression.codec" -> "snappy", "spark.shuffle.mapStatus.compression.codec" -> "lzf")
    )
  }

  test("one whose native code cannot be loaded ends the run before it trains, with the folder's name") {
    val name = classOf[SparkCodecsSuite.WithoutCode].getName
    for (key <- Seq("spark.io.compression.codec", "spark.shuffle.mapStatus.compression.codec")) {
      val text = refused(key -> name)
      assert(
        text.contains(s"codec $name ($key)") && text.contains("Cannot unpack") && text.contains(
          System.getProperty("java.io.tmpdir")
        )
      )
    }
  }

  test("one that does not give back what it was given, and one that is none, are refused, too") {
    assert(
      refused("spark.io.compression.codec" -> classOf[SparkCodecsSuite.Forgetful].getName)
        .contains("does not give back")
    )
    assert(refused("spark.io.compression.codec" -> "no-such").contains("codec no-such"))
  }
}

object SparkCodecsSuite {

  /** As zstd where the folder for temporary files is gone. */
  class WithoutCode(conf: SparkConf) extends CompressionCodec {
    override def compressedOutputStream(s: OutputStream): OutputStream =
      throw new ExceptionInInitializerError("Cannot unpack libzstd")
    override def compressedInputStream(s: InputStream): InputStream = s
  }

  class Forgetful(conf: SparkConf) extends CompressionCodec {
    override def compressedOutputStream(s: OutputStream): OutputStream = OutputStream.nullOutputStream()
    override def compressedInputStream(s: InputStream): InputStream = s
  }
}
