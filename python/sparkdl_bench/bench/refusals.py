"""Which combinations of ours have nothing to measure, found before the first one runs: no sweep is lost to one.

`python -m sparkdl_bench.bench.refusals SETTINGS.json` in a process of its own, which starts a JVM without a Spark
context; the reasons go to standard output as a JSON list.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkdl_bench import _jvm, session
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.peers._environment import tail

_TIMEOUT_S = 120.0


def reasons(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """For each combination why it has nothing to measure; empty where it has.

    Raises:
        ConfigurationError: a name or a value is none.
    """
    if not settings:
        return []
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-check-") as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps([dict(each) for each in settings]), encoding="utf-8")
        command = [sys.executable, "-m", "sparkdl_bench.bench.refusals", str(file)]
        try:
            done = subprocess.run(  # noqa: S603 (the command is ours)
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationError(f"The check of the combinations did not end within {_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise ConfigurationError(tail(done.stderr))
    found: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.NamedTemporaryFile(prefix="sparkdl-bench-", suffix=".log") as log:
        session.start_jvm({"spark.master": "local"}, log.file)
        bench = _jvm.running().sparkdlbench.bench.NetBench  # what measures them says what it cannot
        found = _jvm.translated(lambda: [str(bench.refusal(each)) for each in settings])
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    try:
        main()
    except SparkDLError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(problem.exit_code)
