"""Small programs of this package in processes of their own: a JVM that one of them starts is gone with it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.peers._environment import tail

_TIMEOUT_S = 120.0


def ask(module: str, question: Any, what: str, failed: str = "") -> Any:
    """What `python -m MODULE QUESTION.json` prints as its last line, read as JSON.

    Args:
        module: one of this package.
        question: what the file holds, as JSON.
        what: is checked, for the message of a program that does not end.
        failed: begins the message of one that fails; its own words follow.

    Raises:
        ConfigurationError: the program failed or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-check-") as folder:
        file = Path(folder, "question.json")
        file.write_text(json.dumps(question), encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603 (the command is ours)
                [sys.executable, "-m", module, str(file)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationError(f"The check of the {what} did not end within {_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise ConfigurationError(failed + tail(done.stderr))
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_program(main: Callable[[], None]) -> None:
    """Runs a program; an error of this package is told in its own words and ends it with its own status."""
    try:
        main()
    except SparkDLError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(problem.exit_code)
