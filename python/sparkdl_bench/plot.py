"""Draws a run's loss and accuracy over time: the epochs' seconds, evaluation included, added up."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replacing
from sparkdl_bench.results import RunResults


def draw(results: RunResults) -> Path:
    """Writes `plot.png` into the results folder and returns its path.

    Raises:
        ConfigurationError: matplotlib is not installed, or the run has no finished epoch.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigurationError(
            "plot.png needs matplotlib, which is not installed. Install it with pip install 'sparkdl-bench[plot]'; "
            "page.html shows the same without it."
        ) from error
    history = results.history
    if not history:
        raise ConfigurationError(f"The run in '{results.folder}' has no finished epoch, so there is nothing to draw.")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    _line(loss, history, "train_loss", "train")
    _line(loss, history, "test_loss", "test")
    loss.set(xlabel="seconds", ylabel=_loss_label(history), title="Loss")
    loss.legend()
    if any("test_rmse" in record for record in history):
        _line(accuracy, history, "test_rmse", "RMSE")
        _line(accuracy, history, "test_mae", "MAE")
        accuracy.set(xlabel="seconds", ylabel="error, in the label's unit", title="Test errors")
        accuracy.legend()
    else:
        _line(accuracy, history, "test_accuracy", "test")
        accuracy.set(xlabel="seconds", ylabel="accuracy", title="Test accuracy")
    for axes in (loss, accuracy):
        axes.grid(alpha=0.3)
        axes.set_xlim(left=0)
    figure.suptitle(str(results.run.get("configuration", {}).get("name", results.folder.name)))
    path = results.folder / "plot.png"
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    return path


def draw_where_possible(results: RunResults) -> Path | None:
    """As `draw`; None where matplotlib is not installed or no epoch has finished, because nobody has asked for it."""
    try:
        return draw(results)
    except ConfigurationError:
        return None


def _loss_label(history: list[dict[str, Any]]) -> str:
    return "loss" if any("test_rmse" in record for record in history) else "loss (nats)"


def _line(axes: Any, history: list[dict[str, Any]], key: str, label: str) -> None:
    ends = accumulate(record["seconds"] for record in history)
    points = [(end, record[key]) for end, record in zip(ends, history, strict=True) if record.get(key) is not None]
    if points:
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
