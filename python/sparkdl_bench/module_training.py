"""Trains a `torch.nn.Module` of one's own on a DataFrame: what the estimators of Spark ML do where `model` is one.

The ranks of a `launch` read their parts of the rows (`dataset`) and train the module by DistributedDataParallel over
the chosen transport; rank 0's weights come back.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.feeding import RowDataset, dataset
from sparkdl_bench.launching.driver import launch
from sparkdl_bench.launching.reporting import report
from sparkdl_bench.nearest import suggestion
from sparkdl_bench.peers.programs.measure._fit import learning_rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkdl_bench.torch.trained import ModuleModel

FEATURES, LABEL = "features", "label"
_OPTIMIZERS = {
    "sgd": ("momentum", "nesterov", "weight_decay"),
    "adam": ("beta1", "beta2", "epsilon", "weight_decay"),
    "adamw": ("beta1", "beta2", "epsilon", "weight_decay"),
    "adagrad": ("epsilon", "weight_decay"),
}
_OF_OPTIMIZERS = ("momentum", "nesterov", "beta1", "beta2", "epsilon", "weight_decay")
_OF_LAUNCH = ("name", "results", "timeout", "attempts")
_OF_CHANNEL = ("topology", "codec")
_LOSSES = ("cross-entropy", "mean-squared", "absolute", "huber")
_KEYS = (
    *("optimizer", "learning_rate", "schedule", "seed", "loss", "delta", "class_weights", "clip_norm", "transport"),
    *("keep_best", "early_stopping"),
    *_OF_OPTIMIZERS,
    *_OF_LAUNCH,
    *_OF_CHANNEL,
)
_CHUNK = 1024


@dataclass(frozen=True)
class Rows:
    """What is trained on.

    Attributes:
        frame: with the column `features`, an array of floats whose last one is the row's weight where there are
            weights, and the column `label`.
        test: rows like those; tested on after each epoch.
        width: of a row without the weight.
        classes: None for a regression.
        columns: the names of the features.
    """

    frame: DataFrame
    test: DataFrame | None
    width: int
    weighted: bool
    classes: int | None
    columns: Sequence[str]
    subtract: Sequence[float] = ()
    multiply: Sequence[float] = ()


@dataclass(frozen=True)
class _Task:
    """What travels to the ranks."""

    module: Any
    train: RowDataset
    test: RowDataset | None
    rows: int
    epochs: int
    settings: Mapping[str, Any]
    weighted: bool
    classes: int | None
    subtract: Sequence[float] = ()
    multiply: Sequence[float] = ()
    class_weights: Sequence[float] = field(default_factory=list)


def is_module(value: object) -> bool:
    """Whether it is a `torch.nn.Module`; PyTorch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def train(module: Any, rows: Rows, *, workers: int | str, batch: int, epochs: int, settings: Mapping[str, Any]) -> Any:
    """The trained module, as a `sparkdl_bench.torch.ModuleModel`; the module that was given stays as it is.

    Args:
        settings: see `_KEYS`, by the names and with the meaning of `Trainer`'s keywords.

    Raises:
        ConfigurationError: settings that a module's training has not, or a module that does not fit the rows.
        RankFailedError, RunFailedError: as of `launch`.
    """
    _check(settings, workers, rows)
    own = copy.deepcopy(module)
    _check_outputs(own, rows)
    seed = int(settings.get("seed", 0))
    fed = dataset(
        rows.frame, label=LABEL, columns=[FEATURES], batch=batch, seed=seed, kind="torch", classes=rows.classes
    )
    fed_test = None
    if rows.test is not None:
        fed_test = dataset(
            rows.test,
            label=LABEL,
            columns=[FEATURES],
            batch=_test_batch(rows.test.count(), int(workers)),
            kind="torch",
            classes=rows.classes,
        )
    task = _Task(
        own,
        fed,
        fed_test,
        fed.rows,
        epochs,
        dict(settings),
        rows.weighted,
        rows.classes,
        rows.subtract,
        rows.multiply,
        _class_weights(settings.get("class_weights"), rows),
    )
    done = launch(
        _train_rank,
        rows.frame.sparkSession,
        workers=int(workers),
        sync=str(settings.get("transport", "auto")),
        args=(task,),
        settings={name: settings[name] for name in _OF_CHANNEL if name in settings},
        **{"name": "module", **{name: settings[name] for name in _OF_LAUNCH if name in settings}},
    )
    return _model(own, done[0], rows)


