"""`sparkdl_bench.torch.Synchronizer` in launches, in-band and by gloo, beside what one process computes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch
from pyspark import cloudpickle
from torch import nn

import sparkdl_bench
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import Synchronizer, synchronizer

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS, RATE = 12, 0.1


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def flat(model: nn.Module) -> list[float]:
    return [float(each) for parameter in model.parameters() for each in parameter.detach().flatten()]


def move(model: nn.Module, rank: int, step: int) -> None:
    """One step of the rank's own SGD."""
    rows = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * rank + step))
    model.zero_grad()
    model(rows).square().mean().backward()
    with torch.no_grad():
        for each in model.parameters():
            each -= RATE * each.grad


def trained(algorithm: str, **options: Any) -> list[float]:
    import torch.distributed as dist

    rank = dist.get_rank()
    model = net(rank)  # it starts from rank 0's
    with Synchronizer(model, algorithm, **options) as together:
        for step in range(STEPS):
            move(model, rank, step)
            together.step()
    return flat(model)


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def in_one_process(algorithm: str, tau: int, alpha: float = 0.45) -> list[float]:
    """What two ranks must come to."""
    models, center = [net(0), net(0)], vector(net(0))
    for step in range(STEPS):
        for rank, model in enumerate(models):
            move(model, rank, step)
        if (step + 1) % tau == 0:
            own = [vector(model) for model in models]
            if algorithm == "easgd":
                pulls = [alpha * (each - center) for each in own]
                own = [each - pull for each, pull in zip(own, pulls, strict=True)]
                center += sum(pulls)
            else:
                own = [sum(own) / 2] * 2
            for model, each in zip(models, own, strict=True):
                nn.utils.vector_to_parameters(each.clone(), model.parameters())
    end = center if algorithm == "easgd" else (vector(models[0]) + vector(models[1])) / 2
    return [float(each) for each in end]


@pytest.mark.parametrize("sync", ["auto", "gloo"])
@pytest.mark.parametrize(
    ("algorithm", "options", "tau"),
    [
        ("local-sgd", {}, 8),
        ("local-sgd", {"tau": 1}, 1),
        ("easgd", {"tau": 3}, 3),
        ("gossip", {}, 1),
        ("gossip", {"tau": 5, "neighbours": "random"}, 5),
    ],
)
def test_it_does_what_the_algorithm_says(
    spark: SparkSession, tmp_path: Path, sync: str, algorithm: str, options: dict[str, Any], tau: int
) -> None:
    found = sparkdl_bench.launch(trained, spark, sync=sync, args=(algorithm,), kwargs=options, results=tmp_path)
    assert found[0] == found[1]
    assert found[0] == pytest.approx(in_one_process(algorithm, tau), abs=1e-6)


def pulled(steps: tuple[int, ...], tau: int) -> tuple[list[float], int]:
    """Moves that do not depend on the weights: whatever arrives when, their sum is the same."""
    import threading

    import torch.distributed as dist

    rank = dist.get_rank()
    model = nn.Linear(3, 2, bias=False)
    nn.init.ones_(model.weight)
    with Synchronizer(model, "downpour", tau=tau) as together:
        for _ in range(steps[rank]):
            with torch.no_grad():
                model.weight -= 0.5 * (rank + 1)
            together.step()
        together.finish()  # and goes on from there
        with torch.no_grad():
            model.weight += 1
    return flat(model), sum(thread.name.startswith("sparkdl-downpour") for thread in threading.enumerate())


@pytest.mark.parametrize("sync", ["auto", "gloo"])
@pytest.mark.parametrize(("steps", "tau"), [((20, 20), 1), ((31, 4), 3), ((0, 5), 1)])
def test_downpour_loses_no_move_and_waits_for_nobody(
    spark: SparkSession, tmp_path: Path, sync: str, steps: tuple[int, int], tau: int
) -> None:
    found = sparkdl_bench.launch(pulled, spark, sync=sync, args=(steps, tau), results=tmp_path)
    expected = 1 - 0.5 * (steps[0] + 2 * steps[1]) / 2 + 1
    assert found == [(pytest.approx([expected] * 6, abs=1e-4), 0)] * 2


def test_downpour_trains(spark: SparkSession, tmp_path: Path) -> None:
    found = sparkdl_bench.launch(trained, spark, args=("downpour",), results=tmp_path)
    assert found[0] == found[1]
    end = net(0)
    nn.utils.vector_to_parameters(torch.tensor(found[0]), end.parameters())
    rows = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
    assert end(rows).square().mean() < net(0)(rows).square().mean()


def buffers() -> list[float]:
    import torch.distributed as dist

    model = nn.BatchNorm1d(2)
    with Synchronizer(model, tau=2) as together:
        model(torch.full((4, 2), 10.0 * dist.get_rank()))
        together.step()
    return [float(each) for each in model.running_mean]


def test_running_statistics_become_their_mean(spark: SparkSession, tmp_path: Path) -> None:
    assert sparkdl_bench.launch(buffers, spark, results=tmp_path) == [pytest.approx([0.5, 0.5])] * 2


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("neighbours", synchronizer.NEIGHBOURS)
def test_whoever_gossips_with_a_rank_hears_of_it(size: int, neighbours: str) -> None:
    for number in range(1, 20):
        of = [
            synchronizer._Gossip(SimpleNamespace(rank=rank, size=size), neighbours, 3)._at(number)  # type: ignore[arg-type]
            for rank in range(size)
        ]
        assert all(rank in of[other] and other != rank for rank in range(size) for other in of[rank])
        assert [len(each) for each in of].count(0) == (size == 1 if neighbours == "ring" else size % 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"algorithm": "sync-sgd"}, "Valid: local-sgd, easgd, gossip, downpour"),
        ({"tau": 0}, "tau is 0"),
        ({"algorithm": "easgd", "alpha": 0.6}, "at most 0.5"),
        ({"alpha": 0.1}, "It is easgd's"),
        ({"algorithm": "gossip", "neighbours": "all"}, "Valid: ring, random"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"algorithm": "local-sgd", "tau": None, "alpha": None, "neighbours": "ring", **options}
    with pytest.raises(ConfigurationError, match=says):
        synchronizer._check(**given, size=2)


def test_without_a_process_group_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="needs a process group"):
        Synchronizer(nn.Linear(2, 2))
