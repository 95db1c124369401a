"""Trains a `torch.nn.Module` of one's own on a DataFrame: what the estimators of Spark ML do where `model` is one.

The ranks of a `launch` read their parts of the rows (`dataset`) and train the module by DistributedDataParallel over
the chosen transport; rank 0's weights come back.

No count of rows needs to divide by anything. As in a run of a net by name, every rank takes the same steps, the last
step of an epoch has the rows that are left, and where those are fewer than the ranks, the last ranks have none
(docs/reference/data.md). Such a rank computes the rows of its step before once more, with the weight 0: its gradient is
zero, and the mean over the step's rows is that of the rows that there are. Only a module that cannot train on one row
alone (batch normalisation) goes without a last step that would leave a rank one row.
"""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdl_bench import catalogue, exports, session
from sparkdl_bench.config import as_text, flatten
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.feeding import RowDataset, dataset
from sparkdl_bench.launching import plan
from sparkdl_bench.launching.driver import launch
from sparkdl_bench.launching.reporting import report
from sparkdl_bench.nearest import suggestion
from sparkdl_bench.peers.programs.measure._fit import learning_rate
from sparkdl_bench.prediction import Model, load_model

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
_NAMES_OF_PLAN = {"timeout": "timeout_s"}
_OF_CHANNEL = ("topology", "codec")
_LOSSES = ("cross-entropy", "mean-squared", "absolute", "huber")
_KEYS = (
    *("optimizer", "learning_rate", "schedule", "seed", "loss", "delta", "class_weights", "clip_norm", "transport"),
    *("keep_best", "early_stopping"),
    *_OF_OPTIMIZERS,
    *_OF_LAUNCH,
    *_OF_CHANNEL,
)
# By what key of a run the value is checked, so that a module's settings may be what those of a net by name may be.
_SAME_AS = {
    **{name: f"optimizer.{name}" for name in ("learning_rate", *_OF_OPTIMIZERS)},
    **{name: name for name in ("seed", "clip_norm", "early_stopping")},
    "delta": "loss.delta",
}
_WHOLE = ("seed", "early_stopping")
_ORIGIN = "settings"
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
    """What travels to the ranks.

    Attributes:
        rows: that an epoch trains on.
        settings: as `checked` returns them.
    """

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
        ConfigurationError: settings that a module's training has not, or a module that does not fit the rows; no Spark
            job was started, unless only the rows can tell, such as fewer of them than workers.
        RankFailedError, RunFailedError: as of `launch`.
    """
    sizes: dict[str, Any] = {"workers": workers, "batch": batch, "epochs": epochs}
    settings = checked(settings, **sizes, classes=rows.classes, is_tested=rows.test is not None)
    own = copy.deepcopy(module)
    _check_outputs(own, rows)
    asked = _asked_of_launch(settings, int(workers))
    api = session.check_session(rows.frame.sparkSession)
    # What launch itself finds after the rows are decoded, a job of its own, found before it.
    plan.plan(api, _train_rank, (), {}, **{_NAMES_OF_PLAN.get(name, name): value for name, value in asked.items()})
    seed = int(settings.get("seed", 0))
    fed = dataset(
        rows.frame, label=LABEL, columns=[FEATURES], batch=batch, seed=seed, kind="torch", classes=rows.classes
    )
    fed = _fed(own, rows.width, fed, int(workers))
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
        fed.rows_per_epoch,
        epochs,
        settings,
        rows.weighted,
        rows.classes,
        rows.subtract,
        rows.multiply,
        _class_weights(settings["class_weights"], rows),
    )
    done = launch(
        _train_rank,
        rows.frame.sparkSession,
        args=(task,),
        results=settings.get("results", "results"),
        **asked,
    )
    return _model(own, done[0], rows)


def _asked_of_launch(settings: Mapping[str, Any], workers: int) -> dict[str, Any]:
    return {
        "workers": workers,
        "sync": str(settings.get("transport", "auto")),
        "settings": {name: settings[name] for name in _OF_CHANNEL if name in settings},
        "timeout": settings.get("timeout", 600.0),
        "attempts": settings.get("attempts", 1),
        "name": str(settings.get("name", "module")),
    }


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


def started(module: Any, given: Any) -> Any:
    """A copy of a module that starts from trained weights, as `initialModel` names them.

    Args:
        given: a `ModuleModel`, a `torch.nn.Module`, a `sparkdl_bench.Model` whose weights have the module's names, the
            folder of a saved model, or a file of weights that `sparkdl_bench.load_weights` reads.

    Raises:
        ConfigurationError: it is none of these, or names and shapes of the weights are not the module's.
    """
    import torch

    state = _state_of(given)
    own = copy.deepcopy(module)
    wanted = {name: tuple(value.shape) for name, value in own.state_dict().items()}
    if told := misfit(wanted, {name: tuple(value.shape) for name, value in state.items()}):
        raise ConfigurationError(
            f"The weights of initialModel do not fit the module: {told}. Names and shapes must be those of "
            "module.state_dict(); give a model that was trained with the same layers, or None."
        )
    # A file of weights may lack the batches that a normalisation has counted; those of the module stay.
    copied = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}
    own.load_state_dict({name: torch.as_tensor(value) for name, value in copied.items()}, strict=False)
    return own


def _state_of(given: Any) -> Mapping[str, Any]:
    """Weights by name; tensors or arrays."""
    if isinstance(given, (str, Path)):
        if not Path(given).is_dir():
            return exports.load_weights(given)
        given = load_model(given)
    if isinstance(given, Model):
        given = given.torch_module()
    if not callable(getattr(given, "state_dict", None)):
        raise ConfigurationError(
            f"initialModel is a {type(given).__name__}, which has no weights by name. Give what fit returned, a "
            "sparkdl_bench.Model, a torch.nn.Module, or the path of a saved model or of a file of weights."
        )
    state: Mapping[str, Any] = given.state_dict()
    return state


def misfit(wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> str:
    """What keeps weights of these shapes from a module of those, by name; empty where they fit."""
    missing = [name for name in wanted if name not in found and not exports.is_counter(name)]
    extra = [name for name in found if name not in wanted]
    wrong = [name for name in wanted if name in found and found[name] != wanted[name]]
    told = [f"'{missing[0]}' is not there"] if missing else []
    told += [f"the module has no '{extra[0]}'"] if extra else []
    told += [f"'{wrong[0]}' has the shape {found[wrong[0]]}, and the module's has {wanted[wrong[0]]}"] if wrong else []
    return "; ".join(told)


def checked(
    settings: Mapping[str, Any],
    *,
    workers: int | str,
    batch: int,
    epochs: int,
    classes: int | None,
    is_tested: bool,
) -> dict[str, Any]:
    """The settings as their types: numbers, flags, and the schedule as a dict of texts; no job, and no PyTorch.

    What it returned can be given again.

    Args:
        classes: None of a regression.
        is_tested: whether there are rows to test on.

    Raises:
        ConfigurationError: a name or a value that a module's training has not.
    """
    for name in settings:
        if name not in _KEYS:
            raise ConfigurationError(
                f"settings has '{name}', which the training of a PyTorch module has not. It has "
                f"{', '.join(sorted((*_KEYS, 'normalize')))}.{suggestion(name, _KEYS)} For anything else train in a "
                "function of your own: sparkdl_bench.launch."
            )
    _check_sizes(workers, batch, epochs)
    own = {**settings, **_numbers(settings)}
    if "schedule" in settings:
        own["schedule"] = _checked_schedule(settings["schedule"])
    optimizer = catalogue.canonical("optimizer.name", str(settings.get("optimizer", "sgd")).lower())[1]
    if optimizer not in _OPTIMIZERS:
        raise ConfigurationError(f"optimizer is '{optimizer}'; of a PyTorch module valid are {', '.join(_OPTIMIZERS)}.")
    for name in _OF_OPTIMIZERS:
        if name in settings and name not in _OPTIMIZERS[optimizer]:
            raise ConfigurationError(f"The optimizer {optimizer} has no '{name}'; leave it out of settings.")
    if own.get("nesterov") and not own.get("momentum"):
        raise ConfigurationError("nesterov is true, and momentum is 0; PyTorch's SGD needs a momentum above 0 then.")
    loss = str(settings.get("loss", "cross-entropy" if classes else "mean-squared"))
    if loss not in _LOSSES or (loss == "cross-entropy") != (classes is not None):
        valid = "cross-entropy" if classes is not None else ", ".join(_LOSSES[1:])
        raise ConfigurationError(f"loss is '{loss}'; of a PyTorch module with these labels valid are: {valid}.")
    if settings.get("keep_best", "off") not in ("off", "loss", "accuracy"):
        raise ConfigurationError(f"keep_best is '{settings['keep_best']}'; valid are off, loss and accuracy.")
    if settings.get("keep_best") == "accuracy" and classes is None:
        raise ConfigurationError("keep_best is 'accuracy', which a regression has not; valid are off and loss.")
    if not is_tested and (own.get("keep_best", "off") != "off" or own.get("early_stopping")):
        raise ConfigurationError(
            "keep_best and early_stopping choose by rows that are tested on: name a column that tells them, "
            "validationIndicatorCol."
        )
    if not isinstance(settings.get("results", ""), (str, Path)):
        raise ConfigurationError(f"results is {settings['results']!r}; it is the path of a folder.")
    own["class_weights"] = _checked_class_weights(settings.get("class_weights"), classes)
    return {**own, "optimizer": optimizer, "loss": loss}


def _check_sizes(workers: int | str, batch: int, epochs: int) -> None:
    if not re.fullmatch(r"[0-9]+", str(workers)):
        raise ConfigurationError(
            f"workers is '{workers}', a range, and a PyTorch module trains with one number of workers. Set that."
            if re.fullmatch(r"[0-9]+\.\.[0-9]+", str(workers))
            else f"workers is '{workers}'; of a PyTorch module it is a whole number of at least 1."
        )
    if int(workers) < 1:
        raise ConfigurationError(f"workers is {workers}; of a PyTorch module it is a whole number of at least 1.")
    if batch < int(workers):
        raise ConfigurationError(
            f"batch is {batch}, the rows per step over all workers, and there are {workers} of these: some would never "
            f"have a row. Set batch to {workers} or more."
        )
    if epochs < 0:
        raise ConfigurationError(f"epochs is {epochs}; it is a whole number of at least 0.")


def _numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and flags as such, checked by the key of a run that each is the same as; given as texts, too."""
    texts = {name: as_text(name, settings[name], _ORIGIN).strip() for name in _SAME_AS if name in settings}
    catalogue.check({_SAME_AS[name]: text for name, text in texts.items()}, from_file=False)
    found: dict[str, Any] = {}
    for name, text in texts.items():
        if name == "nesterov":
            found[name] = text.lower() == "true"
            continue
        try:
            found[name] = int(text) if name in _WHOLE else float(text)
        except ValueError:
            raise ConfigurationError(
                f"{name} is {text!r}; it is a {'whole ' if name in _WHOLE else ''}number, such as 1."
            ) from None
    if found.get("delta", 1.0) <= 0:  # the catalogue does not say so
        raise ConfigurationError(f"delta is {found['delta']:g}; it is a number above 0.")
    return found


