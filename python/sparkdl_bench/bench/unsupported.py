"""Which combinations of ours have nothing to measure, found before the first one runs: no sweep is lost to one.

`python -m sparkdl_bench.bench.unsupported SETTINGS.json` in a process of its own, which starts a JVM without a Spark
context; the reasons go to standard output as a JSON list.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkdl_bench import helper_process, session


def reasons(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """For each combination why it has nothing to measure; empty where it has.

    Raises:
        ConfigurationError: a name or a value is none.
    """
    if not settings:
        return []
    found: list[str] = helper_process.ask(
        "sparkdl_bench.bench.unsupported", [dict(each) for each in settings], what="combinations"
    )
    return found


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryFile() as log:
        api, _ = session.start_jvm({"spark.master": "local"}, log)
        found = [api.net_refusal(each) for each in settings]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    helper_process.run_program(main)
