"""Rows that somebody gives a trained model on the driver, as the array that it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import listed, suggestion


def stored_rows(rows: Any, shape: Sequence[int], columns: Sequence[str]) -> npt.NDArray[np.float32]:
    """The rows of an array or a frame of pandas, rows × values, fp32: finite and as many values as the model takes.

    Args:
        shape: of a row.
        columns: the names of those that the model was trained on.

    Raises:
        ConfigurationError: they are not such rows.
    """
    width = math.prod(shape)
    try:
        found = np.asarray(_of_frame(rows, columns, width) if _is_pandas(rows) else rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The rows are no array of numbers ({error}). Give an array of rows × {width} values."
        ) from error
    if found.shape in ((width,), tuple(shape)):
        found = found[np.newaxis]
    if found.shape[1:] not in ((width,), tuple(shape)):
        raise ConfigurationError(
            f"The array has the shape {found.shape}, and the model takes rows of {' × '.join(map(str, shape))} values: "
            f"an array of shape (rows, {', '.join(map(str, shape))})."
        )
    flat = found.reshape(len(found), width)
    wrong = np.argwhere(~np.isfinite(flat))
    if len(wrong):
        row, value = wrong[0]
        name = f" (column '{columns[value]}')" if len(columns) == width else ""
        raise ConfigurationError(
            f"Value {value}{name} of row {row} is {flat[row, value]}, no finite number. Leave such rows out."
        )
    return flat


def check_labels(labels: Sequence[str], classes: int) -> None:
    """Refuses names of classes that are not as many as the classes, and not none."""
    if len(labels) not in (0, classes):
        raise ConfigurationError(
            f"There are {len(labels)} labels, and the model tells {classes} classes apart. Name each class once."
        )


def _is_pandas(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _of_frame(frame: Any, columns: Sequence[str], width: int) -> Any:
    """A frame's values in the order of the training: its columns by their names, where both have names."""
    names = list(frame.columns)
    if len(columns) == 1 and columns[0] in names and len(frame) and np.ndim(frame[columns[0]].iloc[0]):
        return np.stack([np.asarray(each, np.float32) for each in frame[columns[0]]])
    # Trained on a column of lists, whose values have no names.
    if len(columns) != width or not any(isinstance(name, str) for name in names):
        return frame.to_numpy(dtype=np.float32)
    missing = [name for name in columns if name not in names]
    if missing:
        raise ConfigurationError(
            f"The frame has no column '{missing[0]}', which is one of those that the model was trained on."
            f"{suggestion(missing[0], map(str, names))} Its columns are {listed([str(name) for name in names], 20)}. "
            "Rename them as they were then, or give an array of the values in the model's order: frame.to_numpy()."
        )
    return frame[list(columns)].to_numpy(dtype=np.float32)