def _checked_schedule(given: Any) -> dict[str, str]:
    """The learning-rate schedule by the keys of a run, `schedule.name` and so on, without their prefix."""
    named = {"name": given} if isinstance(given, str) else given
    if not isinstance(named, Mapping):
        raise ConfigurationError(
            f"schedule is {given!r}; it is a name, such as 'cosine', or a dict: {{'name': 'step', 'every': 100}}."
        )
    keys = dict(catalogue.canonical(key, text) for key, text in flatten(named, _ORIGIN, "schedule.").items())
    catalogue.check(keys, from_file=False)
    return {key.removeprefix("schedule."): text for key, text in keys.items()}


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


def _fed(module: Any, width: int, fed: RowDataset, workers: int) -> RowDataset:
    """The set as this module can train on it; with the ends of epochs, see above.

    Raises:
        ConfigurationError: some rank would never have a row, or one alone in each step, where the module cannot train
            on one.
    """
    if fed.rows < workers:
        raise ConfigurationError(
            f"There are {fed.rows} rows to train on, fewer than the {workers} workers: some would never have a row. "
            f"Set workers to {fed.rows} or less."
        )
    first, last = min(fed.rows, fed.batch), fed.rows % fed.batch or fed.batch
    is_alone, is_alone_at_last = (1 in shares(rows, workers) for rows in (first, last))
    error = _refusal_of_one_row(module, width) if is_alone or is_alone_at_last else None
    if error is None:
        return fed.with_empty_shares()
    if is_alone:
        raise ConfigurationError(
            f"With {fed.rows} rows, batch = {fed.batch} and {workers} workers a rank has one row alone in a step, and "
            f"the module cannot train on one: {error}. Batch normalisation needs two; set a larger batch, or fewer "
            "workers."
        ) from error
    print(
        f"sparkdl-bench: the last step of an epoch has {last} rows for {workers} workers, and the module cannot train "
        "on one row alone, so that step is left out: other rows in each epoch. Another batch trains on all.",
        file=sys.stderr,
    )
    return fed.with_whole_steps()


