"""Programs that connect to a run's ports and are no part of it: the training ends with the undisturbed bits.

All transports and manners: `make soak` (`benchmarks/faults`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faults import records
from suites.faults import command

# The same on every Spark line: the ports are served by Spark's transport and ours alike, which the suites of both test.
pytestmark = pytest.mark.on_one_line


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("block-stream-authenticated", "strangers-noise"),
        pytest.param("tcp-ring", "strangers-half", marks=pytest.mark.campaign),
    ],
)
@pytest.mark.long
def test_a_training_among_strangers_ends_with_the_undisturbed_bits(tmp_path: Path, way: str, kind: str) -> None:
    words = ["--faults", "1", "--kinds", kind, "--ways", way, "--results", str(tmp_path)]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    (file,) = tmp_path.rglob("*.jsonl")
    (fault,) = records.load(file).faults
    assert (fault.outcome, fault.left) == ("same bits", [])
    assert not fault.moment.startswith("all the time, 0 "), "strangers came"
