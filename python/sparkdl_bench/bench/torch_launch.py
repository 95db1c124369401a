"""Measures `torch.distributed` in Python workers of Spark: a launch in a session, and so a process, of its own.

`python -m sparkdl_bench.bench.torch_launch CASE.json OUT.jsonl` is that process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sparkdl_bench import helper_process, session
from sparkdl_bench.bench import encryption, torch_ranks
from sparkdl_bench.bench.spark_collective import channel_settings, session_options, spark_transport_missing
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.launching.driver import launch
from sparkdl_bench.peers import CollectiveCase, TrainCase
from sparkdl_bench.peers._process import measure
from sparkdl_bench.peers.programs.measure import _harness

GLOO = "gloo"
_SYNC, _PROPERTIES = "SPARKDL_TORCH_SYNC", "SPARKDL_TORCH_PROPERTIES"


@dataclass(frozen=True)
class LaunchContestant:
    """`torch.distributed` in the ranks of a launch, on a local-cluster of one executor with one core per rank.

    Attributes:
        sync: as in `sparkdl_bench.launch`: a transport of the backend `sparkdl`, over sockets, or `gloo`.
        case: what each rank does. Wrong sums fail the trial.
        encryption: of the session, one of `encryption.CHOICES`; gloo's own connections know nothing of it.
    """

    sync: str
    case: CollectiveCase | TrainCase
    encryption: str = encryption.OFF

    @property
    def name(self) -> str:
        if isinstance(self.case, CollectiveCase):
            of = f"x{self.case.elements}" + ("-shared" if self.case.in_shared_memory else "")
        else:
            of = f"-ddp-{self.case.model}"
        secured = "" if self.encryption == encryption.OFF else f"-{self.encryption}"
        return f"torch-{self.sync}{secured}-{self.case.workers}{of}"

    def prepare(self) -> None:
        reason = torch_missing() or (spark_transport_missing(self.sync) if self.sync != GLOO else None)
        reason = reason or encryption.missing(self.encryption, pyspark.__version__)
        if reason:
            raise ConfigurationError(reason)

    def measure(self, timeout_s: float) -> Trial:
        command = [sys.executable, "-m", "sparkdl_bench.bench.torch_launch"]
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-torch-keys-") as folder:
            # By the environment: other users of the host can read command lines.
            properties = json.dumps(encryption.properties(self.encryption, Path(folder)))
            taken = measure(self.name, command, self.case, timeout_s, {_SYNC: self.sync, _PROPERTIES: properties})
        if not taken.facts.get("correct", True):
            raise RunFailedError(f"{self.name} gave wrong sums.")
        facts = {**taken.facts, "sync": self.sync, "encryption": self.encryption}
        return Trial([sample.ms for sample in taken.samples], 1, facts)


def torch_missing() -> str | None:
    """Why this Python cannot measure PyTorch; None when it can."""
    if importlib.util.find_spec("torch") is not None:
        return None
    return (
        f"PyTorch is not installed in {sys.executable}, which the ranks of this measurement run in. `make bench-torch` "
        "makes an environment with it; elsewhere `pip install 'sparkdl-bench[torch]'`."
    )


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sync = os.environ[_SYNC]
    secured: dict[str, str] = json.loads(os.environ[_PROPERTIES])
    _, properties = session.start_jvm(session_options(case["workers"], secured))
    with (
        session.open_session(properties) as spark,
        tempfile.TemporaryDirectory(prefix="sparkdl-bench-torch-") as folder,
    ):
        answers = launch(
            torch_ranks.PROGRAMS[case["kind"]],
            spark,
            case["workers"],
            sync,
            (case,),
            settings=channel_settings(sync, host_local=False) if sync != GLOO else None,
            results=folder,
        )
    samples_ms, facts = answers[0]
    _harness.write(Path(sys.argv[2]), samples_ms, facts)


if __name__ == "__main__":
    helper_process.run_program(main)