def _model(own: Any, state: Mapping[str, Any], rows: Rows) -> ModuleModel:
    import torch

    from sparkdl_bench.torch.trained import ModuleModel

    own.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    facts = {
        "width": rows.width,
        "classes": rows.classes or 1,
        "labels": [],
        "columns": list(rows.columns),
        "subtract": [float(each) for each in rows.subtract],
        "multiply": [float(each) for each in rows.multiply],
    }
    return ModuleModel(own, facts)


def _check(settings: Mapping[str, Any], workers: int | str, rows: Rows) -> None:
    for name in settings:
        if name not in _KEYS:
            raise ConfigurationError(
                f"settings has '{name}', which the training of a PyTorch module has not. It has "
                f"{', '.join(sorted((*_KEYS, 'normalize')))}.{suggestion(name, _KEYS)} For anything else train in a "
                "function of your own: sparkdl_bench.launch."
            )
    optimizer = str(settings.get("optimizer", "sgd")).lower()
    if optimizer not in _OPTIMIZERS:
        raise ConfigurationError(f"optimizer is '{optimizer}'; of a PyTorch module valid are {', '.join(_OPTIMIZERS)}.")
    for name in _OF_OPTIMIZERS:
        if name in settings and name not in _OPTIMIZERS[optimizer]:
            raise ConfigurationError(f"The optimizer {optimizer} has no '{name}'; leave it out of settings.")
    loss = str(settings.get("loss", "cross-entropy" if rows.classes else "mean-squared"))
    if loss not in _LOSSES or (loss == "cross-entropy") != (rows.classes is not None):
        valid = "cross-entropy" if rows.classes is not None else ", ".join(_LOSSES[1:])
        raise ConfigurationError(f"loss is '{loss}'; of a PyTorch module with these labels valid are: {valid}.")
    if not str(workers).isdigit():
        raise ConfigurationError(
            f"workers is '{workers}', a range, and a PyTorch module trains with one number of workers. Set that."
        )
    if settings.get("keep_best", "off") not in ("off", "loss", "accuracy"):
        raise ConfigurationError(f"keep_best is '{settings['keep_best']}'; valid are off, loss and accuracy.")
    if rows.test is None and (settings.get("keep_best", "off") != "off" or settings.get("early_stopping")):
        raise ConfigurationError(
            "keep_best and early_stopping choose by rows that are tested on: name a column that tells them, "
            "validationIndicatorCol."
        )


def _check_outputs(module: Any, rows: Rows) -> None:
    """Two rows of zeros through the module, before any job."""
    import torch

    was = module.training
    try:
        with torch.no_grad():
            found = module.eval()(torch.zeros(2, rows.width))
        shape = tuple(found.shape)
    except Exception as error:  # whatever a user's code raises
        raise ConfigurationError(
            f"The module does not take rows of {rows.width} values (an input of shape (2, {rows.width})): {error}. "
            "Where it takes images, begin with torch.nn.Unflatten(1, (channels, height, width))."
        ) from error
    finally:
        module.train(was)
    wanted = [(2, rows.classes)] if rows.classes else [(2, 1), (2,)]
    if shape not in wanted:
        raise ConfigurationError(
            f"The module gives an output of shape {shape} for two rows, and these labels need {wanted[0]}: "
            + (f"a score for each of the {rows.classes} classes." if rows.classes else "one number a row.")
        )


def _test_batch(rows: int, workers: int) -> int:
    """The most rows at once that leave no rank without any in the last step."""
    for size in range(min(rows, _CHUNK), workers - 1, -1):
        if rows % size == 0 or rows % size >= workers:
            return size
    raise ConfigurationError(f"There are {rows} rows to test on, fewer than the {workers} workers. Name more of them.")


