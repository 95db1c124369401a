"""Reads what a run left in its results folder: `run.json`, `events.jsonl`, `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import load_json, replace_text

# Of a run's files (RunFolder.Schema). Older ones are read as they are: no version has changed a file's meaning yet.
SCHEMA = 1

_REMEDY = "Give the folder of one run, such as results/<time>-<name>."


@dataclass(frozen=True)
class RunResults:
    """One results folder. Files are read when asked for."""

    folder: Path

    @property
    def run(self) -> dict[str, Any]:
        """The complete configuration, versions, host, seeds and Spark properties."""
        return self._object("run.json")

    @property
    def summary(self) -> dict[str, Any]:
        """`status`, `final`, `phases_ms`, `bytes` by channel, `counts`, `variant`, `workers`, `batch`, `history`."""
        return self._object("summary.json")

    def close(self, status: str, reason: str) -> None:
        """Writes a `summary.json` for a run whose JVM could not write one any more; one that is there stays."""
        if (self.folder / "summary.json").exists() or not self.folder.is_dir():
            return
        final = dict.fromkeys(("test_accuracy", "test_loss", "train_loss", "seconds_total"))
        summary = {
            "schema": SCHEMA,
            "status": status,
            "error": reason,
            "final": final,
            "phases_ms": {},
            "ranks": [],
            "bytes": {},
            "counts": {},
            "history": [],
        }
        replace_text(self.folder / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch: `epoch`, `seconds` (its length), `train_loss`, `test_loss`, `test_accuracy`.

        Of a regression `test_mae`, `test_rmse` and `test_r2` in place of the accuracy, which is None.
        Else also precision, recall and F1: `test_f1_macro`, the mean over classes or labels, and so on; of two
        classes `test_f1`, `test_precision` and `test_recall` of class 1 and `test_auc`; of rows with several labels
        `test_f1_micro`, … of all labels at once.
        """
        history = self.summary.get("history", [])
        if not isinstance(history, list):
            raise ConfigurationError(
                f"'history' in '{self.folder / 'summary.json'}' is a {type(history).__name__}; it must be a list "
                "of epochs."
            )
        return history

    @property
    def events(self) -> list[dict[str, Any]]:
        """The run's events in the order of their writing. A last line cut short, as a kill leaves it, is left out."""
        # As bytes: a kill may leave the last line cut inside of a character.
        lines = self._bytes("events.jsonl").splitlines()
        events = []
        for number, line in enumerate(lines, start=1):
            try:
                events.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                if number < len(lines):
                    raise ConfigurationError(
                        f"Line {number} of '{self.folder / 'events.jsonl'}' is not JSON: {error}."
                    ) from error
        return events

    @property
    def sampler_share(self) -> float | None:
        """Share of a core that sampling resources took, in the process where it took most; None where none told."""
        if not (self.folder / "resources.json").is_file():
            return None
        processes = self._object("resources.json")
        try:
            shares = [
                float(each["sampler_cpu_seconds"]) / float(each["sampler_seconds"])
                for each in processes["processes"]
                if each.get("sampler_cpu_seconds", -1) >= 0 and each.get("sampler_seconds", 0) > 0
            ]
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"'{self.folder / 'resources.json'}' does not say what sampling took: {error!r}."
            ) from error
        return max(shares, default=None)

    def _object(self, name: str) -> dict[str, Any]:
        return load_json(self.folder / name, SCHEMA, {}, "a file of a run", remedy=_REMEDY, unnumbered=SCHEMA)

    def _bytes(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"'{self.folder / name}' cannot be read: {error.strerror}. {_REMEDY}") from error


def measures(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `final` of a summary says about the test rows, for people: the accuracy, or a regression's errors."""
    if "test_rmse" not in final:
        shares = [("test accuracy", "test_accuracy"), ("test F1", "test_f1"), ("test AUC", "test_auc")]
        shares.append(("test F1 over all labels", "test_f1_micro"))
        return [
            (text, _written(final.get(name), "{:.2%}"))
            for text, name in shares
            if name == "test_accuracy" or final.get(name) is not None
        ]
    return [
        ("test MAE", _written(final.get("test_mae"), "{:.5g}")),
        ("test RMSE", _written(final.get("test_rmse"), "{:.5g}")),
        ("test R²", _written(final.get("test_r2"), "{:.4f}")),
    ]


def _written(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)


def describe_bytes(count: float) -> str:
    """`1234567` as `1.23 MB` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"
