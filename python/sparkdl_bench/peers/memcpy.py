"""One copy of the same bytes inside one process: no all-reduce on one machine can be faster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, Measurement
from sparkdl_bench.peers._base import PROGRAMS, thread_variables


@dataclass(frozen=True)
class MemoryCopy:
    """Needs NumPy alone, which `sparkdl-bench` itself has: no environment of its own."""

    name: str = "memcpy"
    doc: str = "The floor: one copy of the same bytes from buffer to buffer, one process"
    kinds: frozenset[str] = frozenset({"allreduce"})
    host_local_choices: tuple[bool, ...] = (False, True)
    workers: int = 2
    requirements: tuple[str, ...] = ()
    needs: str = ""
    on_spark: bool = False
    fixed: Mapping[str, str] = field(default_factory=dict)

    def unable(self) -> str | None:
        return None

    def remove(self, _directory: Path) -> bool:
        return False

    def install(self, _directory: Path) -> None:
        """Nothing to install."""

    def missing(self, _directory: Path) -> str | None:
        return None

    def check(self, case: Case) -> None:
        if case.kind not in self.kinds:
            raise ConfigurationError(f"The peer 'memcpy' copies memory; it cannot run a case of kind '{case.kind}'.")

    def run(self, case: Case, timeout_s: float, _directory: Path, out: Path | None = None) -> Measurement:
        self.check(case)
        variables = {"PYTHONPATH": str(PROGRAMS), **thread_variables(1)}
        from sparkdl_bench.peers._process import measure  # loads psutil

        return measure(self.name, [sys.executable, "-m", "measure.memory_copy"], case, timeout_s, variables, out)


PEER = MemoryCopy()