def _class_weights(given: Any, rows: Rows) -> list[float]:
    if given is None or given == [] or rows.classes is None:
        return []
    if given == "balanced":
        counts = {int(row[0]): int(row[1]) for row in rows.frame.groupBy(LABEL).count().collect()}
        total = sum(counts.values())
        return [total / (rows.classes * counts[each]) if counts.get(each) else 0.0 for each in range(rows.classes)]
    weights = [float(each) for each in given]
    if len(weights) != rows.classes or min(weights) < 0:
        raise ConfigurationError(
            f"classWeights has {len(weights)} numbers, and there are {rows.classes} classes. Give a number of at least "
            "0 for each, or 'balanced'."
        )
    return weights


def _train_rank(task: _Task) -> dict[str, Any] | None:
    """At each rank; the weights by name come from rank 0."""
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(int(task.settings.get("seed", 0)) + rank)
    module = task.module
    wrapped = torch.nn.parallel.DistributedDataParallel(module) if world > 1 else module
    optimizer = _optimizer(task, module)
    loss_of, best, split = _loss(task), _Best(task), _split(task)
    rates = {"schedule": _schedule(task), "optimizer": task.settings}
    step = 0
    for epoch in range(1, task.epochs + 1):
        wrapped.train()
        total = torch.zeros(1, dtype=torch.float64)
        for features, labels in task.train:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(rates, step)
            x, weights = split(features)
            optimizer.zero_grad(set_to_none=True)
            lost = (loss_of(wrapped(x), labels) * weights).sum()
            # DDP takes the mean over ranks, whose shares may differ by a row: the sum over the step's rows is wanted.
            (lost * (world / _rows_of(task, step))).backward()
            if task.settings.get("clip_norm"):
                torch.nn.utils.clip_grad_norm_(module.parameters(), float(task.settings["clip_norm"]))
            optimizer.step()
            total += lost.detach().double()
            step += 1
        dist.all_reduce(total)
        told: dict[str, Any] = {"train_loss": float(total) / task.rows, **_tested(task, module, loss_of, split)}
        if rank == 0:
            report(epoch=epoch, **told)
        if not math.isfinite(told["train_loss"]):
            raise ConfigurationError(
                f"The training diverged in epoch {epoch}: its loss is {told['train_loss']}. Lower learning_rate, or "
                "set clip_norm = 1."
            )
        if best.is_over(module, told):
            break
    if rank != 0:
        return None
    state: Mapping[str, Any] = best.state or module.state_dict()
    return {name: value.detach().numpy().copy() for name, value in state.items()}


class _Best:
    """The weights of the best epoch, where they are wanted; all ranks see the same numbers and decide alike."""

    def __init__(self, task: _Task) -> None:
        self._by = str(task.settings.get("keep_best", "off"))
        self._patience = int(task.settings.get("early_stopping", 0) or 0)
        self._least, self._waited = math.inf, 0
        self.state: Mapping[str, Any] | None = None

    def is_over(self, module: Any, told: Mapping[str, float]) -> bool:
        """Whether so many epochs were no better that the training ends."""
        if self._by == "off" and not self._patience:
            return False
        found = -told["test_accuracy"] if self._by == "accuracy" else told["test_loss"]
        if found < self._least:
            self._least, self._waited = found, 0
            if self._by != "off":
                self.state = {name: value.detach().clone() for name, value in module.state_dict().items()}
        else:
            self._waited += 1
        return bool(self._patience) and self._waited >= self._patience


def _rows_of(task: _Task, step: int) -> int:
    """Of the global batch."""
    steps = len(task.train)
    rest = task.rows % task.train.batch
    return rest if rest and (step + 1) % steps == 0 else task.train.batch


def _split(task: _Task) -> Callable[[Any], tuple[Any, Any]]:
    """What makes of a step's features its values, standardised, and the rows' weights."""
    import torch

    subtract, multiply = torch.tensor(task.subtract), torch.tensor(task.multiply)

    def split(features: Any) -> tuple[Any, Any]:
        x, weights = (features[:, :-1], features[:, -1]) if task.weighted else (features, torch.ones(len(features)))
        return ((x - subtract) * multiply if task.subtract else x), weights

    return split


