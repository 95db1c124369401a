package sparkdlbench.transport.mpi

import sparkdlbench.OnOneLine
import sparkdlbench.common.ConfigurationException

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path}

class MpiProgramsSuite extends OnOneLine {
  private val folder = Files.createTempDirectory("mpi programs")
  private val python = folder.resolve("python")

  /** A program that does `lines` of a shell, and how often it has been started. */
  private def program(name: String, lines: String): (Path, () => Int) = {
    val (file, starts) = (folder.resolve(name), folder.resolve(s"$name.starts"))
    Files.write(starts, Array.emptyByteArray)
    Files.write(file, s"#!/bin/sh\necho once >> '$starts'\n$lines\n".getBytes(UTF_8))
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwx------"))
    (file, () => Files.readAllLines(starts).size)
  }

  private def refusal(check: => Any): String = intercept[ConfigurationException](check).getMessage

  test("a launcher is asked for its version, once where it is Open MPI 5") {
    val (good, starts) = program("good", "echo 'mpiexec (Open MPI) 5.0.11'")
    for (_ <- 0 until 3) assert(MpiPrograms.launcher(good.toString, python) == good)
    assert(starts() == 1)
    val (old, oldStarts) = program("old", "echo 'mpiexec (OpenRTE) 4.1.4'; echo 'Open MPI'")
    for (_ <- 0 until 2)
      assert(refusal(MpiPrograms.launcher(old.toString, python)).contains(s"$old is not Open MPI 5 or later"))
    assert(oldStarts() == 2, "it may have been replaced meanwhile")
  }

  test("a Python is asked for mpi4py, once where it has it") {
    val (good, starts) = program("with", "test \"$*\" = '-c import mpi4py'")
    for (_ <- 0 until 3) MpiPrograms.importsMpi4py(good)
    assert(starts() == 1)
    val (bare, _) = program("without", "echo Traceback >&2; echo \"No module named 'mpi4py'\" >&2; exit 1")
    val told = refusal(MpiPrograms.importsMpi4py(bare))
    assert(told.contains(s"$bare cannot import mpi4py") && told.contains("status 1 and says 'No module named"), told)
    assert(told.contains("sparkdl-bench peers install mpi"), told)
    val gone = folder.resolve("gone")
    assert(refusal(MpiPrograms.importsMpi4py(gone)).contains(s"$gone cannot be started"))
  }
}
