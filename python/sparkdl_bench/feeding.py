"""Batches of a DataFrame for a training loop of your own: `dataset`.

data = sparkdl_bench.dataset(frame, label="class", classes=10, batch=128)

def train():
    for epoch in range(5):
        for features, labels in data:
            ...

sparkdl_bench.launch(train, spark, workers=2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench import frames, worker
from sparkdl_bench.errors import ConfigurationError

_STATE = ("epoch", "step", "seed", "batch", "identity")
KINDS = ("auto", "torch", "numpy")


def dataset(
    frame: Any,
    *,
    label: str = "label",
    classes: int | None = None,
    batch: int,
    columns: Sequence[str] = (),
    seed: int = 1,
    drop_last: bool = False,
    with_ids: bool = False,
    kind: str = "auto",
    shuffle_buffer: int | None = None,
    cache_dir: str | Path | None = None,
) -> RowDataset:
    """Decodes a DataFrame's rows once, by a Spark job, for ranks that each read their own part while they train.

    What comes back travels to the ranks of `launch` by pickle. There it is iterated over: once through is an epoch, and
    the next time is the next epoch, in another order. No executor holds the set. The rows of a step are a function of
    the set, seed, `batch` and `shuffle_buffer`, and not of the number of ranks (docs/reference/data.md).

    Args:
        frame: numeric columns, or one column of arrays, vectors or binary, and the label's. No value is changed, so
            standardise them before.
        label: the column of the labels.
        classes: number of classes, with labels from 0 to classes - 1; None: the labels are numbers.
        batch: rows per step over all ranks, at least one each.
        columns: of the values; none: all but the label's.
        seed: of the order.
        drop_last: leave out the rows at the end of an epoch that make no whole batch. Without it, the last step has
            fewer rows; where those were fewer than the ranks, it must be set.
        with_ids: give the rows' numbers in the set too.
        kind: `torch`: tensors, and a `torch.utils.data.IterableDataset`, for a DataLoader with `batch_size=None`;
            `numpy`: arrays; `auto`: the first where PyTorch is installed beside the rank.
        shuffle_buffer: rows that are shuffled among each other at a time, over all ranks; None: 64 MiB of rows.
        cache_dir: folder for the decoded rows that driver and executors see; None: as of runs (`data.cache_dir`).

    Raises:
        ConfigurationError: the frame, its columns or a setting is not valid.
        RunFailedError: the rows could not be decoded.
    """
    frames.check(frame, "sparkdl_bench.dataset")
    if kind not in KINDS:
        raise ConfigurationError(f"kind = '{kind}'; valid are {', '.join(KINDS)}.")
    if label not in frame.columns:
        raise ConfigurationError(
            f"The DataFrame has no column '{label}'. Name the label's column with label='…'; its columns are "
            f"{', '.join(frame.columns[:20])}."
        )
    from sparkdl_bench import _jvm
    from sparkdl_bench.session import check_session

    check_session(frame.sparkSession)
    settings = {"data.source": "table", "data.label": label, "batch": str(batch), "seed": str(seed)}
    settings |= {"data.classes": str(classes)} if classes is not None else {"loss.name": "mean-squared"}
    if columns:
        settings["data.columns"] = ",".join(columns)
    if shuffle_buffer is not None:
        settings["data.shuffle_buffer"] = str(shuffle_buffer)
    if cache_dir is not None:
        settings["data.cache_dir"] = str(cache_dir)
    with frames.view_of(frame) as view:
        about = _jvm.Api(_jvm.jvm_of(frame.sparkSession)).feed({**settings, "data.table": view})
    return _made({**about, "batch": batch, "seed": seed, "drop_last": drop_last, "with_ids": with_ids}, kind, {})


class RowDataset:
    """The batches of a set, as `dataset` makes it; on a rank of a launch an iterable, for one thread.

    Attributes:
        rows: of the whole set.
        shape: of one row.
        classes: None where the labels are numbers.
        batch: rows per step over all ranks.
    """

    def __init__(self, about: Mapping[str, Any], kind: str) -> None:
        self._about, self._kind = dict(about), kind
        self.rows, self.batch = int(about["rows"]), int(about["batch"])
        self.shape = tuple(int(each) for each in about["shape"])
        self.classes = None if int(about["classes"]) == 1 else int(about["classes"])
        self._epoch, self._step = 0, 0
        self._opened: tuple[worker.Endpoint, worker.Rows] | None = None

    @property
    def rows_per_epoch(self) -> int:
        """Rows that an epoch gives: all, or those of whole steps."""
        return min(self.rows, len(self) * self.batch)

    def with_whole_steps(self) -> RowDataset:
        """The same set with `drop_last`."""
        return _made({**self._about, "drop_last": True}, self._kind, self.state_dict())

    def with_empty_shares(self) -> RowDataset:
        """The same set where a rank may be without rows in an epoch's last step, as in a run of a net by name.

        Without it, ranks refuse a set whose last step has fewer rows than there are ranks. With it, the last ranks get
        features and labels of no rows in that step. Every rank still takes `len(self)` steps, so a loop that exchanges
        in each step must do so in that one too; rank 0 always has rows.
        """
        return _made({**self._about, "empty_shares": True}, self._kind, self.state_dict())

    def __len__(self) -> int:
        """Steps of an epoch, the same on all ranks."""
        whole, rest = divmod(self.rows, self.batch)
        return whole + (1 if rest and not self._about["drop_last"] else 0)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rank's part of each step from where it stands to the end of the epoch.

        Gives (features, labels), with ids (features, labels, ids): features (rows, *shape) of fp32, labels int64 for
        classes and fp32 for numbers. They are the caller's own.

        Raises:
            ConfigurationError: this process is no rank of a launch, or a step would leave a rank without rows (but for
                `with_empty_shares`).
            RunFailedError: rows could not be read.
        """
        rows = self._here()
        epoch, steps = self._epoch, len(self)
        while self._epoch == epoch:
            at = epoch * rows.steps + self._step
            last = self._step + 1 == steps
            taken = rows.read(at, (epoch + 1) * rows.steps if last else at + 1)
            # Before it is given: a state that is taken between two batches goes on behind the first.
            self._epoch, self._step = (epoch + 1, 0) if last else (epoch, self._step + 1)
            yield self._given(taken)

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, for any number of ranks: all of them are at the same step."""
        about = self._about
        standing = (self._epoch, self._step, int(about["seed"]), self.batch, str(about["identity"]))
        return dict(zip(_STATE, standing, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a dataset of the same rows, seed and batch stood; the number of ranks may be another.

        Raises:
            ConfigurationError: it is a state of something else.
        """
        own = self.state_dict()
        if set(state) != set(_STATE):
            raise ConfigurationError(f"A state has {', '.join(_STATE)}, and this one {', '.join(map(str, state))}.")
        for name in _STATE[2:]:
            if state[name] != own[name]:
                raise ConfigurationError(
                    f"The state is of a dataset with {name} = {state[name]}, and this one has {own[name]}. It goes on "
                    "with the same rows, seed, batch and shuffle_buffer alone."
                )
        epoch, step = int(state["epoch"]), int(state["step"])
        if epoch < 0 or not 0 <= step < len(self):
            raise ConfigurationError(f"The state says epoch {epoch}, step {step} of {len(self)}; it is damaged.")
        self._epoch, self._step = epoch, step

    def _here(self) -> worker.Rows:
        """This rank's rows, opened where they are not."""
        endpoint = worker.current()
        if endpoint is None:
            raise ConfigurationError(
                "A dataset is read through the executor of a rank, and this process is none. Iterate over it in a "
                "function that sparkdl_bench.launch runs."
            )
        if self._opened is None or self._opened[0] is not endpoint:
            self._check(endpoint.size)
            self._opened = (endpoint, endpoint.rows(self._about["settings"]))
        return self._opened[1]

    def _check(self, ranks: int) -> None:
        rest = self.rows % self.batch
        if len(self) == 0:
            raise ConfigurationError(
                f"The set has {self.rows} rows, fewer than batch = {self.batch}, and drop_last leaves none of them."
            )
        may_be_empty = self._about["drop_last"] or self._about.get("empty_shares", False)
        if self.batch < ranks or (0 < rest < ranks and not may_be_empty):
            least = f"the last step of an epoch has {rest} rows" if self.batch >= ranks else f"a step has {self.batch}"
            raise ConfigurationError(
                f"Some of the {ranks} ranks would be without rows: {least}. Set drop_last=True, or another batch."
            )

    def _given(self, taken: worker.Taken) -> tuple[Any, ...]:
        labels: Any = taken.labels if self.classes is not None else taken.labels.astype(np.int32).view(np.float32)
        given: tuple[Any, ...] = (taken.features.reshape(-1, *self.shape), labels)
        return (*given, taken.ids) if self._about["with_ids"] else given

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._about, self._kind, self.state_dict())


