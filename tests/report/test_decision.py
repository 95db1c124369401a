"""What is recommended, from trials that are made up: how often it is wrong, and how often an added trial changes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import comparisons
import numpy as np
import pytest

from sparkdl_bench.report.decision import Decision, decide

WORKERS = (1, 2, 4, 8)


def one_machine_and_clusters(random: np.random.Generator) -> list[int]:
    """Two to eight groups: one machine, and others of one to eight workers, several of them alike."""
    return [1, *(int(random.choice(WORKERS)) for _ in range(int(random.integers(1, 8))))]


def is_cluster(decision: Decision) -> bool:
    return decision.verdict == "recommended" and decision.chosen is not None and decision.chosen.workers > 1


def bold(decision: Decision) -> str | None:
    """What is recommended; None where it is left open."""
    return decision.chosen.name if decision.verdict == "recommended" and decision.chosen else None


def flips(decisions: Sequence[Decision]) -> int:
    """How often a recommendation was followed by another one, also with trials between in which it was left open."""
    said = [name for each in decisions if (name := bold(each)) is not None]
    return sum(before != after for before, after in pairwise(said))


class Simulated:
    """What became of many comparisons, each looked at with 5, 6, … 10 trials."""

    def __init__(self, count: int, seed: int, factors: Callable[[np.random.Generator, Sequence[int]], list[float]]):
        random = np.random.default_rng(seed)
        self.count = count
        self.first: list[Decision] = []
        self.flipped = 0
        self.ever_cluster = 0
        self.ever_wrong = 0
        self.told = 0
        for _ in range(count):
            workers = one_machine_and_clusters(random)
            chosen = factors(random, workers)
            times = comparisons.drawn(random, workers, chosen, float(random.uniform(0.01, 0.12)), 10)
            best = min(times, key=lambda name: chosen[list(times).index(name)])
            decisions = [decide(comparisons.of_times(comparisons.first(times, trials))) for trials in range(5, 11)]
            self.first.append(decisions[0])
            self.flipped += flips(decisions) > 0
            self.ever_cluster += any(is_cluster(each) for each in decisions)
            self.ever_wrong += any(bold(each) not in (None, best) for each in decisions)
            self.told += bold(decisions[-1]) is not None


def equal(_: np.random.Generator, workers: Sequence[int]) -> list[float]:
    return [1.0 for _ in workers]


def apart(random: np.random.Generator, workers: Sequence[int]) -> list[float]:
    """One group, drawn, is 1.3 times faster than all others."""
    best = int(random.integers(len(workers)))
    return [1.0 if place == best else 1.3 for place in range(len(workers))]


def near(random: np.random.Generator, workers: Sequence[int]) -> list[float]:
    """Differences about the margin, where conclusions are hardest."""
    return [float(random.uniform(1 / 1.2, 1.2)) for _ in workers]


@pytest.mark.parametrize("count", [200, pytest.param(4000, marks=pytest.mark.campaign)])
class TestHowOftenItIsWrong:
    def test_of_equal_groups_a_cluster_is_hardly_ever_recommended(self, count: int) -> None:
        found = Simulated(count, 1, equal)
        assert sum(map(is_cluster, found.first)) <= 0.05 * count
        assert found.ever_cluster <= 0.02 * count  # with any of the added trials
        assert found.flipped <= 0.02 * count
        assert found.told >= 0.1 * count  # it is no way out to say nothing

    def test_of_groups_that_are_apart_the_right_one_or_none(self, count: int) -> None:
        found = Simulated(count, 2, apart)
        assert found.ever_wrong <= 0.01 * count
        assert found.flipped <= 0.02 * count
        assert found.told >= 0.5 * count

    def test_an_added_trial_hardly_ever_turns_a_recommendation(self, count: int) -> None:
        assert Simulated(count, 3, near).flipped <= 0.02 * count
