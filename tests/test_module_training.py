"""What a PyTorch module's training checks and computes without Spark and without PyTorch."""

from __future__ import annotations

import copy
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl_bench import module_training
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.feeding import RowDataset
from sparkdl_bench.module_training import balanced, checked, computed, misfit, schedule_of, shares, started

ROWS: dict[str, Any] = {
    "settings": {},
    "shape": [2],
    "classes": 3,
    "identity": "x",
    "batch": 8,
    "seed": 1,
    "drop_last": False,
    "with_ids": False,
}


def asked(settings: dict[str, Any], classes: int | None = 3, **more: Any) -> dict[str, Any]:
    return checked(settings, **{"workers": 2, "batch": 8, "epochs": 1, "classes": classes, "is_tested": True, **more})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": "fast"}, "key 'optimizer.learning_rate' has the value 'fast', which is not valid"),
        ({"learning_rate": -1}, "key 'optimizer.learning_rate' has the value '-1'"),
        ({"learning_rate": "0x1"}, "learning_rate is '0x1'; it is a number"),
        ({"momentum": float("nan")}, "key 'optimizer.momentum' has the value 'nan'"),
        ({"optimizer": "adam", "beta1": 1.0}, "key 'optimizer.beta1' has the value '1.0'"),
        ({"seed": "x"}, "key 'seed' has the value 'x'"),
        ({"clip_norm": "much"}, "key 'clip_norm' has the value 'much'"),
        ({"early_stopping": 1.5}, "key 'early_stopping' has the value '1.5'"),
        ({"nesterov": "yes", "momentum": 0.9}, "key 'optimizer.nesterov' has the value 'yes'"),
        ({"nesterov": True}, "nesterov is true, and momentum is 0"),
        ({"schedule": "cosinus"}, "There is no schedule called 'cosinus'"),
        ({"schedule": 3}, "schedule is 3; it is a name"),
        ({"schedule": {"name": "step", "evry": 10}}, "Unknown configuration key 'schedule.evry'"),
        ({"schedule": {"name": "step", "every": 0}}, "key 'schedule.every' has the value '0'"),
        ({"schedule": {"name": "multistep", "milestones": ["a"]}}, "key 'schedule.milestones' has the value 'a'"),
        ({"results": 3}, "results is 3; it is the path of a folder"),
        ({"class_weights": "balancd"}, "classWeights is 'balancd', and there are 3 classes"),
        ({"class_weights": [1, 2]}, "classWeights has 2 numbers, and there are 3 classes"),
        ({"class_weights": [1, 2, float("inf")]}, "Give a finite number of at least 0 for each"),
        ({"class_weights": [0, 0, 0]}, "not all of them 0"),
    ],
)
def test_settings_are_refused_on_the_driver(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        asked(settings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"workers": "2..4"}, "workers is '2..4', a range"),
        ({"workers": "²"}, "workers is '²'; of a PyTorch module it is a whole number"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 9}, "batch is 8, the rows per step over all workers, and there are 9 of these"),
        ({"epochs": -1}, "epochs is -1"),
        ({"is_tested": False, "settings": {"early_stopping": "2"}}, "choose by rows that are tested on"),
        ({"classes": None, "settings": {"class_weights": "balanced"}}, "a regression has no classes"),
        ({"classes": None, "settings": {"keep_best": "accuracy"}}, "which a regression has not"),
        ({"classes": None, "settings": {"loss": "huber", "delta": 0}}, "delta is 0; it is a number above 0"),
    ],
)
def test_sizes_are_refused_on_the_driver(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        asked(**{"settings": {}, **more})
    assert said in str(refused.value)


def test_settings_come_to_the_ranks_as_their_types() -> None:
    found = asked(
        {
            "learning_rate": "0.1",
            "momentum": np.float32(0.5),
            "nesterov": "false",
            "seed": np.int64(3),
            "schedule": {"name": "multistep", "milestones": [3, 5]},
            "class_weights": [1, np.float32(0.5), 2],
        }
    )
    assert (found["learning_rate"], found["momentum"], found["nesterov"], found["seed"]) == (0.1, 0.5, False, 3)
    assert found["schedule"] == {"name": "multistep", "milestones": "3,5"}
    assert found["class_weights"] == [1.0, 0.5, 2.0]
    assert (found["optimizer"], found["loss"]) == ("sgd", "cross-entropy")
    assert asked({"schedule": "cosine"})["schedule"] == {"name": "cosine"}
    assert asked(found) == found
    assert schedule_of({"name": "cosine"}, 12) == schedule_of({"name": "cosine", "steps": "0"}, 12)
    assert schedule_of({"name": "cosine", "steps": "7"}, 12)["steps"] == 7


def test_balanced_weights_are_those_of_a_net_by_name() -> None:
    """The numbers of LossSuite.scala: a class without rows has weight 1, and counts for none."""
    assert balanced([(0.0, 6), (2.0, 2)], 3) == [8 / 12, 1.0, 2.0]
    assert balanced([(None, 4), (float("nan"), 1), (0.0, 6), (2.0, 2), (7.0, 9)], 3) == [8 / 12, 1.0, 2.0]


def test_a_rank_without_rows_computes_those_before_and_counts_none() -> None:
    rows, none = (np.ones((2, 3)), np.array([0, 1])), (np.ones((0, 3)), np.array([], int))
    assert computed(rows, None) == (*rows, 1.0)
    assert computed(none, rows) == (*rows, 0.0)


@pytest.mark.parametrize(
    ("rows", "workers", "found"), [(8, 2, {4}), (7, 2, {3, 4}), (1, 2, {0, 1}), (2, 2, {1}), (3, 4, {0, 1})]
)
def test_shares_of_a_step(rows: int, workers: int, found: set[int]) -> None:
    assert shares(rows, workers) == found


@pytest.mark.parametrize(
    ("rows", "takes_one", "steps", "rows_of_last"),
    [(16, False, 2, 8), (17, True, 3, 1), (17, False, 2, 8), (18, False, 2, 8), (19, False, 2, 8), (20, False, 3, 4)],
)
def test_any_count_of_rows_trains(
    rows: int, takes_one: bool, steps: int, rows_of_last: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """8 rows per step on 2 workers, with modules that can train on one row and those that cannot."""
    monkeypatch.setattr(module_training, "_refusal_of_one_row", lambda *_: None if takes_one else ValueError("one"))
    fed = module_training._fed(None, 2, RowDataset({**ROWS, "rows": rows}, "numpy"), 2)
    fed._check(2)
    assert len(fed) == steps
    assert fed.rows_per_epoch == (steps - 1) * 8 + rows_of_last
    task: Any = types.SimpleNamespace(train=fed, rows=fed.rows_per_epoch)
    of_steps = [module_training._rows_of(task, step) for step in range(2 * steps)]
    assert of_steps == 2 * [*[8] * (steps - 1), rows_of_last]
    assert ("that step is left out" in capsys.readouterr().err) == (rows in (17, 18, 19) and not takes_one)


def test_sets_that_leave_a_rank_without_rows_in_all_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_training, "_refusal_of_one_row", lambda *_: ValueError("one row"))
    with pytest.raises(ConfigurationError, match="There are 3 rows to train on, fewer than the 4 workers"):
        module_training._fed(None, 2, RowDataset({**ROWS, "rows": 3}, "numpy"), 4)
    with pytest.raises(ConfigurationError, match=r"batch = 8 and 5 workers a rank has one row alone .* one: one row\."):
        module_training._fed(None, 2, RowDataset({**ROWS, "rows": 40}, "numpy"), 5)


class Net:
    """A module, as far as its weights go."""

    def __init__(self) -> None:
        self.state = {"fc.weight": np.zeros((3, 2), np.float32), "bn.num_batches_tracked": np.array(0)}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any], strict: bool) -> None:
        assert not strict
        self.state = {**self.state, **copy.deepcopy(state)}