def _made(about: Mapping[str, Any], kind: str, state: Mapping[str, Any]) -> RowDataset:
    """Of the kind that this process can have; PyTorch may be beside the ranks alone."""
    made = RowDataset(about, kind) if kind == "numpy" else _of_torch(kind)(about, kind)
    if state:
        made.load_state_dict(state)
    return made


@cache
def _of_torch(kind: str) -> type[RowDataset]:
    """The same for PyTorch; without it NumPy's, unless tensors were asked for and there is a rank to take them."""
    try:
        import torch
        from torch.utils.data import IterableDataset, get_worker_info
    except ImportError as error:
        if kind == "torch" and worker.current() is not None:
            raise ConfigurationError(
                "dataset(kind='torch') gives tensors, and PyTorch is not installed beside this rank. Install it on the "
                "executors, or take kind='numpy'."
            ) from error
        return RowDataset

    class TorchRows(RowDataset, IterableDataset):  # type: ignore[type-arg,misc,unused-ignore]
        """A RowDataset that gives tensors."""

        def __iter__(self) -> Iterator[tuple[Any, ...]]:
            if get_worker_info() is not None:
                raise ConfigurationError(
                    "A dataset is read by the rank's own process, through its executor, which reads ahead by itself. "
                    "Leave the DataLoader's num_workers at 0."
                )
            return super().__iter__()

        def _given(self, taken: worker.Taken) -> tuple[Any, ...]:
            return tuple(torch.from_numpy(each) for each in super()._given(taken))

    return TorchRows
