"""What peers have in common: an environment that is checked before use, and a program that runs in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, CollectiveCase, FitCase, Measurement, default_directory
from sparkdl_bench.peers._abilities import Abilities
from sparkdl_bench.peers._environment import Environment

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Launch:
    """One start of a peer's program: what it measures, and where its environment is."""

    case: Case
    environment: Environment
    directory: Path

    @property
    def python(self) -> Path:
        return self.environment.python(self.directory)

    @property
    def path(self) -> str:
        """PATH with the environment's programs first."""
        return f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"


@dataclass(frozen=True)
class EnvironmentPeer:
    """A peer whose program is `python -m measure.<program>` in `environment`.

    Subclasses refine `check`, `command` and `variables`.

    Attributes:
        kinds: the cases that it can run.
        program: module of `programs/measure` that measures.
        fit_program: the one for cases of kind `fit`, with what it can be told as `abilities`.
        fixed: keys of a run that it cannot be told, and why.
        tuning: what `tuned` changes, for people; empty: it has no tuned way, and refuses it.
        workers: processes or tasks of a run of which nobody says how many.
        on_spark: whether `fit_program` trains in Spark's tasks.
    """

    name: str
    doc: str
    kinds: frozenset[str]
    environment: Environment
    program: str
    host_local_choices: tuple[bool, ...] = (False,)
    fit_program: str = ""
    workers: int = 2
    abilities: Abilities | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    tuning: str = ""
    on_spark: bool = False

    @property
    def requirements(self) -> tuple[str, ...]:
        return self.environment.all_requirements

    @property
    def needs(self) -> str:
        return self.environment.needs

    def unable(self) -> str | None:
        reason = self.environment.unable()
        return f"The peer '{self.name}' cannot run on this host. {reason}" if reason else None

    def install(self, directory: Path) -> None:
        self.environment.install(directory)

    def remove(self, directory: Path) -> bool:
        return self.environment.remove(directory)

    def missing(self, directory: Path) -> str | None:
        if reason := self.unable():
            return reason
        if self.environment.is_ready(directory):
            return None
        option = "" if directory == default_directory() else f" --dir {directory}"
        return (
            f"The peer '{self.name}' has no environment under {directory} (or one with other versions). Make it with "
            f"`sparkdl-bench peers install {self.name}{option}` ({self.environment.disk_gb:g} GB)."
        )

    def run(self, case: Case, timeout_s: float, directory: Path, out: Path | None = None) -> Measurement:
        self.check(case)
        reason = self.missing(directory)
        if reason:
            raise ConfigurationError(reason)
        launch = Launch(case, self.environment, directory)
        variables = {"PYTHONPATH": str(PROGRAMS), **self.variables(launch)}
        from sparkdl_bench.peers._process import measure  # loads psutil, which a list of the peers needs not

        return measure(self.name, self.command(launch), case, timeout_s, variables, out)

    def check(self, case: Case) -> None:
        """Refuse a case that this peer cannot run, with the reason."""
        if isinstance(case, CollectiveCase) and case.host_local not in self.host_local_choices:
            raise ConfigurationError(
                f"The peer '{self.name}' has no {'shared memory' if case.host_local else 'socket'} channel between "
                f"processes of one host. Ask for {'sockets' if case.host_local else 'host-local'}."
            )
        if case.kind not in self.kinds:
            raise ConfigurationError(
                f"The peer '{self.name}' cannot run a case of kind '{case.kind}'; it runs "
                f"{', '.join(sorted(self.kinds))}."
            )

        if isinstance(case, FitCase):
            if self.abilities:
                self.abilities.check(self.name, case)
            if case.tuned and not self.tuning:
                raise ConfigurationError(
                    f"The peer '{self.name}' has one way to run alone, as its guide recommends it; leave out 'tuned'."
                )

    def command(self, launch: Launch) -> Sequence[str]:
        program = self.fit_program if launch.case.kind == "fit" else self.program
        return [str(launch.python), "-m", f"measure.{program}"]

    def variables(self, launch: Launch) -> Mapping[str, str]:
        """Environment variables on top of this process's own."""
        own = thread_variables(1 if isinstance(launch.case, CollectiveCase) else launch.case.threads)
        if self.environment.java:
            home = self.environment.java.home()
            own |= {"JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{launch.path}"}
        return own


def thread_variables(threads: int) -> dict[str, str]:
    """Pins every BLAS and OpenMP library to `threads`, before it is loaded."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: str(threads) for name in names}