def _refusal_of_one_row(module: Any, width: int) -> Exception | None:
    """What keeps the module from training on one row: batch normalisation of one value per channel, say."""
    import torch

    try:
        with torch.no_grad():
            copy.deepcopy(module).train()(torch.zeros(1, width))
    except Exception as error:  # whatever a user's code raises
        return error
    return None


def shares(rows: int, workers: int) -> set[int]:
    """How many of a step's rows ranks have: the numbers that occur, 0 too (BatchPlan.scala)."""
    return {rows // workers, -(-rows // workers)}


def _test_batch(rows: int, workers: int) -> int:
    """The most rows at once that leave no rank without any in the last step."""
    for size in range(min(rows, _CHUNK), workers - 1, -1):
        if rows % size == 0 or rows % size >= workers:
            return size
    raise ConfigurationError(f"There are {rows} rows to test on, fewer than the {workers} workers. Name more of them.")


def _checked_class_weights(given: Any, classes: int | None) -> str | list[float]:
    """`balanced`, or a number for each class; none: all count alike."""
    text = "" if given is None else as_text("class_weights", given, _ORIGIN).strip()
    if not text:
        return []
    if classes is None:
        raise ConfigurationError(f"class_weights is '{text}', and a regression has no classes. Leave it out.")
    if text == "balanced":
        return text
    try:
        weights = [float(each) for each in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != classes or not all(0 <= each < math.inf for each in weights) or not any(weights):
        said = f"has {len(weights)} numbers" if weights and len(weights) != classes else f"is {given!r}"
        raise ConfigurationError(
            f"classWeights {said}, and there are {classes} classes. Give a finite number of at least 0 for each, not "
            "all of them 0, or 'balanced'."
        )
    return weights


def _class_weights(chosen: str | list[float], rows: Rows) -> list[float]:
    """A number for each class, in their order; empty where all count alike. For `balanced`, a Spark job counts."""
    if isinstance(chosen, list) or rows.classes is None:
        return [] if isinstance(chosen, str) else chosen
    return balanced(((row[0], row[1]) for row in rows.frame.groupBy(LABEL).count().collect()), rows.classes)


def balanced(counted: Iterable[tuple[float | None, int]], classes: int) -> list[float]:
    """As of a net by name (ClassWeights.scala): rows / (classes that occur × rows of the class), without rows 1.

    Args:
        counted: labels and their rows; what is no class, such as null, counts for none.
    """
    rows = {int(label): count for label, count in counted if label is not None and label in range(classes)}
    total = sum(rows.values())
    return [total / (len(rows) * rows[each]) if each in rows else 1.0 for each in range(classes)]


def computed(taken: Any, before: Any) -> tuple[Any, Any, float]:
    """What a rank computes in a step: features, labels, and what the loss of these counts.

    Args:
        taken: its rows of the step; none where an epoch's last step has fewer rows than there are ranks.
        before: what it computed in the step before. Real rows, so that no module meets an empty batch; rank 0, whose
            buffers DistributedDataParallel sends to all, always has rows of its own.
    """
    return (*taken, 1.0) if len(taken[0]) else (*before, 0.0)


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
    step, before = 0, None
    for epoch in range(1, task.epochs + 1):
        wrapped.train()
        total = torch.zeros(1, dtype=torch.float64)
        for taken in task.train:
            features, labels, counts = computed(taken, before)
            before = (features, labels)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(rates, step)
            x, weights = split(features)
            optimizer.zero_grad(set_to_none=True)
            lost = (loss_of(wrapped(x), labels) * weights).sum() * counts
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
    return min(task.train.batch, task.rows - step % len(task.train) * task.train.batch)


def _split(task: _Task) -> Callable[[Any], tuple[Any, Any]]:
    """What makes of a step's features its values, standardised, and the rows' weights."""
    import torch

    subtract, multiply = torch.tensor(task.subtract), torch.tensor(task.multiply)

    def split(features: Any) -> tuple[Any, Any]:
        x, weights = (features[:, :-1], features[:, -1]) if task.weighted else (features, torch.ones(len(features)))
        return ((x - subtract) * multiply if task.subtract else x), weights

    return split


def _schedule(task: _Task) -> Mapping[str, Any]:
    return schedule_of(task.settings.get("schedule", {}), task.epochs * len(task.train))


def schedule_of(chosen: Mapping[str, str], steps: int) -> dict[str, Any]:
    """The schedule as `learning_rate` takes it; without `steps`, or with 0, it is as long as the training."""
    return {**chosen, "steps": int(chosen.get("steps", 0)) or steps}


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
