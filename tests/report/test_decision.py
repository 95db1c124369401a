"""What is recommended, from trials that are made up: how often it is wrong, and how often an added trial changes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import comparisons
import numpy as np
import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report import findings, tables
from sparkdl_bench.report.analysis import MARGIN, Analysis
from sparkdl_bench.report.answer import answer
from sparkdl_bench.report.decision import Beside, Decision, _more, candidates, decide
from sparkdl_bench.statistics import Interval, sequential

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


SPREAD = (1.0, 1.02, 0.97, 1.01, 0.99)


def trials_of(seconds: float, spread: Sequence[float] = SPREAD) -> list[float]:
    return [seconds * each for each in spread]


class TestProperties:
    def test_neither_the_unit_of_time_nor_the_order_of_trials_changes_it(self) -> None:
        random = np.random.default_rng(4)
        for _ in range(40):
            workers = one_machine_and_clusters(random)
            times = comparisons.drawn(random, workers, near(random, workers), 0.05, 6)
            found = decide(comparisons.of_times(times))
            scale = float(random.uniform(0.001, 1000))
            scaled = {name: (count, [scale * value for value in values]) for name, (count, values) in times.items()}
            shuffled = {name: (count, random.permutation(values).tolist()) for name, (count, values) in times.items()}
            for other in (scaled, shuffled):
                again = decide(comparisons.of_times(other))
                assert (again.verdict, again.more_trials) == (found.verdict, found.more_trials)
                assert again.chosen is not None
                assert found.chosen is not None
                assert again.chosen.name == found.chosen.name
                assert [each.state for each in again.others] == [each.state for each in found.others]

    def test_the_order_of_cost_knows_no_times(self) -> None:
        times = {"four": (4, 1.0), "two": (2, 9.0), "out": (2, 1.0), "one": (1, 9.0)}
        records = [
            comparisons.trial(name, 1, seconds, workers, in_band=name != "out")
            for name, (workers, seconds) in times.items()
        ]
        assert [group.name for group in candidates(comparisons.comparison(records))] == ["one", "two", "out", "four"]

    def test_on_two_cores_four_workers_cost_two_and_no_core_seconds_are_made_up(self) -> None:
        records = [
            comparisons.trial(f"workers {workers}", number, seconds, workers)
            for workers in (1, 2, 4)
            for number, seconds in enumerate(trials_of(10.0), start=1)
        ]
        analysis = comparisons.comparison(records, host_cores=2)
        by_name = {group.name: group for group in analysis.groups}
        assert analysis.host_cores == 2
        assert [analysis.cores_used(each) for each in by_name.values()] == [1, 2, 2]
        seconds = by_name["workers 4"].centre(analysis.metric)
        assert seconds is not None
        assert analysis.core_seconds(by_name["workers 4"]) == pytest.approx(2 * seconds)
        said = "\n".join(answer(analysis).details)
        assert "The host has 2 cores; these ask for more and share them: workers 4 (4)." in said
        far = comparisons.comparison([{**each, "spark": {"spark.master": "spark://far:7077"}} for each in records], 2)
        assert far.host_cores is None
        assert [far.cores_used(each) for each in far.groups] == [1, 2, 4]


class TestVerdict:
    def test_a_cluster_that_is_twice_as_fast_is_recommended(self) -> None:
        analysis = comparisons.of_times({"one": (1, trials_of(40.0)), "two": (2, trials_of(20.0))})
        found = decide(analysis)
        assert (found.verdict, bold(found), found.more_trials) == ("recommended", "two", None)
        said = answer(analysis)
        assert said.sentences[0] == "Use two (2 workers × 1 thread, global batch 32)."
        assert said.sentences[1].startswith(
            "It takes 20 s from the command to its end, and is 2 times faster than the "
        )
        assert said.sureness == (
            "Sure: 5 trials per group, and at most 2% of such comparisons recommend wrongly, with 2 groups compared "
            "and however many trials are added."
        )
        assert said.cost[0] == "two: 20 s × 2 cores = 39.9 core-seconds."

    def test_a_cluster_that_is_faster_by_less_than_the_margin_is_not(self) -> None:
        still = (1.0, 1.001, 0.999, 1.0, 1.0005)
        analysis = comparisons.of_times({"one": (1, trials_of(10.5, still)), "two": (2, trials_of(10.0, still))})
        found = decide(analysis)
        assert (found.verdict, bold(found)) == ("recommended", "one")
        assert found.others[0].state == "as-fast"
        assert found.others[0].interval.high < MARGIN
        assert "nothing that costs more is faster by a margin that matters" in answer(analysis).sentences[1]

    def test_what_p_of_0_05_would_have_called_a_difference_is_not_decided(self) -> None:
        """Once the ninth trial turned "use one machine" into "use two workers"."""
        spread = (1.0, 1.12, 0.9, 1.05, 0.95, 1.08, 0.93, 1.02, 0.97)
        one, two = trials_of(12.5, spread), trials_of(10.0, spread[::-1])
        for count in range(5, 10):
            analysis = comparisons.of_times({"one": (1, one[:count]), "two": (2, two[:count])})
            found = decide(analysis)
            assert found.verdict == "not-decided"
            assert found.chosen is not None
            assert found.chosen.name == "one"
        contrast = analysis.contrast(found.others[0].group, found.chosen)
        assert contrast is not None
        assert contrast.p < 0.05
        assert found.more_trials is not None
        first, second = answer(analysis).sentences
        assert first.startswith(f"Not decided: about {found.more_trials} more trials per group would tell; until then ")
        assert "use one machine, one (1 process" in first
        assert "and the data cannot tell whether that is a margin that matters" in second
        assert any(f"--resume --trials {9 + found.more_trials}." in line for line in answer(analysis).next_steps)

    def test_a_quick_comparison_is_continued_by_its_own_command(self) -> None:
        records = [
            comparisons.trial(name, number, seconds, workers)
            for name, workers in (("one process", 1), ("2 workers", 2))
            for number, seconds in enumerate((10.0, 10.4), start=1)
        ]
        steps = answer(comparisons.comparison(records, name="try-digits-c02cc9")).next_steps
        assert steps[0] == (
            "Measure more: the same `sparkdl-bench try` once more, with --resume and more --minutes (from Python "
            "compare(…, resume=True, minutes=…))."
        )

    def test_a_recommendation_says_how_to_train_so(self) -> None:
        trials = [
            comparisons.trial(
                name, number, seconds, workers, settings={"workers": str(workers), "batch": "32", "name": name}
            )
            for name, workers, times in (("one", 1, (20, 20.4, 19.7, 20.1, 20)), ("two", 2, (10, 10.2, 9.9, 10, 10.1)))
            for number, seconds in enumerate(times, start=1)
        ]
        analysis = comparisons.comparison(trials)
        assert decide(analysis).verdict == "recommended"
        assert answer(analysis).next_steps[0] == "Train like this: sparkdl-bench run CONF --set workers=2"
        peer = [{**each, "variant": {"peer": "pytorch"}} if each["group"] == "two" else each for each in trials]
        assert answer(comparisons.comparison(peer)).next_steps[0] == (
            "Train with two, without Spark, while the rows fit on one machine."
        )

    @pytest.mark.parametrize(
        ("peer", "facts", "on_spark"),
        [
            ("pytorch", {}, False),
            ("keras", {}, False),
            ("mpi", {"spark": ""}, False),
            ("bigdl", {}, True),
            ("elephas-sync", {}, True),
            ("torch-distributor", {}, True),
            ("a peer of an older version", {}, False),
            ("a peer of an older version", {"spark": "3.5.9"}, True),
        ],
    )
    def test_a_peer_on_spark_is_not_said_to_be_without_it(
        self, peer: str, facts: dict[str, str], on_spark: bool
    ) -> None:
        trials = [
            comparisons.trial(peer, number, 10.0 + number / 100, 2, variant={"peer": peer}, facts=facts)
            for number in range(1, 6)
        ] + [comparisons.trial("ours", number, 30.0 + number / 100, 2) for number in range(1, 6)]
        analysis = comparisons.comparison(trials)
        assert decide(analysis).verdict == "recommended"
        assert answer(analysis).next_steps[0] == (
            f"Train with {peer}, which runs on Spark too."
            if on_spark
            else f"Train with {peer}, without Spark, while the rows fit on one machine."
        )

    def test_the_number_of_trials_that_is_named_is_enough_in_most_comparisons(self) -> None:
        random = np.random.default_rng(6)
        decided = asked = 0
        while asked < 60:
            times = comparisons.drawn(random, [1, 2], [1.3, 1.0], 0.08, 60)
            found = decide(comparisons.of_times(comparisons.first(times, 5)))
            if found.more_trials is not None and found.more_trials < 50:
                asked += 1
                later = decide(comparisons.of_times(comparisons.first(times, 5 + found.more_trials)))
                decided += later.verdict == "recommended"
        assert decided / asked > 0.5

    def test_of_groups_that_cost_the_same_the_named_baseline_has_to_be_beaten(self) -> None:
        records = [
            comparisons.trial(name, number, seconds + number / 100, 1)
            for name, seconds in (("a", 30.0), ("b", 20.0), ("c", 10.0))
            for number in range(1, 6)
        ]
        analysis = comparisons.comparison(records, baseline={"variant": "b"})
        found = decide(analysis)
        assert bold(found) == "c"
        assert found.cheapest is not None
        assert found.cheapest.name == "b"
        assert ", and is 2 times faster than another on as many cores, b (95 % CI" in answer(analysis).sentences[1]
        # Without a named one the first: the slowest, which others are compared with then, would be known by its times.
        unnamed = decide(comparisons.comparison(records)).cheapest
        assert unnamed is not None
        assert unnamed.name == "a"

    def test_one_as_cheap_as_a_beaten_default_need_not_beat_it(self) -> None:
        """It is not passed over for one that is no faster and costs more."""
        noisy = (0.8, 0.9, 1.0, 1.1, 1.25)
        records = [
            comparisons.trial(name, number, seconds * (1 + (spread - 1) * noise), workers)
            for name, workers, seconds, noise in (("a", 1, 10.0, 0.2), ("b", 1, 7.0, 1.2), ("c", 2, 7.0, 0.2))
            for number, spread in enumerate(noisy, start=1)
        ]
        found = decide(comparisons.comparison(records))
        assert found.chosen is not None
        assert (found.verdict, found.chosen.name) == ("not-decided", "b")
        assert next(each.state for each in found.others if each.group.name == "a") == "slower"

    def test_what_may_be_as_fast_is_not_said_to_cost_more(self) -> None:
        records = [
            comparisons.trial(name, number, seconds * spread, 1)
            for name, seconds in (("a", 10.0), ("b", 13.0))
            for number, spread in enumerate((0.85, 0.95, 1.0, 1.05, 1.15), start=1)
        ]
        details = answer(comparisons.comparison(records)).details
        assert "Perhaps as fast as a, but not faster by a margin that matters, and not cheaper: b." in details

    @pytest.mark.parametrize("count", [1, 2])
    def test_too_few_trials_decide_nothing(self, count: int) -> None:
        analysis = comparisons.of_times({"one": (1, trials_of(90.0)[:count]), "two": (2, trials_of(10.0)[:count])})
        found = decide(analysis)
        assert (found.verdict, found.more_trials) == ("not-decided", sequential.ENOUGH_TRIALS - count)
        said = answer(analysis)
        few = "1 trial does" if count == 1 else "2 trials do"
        assert said.sentences[1].endswith(
            f"; so far two was 9 times faster; but {few} not show how much times vary, so a recommendation needs 3 of "
            "each at least, and 5 to know it well."
        )
        if count == 1:
            assert "CI" not in " ".join([*said.sentences, said.sureness, *said.cost, *said.details])

    def test_with_too_few_trials_each_group_is_told_by_what_was_seen(self) -> None:
        times = {"one": (1, [20.0, 20.0]), "two": (2, [10.0, 10.0]), "four": (4, [20.0, 20.0]), "six": (6, [80.0, 80])}
        second = answer(comparisons.of_times(times)).sentences[1]
        assert "; so far two was 2 times faster, four was as fast, six was 4 times slower; but 2 trials do " in second
        groups = {f"with {workers}": (workers, [20.0 / workers]) for workers in range(1, 8)}
        assert ", 2 more were measured; but 1 trial does " in answer(comparisons.of_times(groups)).sentences[1]

    def test_a_cheap_one_that_missed_the_target_once_leaves_it_open(self) -> None:
        def reached(name: str, number: int, seconds: float, workers: int, does: bool) -> dict[str, object]:
            made = comparisons.trial(name, number, seconds, workers)
            times = {"seconds_to_accuracy": seconds, "seconds_waited_to_accuracy": seconds} if does else {}
            return {**made, "metrics": {**made["metrics"], **times}}

        def decided(of_one: int, of_eight: int = 0, of_another_four: int = 0) -> Decision:
            """How often one machine, the largest cluster and a second way on four reached it, of five trials."""
            groups = [
                ("one", 1, of_one),
                ("two", 2, 5),
                ("another four", 4, of_another_four),
                ("four", 4, 5),
                ("eight", 8, of_eight),
            ]
            records = [
                reached(name, number, seconds, workers, number <= times)
                for name, workers, times in groups
                for number, seconds in enumerate(trials_of(20.0 / workers), start=1)
            ]
            return decide(comparisons.comparison(records, target_accuracy=0.9))

        assert [bold(decided(count)) for count in (5, 0)] == ["four", "four"]
        found = decided(4)
        assert (found.verdict, [group.name for group in found.doubtful]) == ("not-decided", ["one"])
        # One that costs more than the chosen one, and does not always get there, is no reason to wait.
        dearer = decided(0, of_eight=4)
        assert (bold(dearer), dearer.doubtful) == ("four", ())
        # Nor is one that costs as much, wherever it stands in the plan.
        alike = decided(0, of_another_four=4)
        assert (bold(alike), alike.doubtful) == ("four", ())


def regressions(errors: dict[str, float]) -> Analysis:
    records = []
    for name, rmse in errors.items():
        for number in (1, 2, 3):
            made = comparisons.trial(name, number, 10.0 + number / 10, 2)
            made["metrics"] |= {"test_accuracy": None, "test_rmse": rmse, "test_mae": rmse / 2, "test_r2": 0.9}
            records.append(made)
    return comparisons.comparison(records)


def test_regressions_are_judged_by_their_errors() -> None:
    apart = regressions({"good": 0.1, "bad": 0.2})
    assert apart.is_regression
    assert not apart.learnt_alike
    said = str(answer(apart))
    assert "their test errors are further apart than a twentieth" in said
    assert "The mean test RMSE: bad 0.2, good 0.1" in said
    assert "--target-accuracy" not in said
    alike = regressions({"one": 0.1, "other": 0.103})
    assert alike.learnt_alike
    assert "accuracy" not in str(answer(alike))
    with pytest.raises(ConfigurationError, match="these trials are regressions"):
        alike.comparison.with_target(0.9)


def test_more_trials_are_those_that_settle_what_is_open() -> None:
    group = decide(comparisons.of_times({"one": (1, [9.0, 9.1]), "two": (2, [4.0, 4.1])})).cheapest
    assert group is not None

    def other(state: Any, more: int | None) -> Beside:
        return Beside(group, 1.0, Interval(0.5, 2.0), state, more)

    settled = other("slower", None)
    # The one that needs most decides, though the chosen one has two trials of those that are enough.
    assert _more(group, [settled, other("open", 1)]) == 1
    assert _more(group, [other("open", 1), other("faster", 7)]) == 7
    assert _more(group, [other("open", 1), other("open", None)]) is None
    assert _more(group, [settled]) == sequential.ENOUGH_TRIALS - 2


class TestWhatTheDataSupport:
    @pytest.mark.parametrize(
        ("cores", "workers", "said"),
        [
            ([1.9] * 5, 1, "1.9 cores while it trained, and was given 1 core"),
            # So few samples were taken of some trials that nobody knows.
            ([None, 1.9, None, None, None], 1, "1.9 cores while it trained, and was given 1 core"),
            ([2.6] * 5, 2, "2.6 cores while it trained, and was given 2 cores"),
            # The rule is that of `peers run`: a quarter more is still its own.
            ([2.5] * 5, 2, None),
            ([1.0, 1.0, 1.0, 1.9, 1.9], 1, None),
            ([None] * 5, 1, None),
        ],
    )
    def test_a_peer_that_took_more_cores_than_it_was_given_is_named(
        self, cores: list[float | None], workers: int, said: str | None
    ) -> None:
        trials = [
            comparisons.trial("PyTorch", number, 10.0 + number / 10, workers, facts={"cores_in_use": used})
            for number, used in enumerate(cores, start=1)
        ] + [comparisons.trial("ours", number, 16.0 + number / 10, 2) for number in range(1, 6)]
        analysis = comparisons.comparison(trials)
        expected = [f"PyTorch used {said}: its times are those of more cores than the others had."] if said else []
        for lines in (answer(analysis).details, findings.summary(analysis)):
            assert [line for line in lines if "cores while it trained" in line] == expected

    def test_where_every_trial_failed_nothing_is_said_of_clocks(self) -> None:
        def told(status: str) -> list[str]:
            trials = [
                comparisons.trial("one", number, 1.0, 1, status=status, error="It broke.", metrics=metrics)
                for number in (1, 2)
            ]
            return [line for line in answer(comparisons.comparison(trials)).next_steps if "fresh = true" in line]

        metrics = {**comparisons.trial("one", 1, 1.0, 1)["metrics"], "seconds_waited": None}
        assert told("failed") == []
        assert len(told("success")) == 1  # of a trial that did not count from the command it is said

    @pytest.mark.parametrize(
        ("trials", "said"),
        [
            ([1], "1 combination, 1 measured trial: the time from the command to its end."),
            ([3], "1 combination, 3 measured trials: the time from the command to its end (geometric mean)."),
            ([0], "1 combination; no trial finished."),
            ([0, 0], "2 combinations; no trial finished."),
            (
                [1, 1],
                "2 combinations, 1 measured trial each, compared by the time from the command to its end "
                "(geometric means).",
            ),
            (
                [0, 3],
                "2 combinations, 0 to 3 measured trials each, compared by the time from the command to its end "
                "(geometric means).",
            ),
        ],
    )
    def test_the_first_finding_counts_what_there_is(self, trials: list[int], said: str) -> None:
        """Of a group with none of its trials finished, one that failed."""
        records = [
            comparisons.trial(f"way {way}", number, 3.0, 1, status="success" if count else "failed", error="It broke.")
            for way, count in enumerate(trials)
            for number in range(1, max(1, count) + 1)
        ]
        assert findings.summary(comparisons.comparison(records))[0] == said

    def test_cost_counts_the_cores_that_the_host_has(self) -> None:
        def told(ours: dict[int, float]) -> list[str]:
            times = {"single": (1, [10.0, 10.1, 10.2]), **{f"on {n}": (n, [s, 1.01 * s]) for n, s in ours.items()}}
            trials = [
                comparisons.trial(
                    name,
                    number,
                    seconds,
                    workers,
                    factors={"variant": "ours" if workers > 1 else name, "workers": str(workers)},
                )
                for name, (workers, values) in times.items()
                for number, seconds in enumerate(values, start=1)
            ]
            found = comparisons.comparison(trials, host_cores=2)
            assert {row[0].text: row[1].text for row in tables.groups(found).rows}["on 4"] == "2 (asks for 4)"
            return [line for line in findings.summary(found) if line.startswith("COST")]

        beaten = "the best process of one thread (single, 10.1 s)"
        assert told({4: 5.0}) == [f"COST of ours: 2 cores (asks for 4); with these it beats {beaten}."]
        assert told({2: 12.0, 4: 11.0}) == [
            f"COST: at no number of cores that was measured do these beat {beaten}: ours (2 cores)."
        ]
        (line,) = told({2: 9.99, 4: 5.0})
        assert line.startswith(f"COST of ours: 2 cores (asks for 4); with these it beats {beaten}. It is faster on 2 ")
        (line,) = told({4: 10.0})
        assert line.startswith("COST of ours is not known: on 2 cores (asks for 4, p = ")