def _schedule(task: _Task) -> Mapping[str, Any]:
    given = task.settings.get("schedule", {})
    schedule = {"name": given} if isinstance(given, str) else dict(given)
    return {"steps": task.epochs * len(task.train), **schedule}


def _optimizer(task: _Task, module: Any) -> Any:
    import torch

    given = task.settings
    name = str(given.get("optimizer", "sgd")).lower()
    options: dict[str, Any] = {"lr": float(given.get("learning_rate", 0.1))}
    options["weight_decay"] = float(given.get("weight_decay", 0))
    if name == "sgd":
        options |= {"momentum": float(given.get("momentum", 0)), "nesterov": bool(given.get("nesterov", False))}
    else:
        options["eps"] = float(given.get("epsilon", 1e-8))
    if name in ("adam", "adamw"):
        options["betas"] = (float(given.get("beta1", 0.9)), float(given.get("beta2", 0.999)))
    kinds = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad"}
    return getattr(torch.optim, kinds[name])(module.parameters(), **options)


def _loss(task: _Task) -> Callable[[Any, Any], Any]:
    """The loss of each row."""
    import torch
    from torch.nn import functional

    if task.classes is not None:
        weight = torch.tensor(task.class_weights) if task.class_weights else None
        return lambda out, labels: functional.cross_entropy(out, labels, weight=weight, reduction="none")
    name, delta = str(task.settings.get("loss", "mean-squared")), float(task.settings.get("delta", 1.0))
    of_numbers: dict[str, Callable[[Any, Any], Any]] = {
        "mean-squared": lambda out, labels: functional.mse_loss(out, labels, reduction="none"),
        "absolute": lambda out, labels: functional.l1_loss(out, labels, reduction="none"),
        "huber": lambda out, labels: functional.huber_loss(out, labels, reduction="none", delta=delta),
    }
    return lambda out, labels: of_numbers[name](out.reshape(-1), labels)


def _tested(
    task: _Task, module: Any, loss_of: Callable[[Any, Any], Any], split: Callable[[Any], tuple[Any, Any]]
) -> dict[str, float]:
    """On the test rows, each rank on its part; the same numbers at all."""
    import torch
    import torch.distributed as dist

    if task.test is None:
        return {}
    module.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.no_grad():
        for features, labels in task.test:
            x, weights = split(features)
            out = module(x)
            sums[0] += (loss_of(out, labels) * weights).sum().double()
            sums[1] += weights.sum().double()
            if task.classes is not None:
                sums[2] += ((out.argmax(dim=1) == labels) * weights).sum().double()
    dist.all_reduce(sums)
    told = {"test_loss": float(sums[0] / sums[1])}
    return {**told, "test_accuracy": float(sums[2] / sums[1])} if task.classes is not None else told


def moments(frame: DataFrame, width: int, weighted: bool) -> tuple[list[float], list[float]]:
    """What is subtracted from each value of a row, and what the difference is multiplied by: a Spark job.

    As Spark ML's StandardScaler; a value that never changes becomes 0.
    """
    from pyspark.ml.functions import array_to_vector
    from pyspark.ml.stat import Summarizer
    from pyspark.sql import functions

    values = array_to_vector(functions.slice(FEATURES, 1, width))
    weight = functions.element_at(FEATURES, width + 1).cast("double") if weighted else functions.lit(1.0)
    found = frame.select(values.alias("v"), weight.alias("w")).select(
        Summarizer.metrics("mean", "std").summary(functions.col("v"), functions.col("w")).alias("found")
    )
    row = found.collect()[0][0]
    deviation = np.asarray(row["std"].toArray())
    factors = np.divide(1.0, deviation, out=np.ones_like(deviation), where=deviation > 0)
    return [float(each) for each in row["mean"].toArray()], [float(each) for each in factors]
