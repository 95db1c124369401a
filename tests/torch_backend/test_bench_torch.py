"""The suite `torch`: each of its kinds of measurement, as short as can be, in sessions of their own."""

from __future__ import annotations

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

from sparkdl_bench.bench.torch_launch import LaunchContestant
from sparkdl_bench.peers import CollectiveCase, TrainCase


@pytest.mark.parametrize(
    ("sync", "case", "secured", "backend"),
    [
        ("block-stream", CollectiveCase(1000, 2, False, 2, 5), "off", "sparkdl"),
        ("block-stream", CollectiveCase(20_000, 2, False, 2, 5, in_shared_memory=True), "off", "sparkdl"),
        ("block-stream", TrainCase(hidden=(16,), workers=2, warmup_steps=2, steps=5, rows=256), "crypto", "sparkdl"),
        ("gloo", TrainCase(hidden=(16,), workers=2, warmup_steps=2, steps=5, rows=256), "off", "gloo"),
    ],
)
def test_a_launch_is_measured(sync: str, case: CollectiveCase | TrainCase, secured: str, backend: str) -> None:
    contestant = LaunchContestant(sync, case, secured)
    contestant.prepare()
    trial = contestant.measure(300)
    assert len(trial.samples_ms) == 5
    assert all(sample > 0 for sample in trial.samples_ms)
    assert (trial.facts["backend"], trial.facts["sync"], trial.facts["encryption"]) == (backend, sync, secured)
    assert trial.facts.get("correct", True) is True