@pytest.fixture
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(as_tensor=np.asarray))


@pytest.mark.usefixtures("_torch")
def test_a_module_starts_from_a_model_or_a_file_of_weights(tmp_path: Path) -> None:
    net, trained = Net(), Net()
    trained.state["fc.weight"] = np.ones((3, 2), np.float32)
    np.savez(tmp_path / "net.npz", **{"fc.weight": np.full((3, 2), 2, np.float32)})
    assert started(net, trained).state["fc.weight"].tolist() == [[1, 1]] * 3
    assert started(net, str(tmp_path / "net.npz")).state["fc.weight"].tolist() == [[2, 2]] * 3
    assert net.state["fc.weight"].tolist() == [[0, 0]] * 3
    with pytest.raises(ConfigurationError, match=r"There is no file '.*none\.npz'"):
        started(net, tmp_path / "none.npz")
    with pytest.raises(ConfigurationError, match="initialModel is a int, which has no weights by name"):
        started(net, 3)
    np.savez(tmp_path / "other.npz", **{"fc.weight": np.ones((3, 4), np.float32)})
    with pytest.raises(ConfigurationError, match=r"'fc\.weight' has the shape \(3, 4\), and the module's has \(3, 2\)"):
        started(net, tmp_path / "other.npz")


def test_weights_that_do_not_fit_are_named() -> None:
    assert misfit({"a": (1,), "b.num_batches_tracked": ()}, {"a": (1,)}) == ""
    assert misfit({"a": (1,), "b": (2,)}, {"b": (3,), "c": ()}) == (
        "'a' is not there; the module has no 'c'; 'b' has the shape (3,), and the module's has (2,)"
    )
