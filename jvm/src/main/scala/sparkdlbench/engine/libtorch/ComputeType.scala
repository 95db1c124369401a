package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}

/** In which numbers convolutions and linear layers are computed; everything between them is fp32. */
private[libtorch] object ComputeType {
  val key: Key[String] = Key.choice(
    "engine.compute",
    "fp32",
    Seq("fp32", "bf16"),
    "Numbers that convolutions and linear layers compute in; bf16 needs a CPU that has it, sums stay fp32"
  )

  /** Flags under which Linux lists products of bf16 numbers: AVX-512 and AMX on x86-64, and ARM's. */
  private val flags = Set("avx512_bf16", "amx_bf16", "bf16")
  private val cpuInfo = Paths.get("/proc/cpuinfo")

  /** True for bf16; a ConfigurationException where this host's CPU has none. */
  def isBf16(settings: Settings): Boolean = settings(key) == "bf16" && {
    if (!supports(cpuInfo))
      throw new ConfigurationException(
        s"engine.compute=bf16 was asked for, and this host's CPU has no instructions for it ($cpuInfo lists none of " +
          s"${flags.toSeq.sorted.mkString(", ")}): it would be slower than fp32. Set engine.compute=fp32, or run on hosts that have them."
      )
    true
  }

  private[libtorch] def supports(file: Path): Boolean =
    try new String(Files.readAllBytes(file), UTF_8).split("\\s+").exists(flags.contains)
    catch { case _: IOException => false }

  /** A copy of the values in bf16. */
  def rounded(values: Tensor): Tensor = values.to(torch.ScalarType.BFloat16)
}
