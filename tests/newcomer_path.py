"""Walks the newcomer's path: a fresh environment, the wheel, and no checkout. Prints the seconds of each step.

    make newcomer
    python tests/newcomer_path.py WHEEL [--natives DIR] [--spark 4.1.4] [--minutes 1]

Steps: environment, installation, natives (fetched, or found in --natives), first trained net by name, own DataFrame,
compare of the own DataFrame, a CSV by `try`, a run file by `init`, its run, predictions, report, doctor. Ends with 1
where a step fails, or the first net takes more than 90 s. The first net unpacks the native libraries into a
folder of its own, as on a machine that never trained; of it the lines of progress are shown as well. No test by its
name: it takes minutes and installs packages.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIRST_NET_S = 90.0
TIMEOUT_S = 1800

OWN_FRAME = """
import math
import sparkdl_bench
from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = sparkdl_bench.configure(SparkSession.builder.master("local[2]")).getOrCreate()
    rows = [(math.sin(n), math.cos(n), "near" if math.sin(n) + math.cos(n) > 0 else "far") for n in range(2000)]
    frame = spark.createDataFrame(rows, ["x", "y", "label"])
    data = {"table": frame, "label": "label", "label_names": "far,near"}
    fitted = sparkdl_bench.Trainer(model="mlp", data=data, workers=2, batch=32, epochs=5).fit(spark)
    print(fitted.summary["final"]["test_accuracy"])
    spark.stop()
"""
COMPARE = """
import math
import sparkdl_bench
from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = [(math.sin(n), math.cos(n), "near" if math.sin(n) + math.cos(n) > 0 else "far") for n in range(2000)]
    frame = spark.createDataFrame(rows, ["x", "y", "label"])
    found = sparkdl_bench.compare(frame, workers=[1, 2], minutes=MINUTES, spark=spark)
    print(found)
    print(found.report("from-python.html"))
    spark.stop()
"""


class Way:
    """The steps, each timed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.seconds: dict[str, float] = {}

    def step(self, name: str, *words: str | Path, progress: bool = False) -> None:
        start = time.monotonic()
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.seconds[name] = time.monotonic() - start
        print(f"{name:<36}{self.seconds[name]:8.1f} s", flush=True)
        if done.returncode != 0:
            sys.exit(f"{name} ended with exit status {done.returncode}:\n{done.stdout}\n{done.stderr}")
        for line in [*(done.stderr.strip().splitlines() if progress else ()), *done.stdout.strip().splitlines()[-4:]]:
            print(f"    {line}", flush=True)


def _without_ours(jars: Path, folder: Path) -> Path:
    """A folder of these jars but this project's own, which has to come from the wheel."""
    folder.mkdir()
    for jar in jars.resolve().glob("*.jar"):
        if not jar.name.startswith("sparkdl-bench-"):
            (folder / jar.name).symlink_to(jar)
    return folder


def walk(wheel: Path, natives: Path | None, spark: str, minutes: float, folder: Path) -> dict[str, float]:
    home = folder / "home"
    home.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARKDL_JARS", "SPARK_HOME")
    }
    environment["XDG_CACHE_HOME"] = str(home)
    if natives is not None:
        environment["SPARKDL_JARS"] = str(_without_ours(natives, folder / "natives"))
    way = Way(folder, environment)
    binaries = folder / "env" / "bin"
    python, ours = binaries / "python", binaries / "sparkdl-bench"
    way.step("environment", sys.executable, "-m", "venv", folder / "env")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    way.step("install the wheel", *pip, f"{wheel.resolve()}[report]", f"pyspark=={spark}")
    if natives is None:
        way.step("jars fetch", ours, "jars", "fetch")
    unpacked = f"engine.cache={folder / 'unpacked'}"
    way.step("first net: run digits-mlp", ours, "run", "digits-mlp", "--set", unpacked, progress=True)
    for name, text in (("own.py", OWN_FRAME), ("comparison.py", COMPARE.replace("MINUTES", str(minutes)))):
        (folder / name).write_text(text, encoding="utf-8")
    way.step("own DataFrame: Trainer", python, "own.py")
    way.step(f"own DataFrame: compare, {minutes:g} min", python, "comparison.py")
    # A column of words, as most people's files have.
    rows = "".join(
        f"{n % 7},{'paid' if n % 3 else 'free'},{n % 5},{'high' if n % 7 > 3 else 'low'}\n" for n in range(2000)
    )
    (folder / "rows.csv").write_text("a,plan,b,class\n" + rows, encoding="utf-8")
    way.step(f"try rows.csv, {minutes:g} min", ours, "try", "rows.csv", "--minutes", str(minutes), "-o", "tried")
    way.step("init", ours, "init", "mine", "--data", "rows.csv")
    way.step("run the file that init has written", ours, "run", "mine.toml", "--set", "epochs=2")
    (trained,) = folder.glob("results/*-mine/model")
    way.step("predict rows.csv", ours, "predict", trained, "rows.csv", "-o", "predicted.csv")
    way.step("report", ours, "report", "tried", "-o", "report.html")
    way.step("doctor", ours, "doctor", "mine.toml")
    way.step("data list", ours, "data", "list")
    return way.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--natives", type=Path, help="folder with the jars of native code, in place of `jars fetch`")
    parser.add_argument("--spark", default="4.1.4")
    parser.add_argument("--minutes", type=float, default=1.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparkdl-newcomer-") as folder:
        seconds = walk(given.wheel, given.natives, given.spark, given.minutes, Path(folder))
    first = seconds["first net: run digits-mlp"]
    print(f"first trained net {first:.1f} s after the installation; at most {FIRST_NET_S:.0f} s are allowed")
    sys.exit(first > FIRST_NET_S)


if __name__ == "__main__":
    main()
