"""A module of PyTorch's at work: predictions on DataFrames, by Python workers through Arrow, and on arrays, here."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from sparkdl_bench import connect, evaluation, exports, frames, outcomes, saved
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text, replacing
from sparkdl_bench.rows import check_labels, stored_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FACTS, _PROGRAM = saved.OF_A_MODULE
_SCHEMA = 1
_ROWS_AT_ONCE = 1024
# Formats of `export`, by suffix.
_EXPORTS = {".pt2": "torch-export", ".pt": "state-dict", ".pth": "state-dict", ".npz": "npz"}


class ModuleModel:
    """A trained `torch.nn.Module` with what is done to a row before it: `sparkdl_bench.Model` for nets of one's own.

    A row's values are fp32, rows × width, standardised by the training rows where the training did so. The module
    gives a score for each class before the softmax, rows × classes, or one number a row.

    Attributes:
        module: in evaluation mode; None where the model was read from disk, which has its computation alone.
    """

    def __init__(self, module: torch.nn.Module | None, facts: Mapping[str, Any], program: bytes | None = None) -> None:
        """Args:
        facts: `width`, `classes` (1: it predicts a number), `labels`, `columns`, `subtract` and `multiply` (lists as
            long as a row, or empty).
        program: in place of a module what `torch.export.save` wrote of it.
        """
        self.module = module.eval() if module is not None else None
        self._facts, self._program = dict(facts), program
        self._loaded: Any = None
        self._rows_at_once = _ROWS_AT_ONCE

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def __repr__(self) -> str:
        name = type(self.module).__name__ if self.module is not None else "saved module"
        gives = "one number" if self.is_regression else f"{self.classes} classes"
        return f"ModuleModel({name}: rows of {self.shape[0]} values, {gives})"

    @property
    def classes(self) -> int:
        """How many classes it tells apart; 1 of a regression."""
        return int(self._facts["classes"])

    @property
    def is_regression(self) -> bool:
        """Whether it predicts a number."""
        return self.classes == 1

    @property
    def is_binary(self) -> bool:
        """False: classes have a score each."""
        return False

    @property
    def is_multilabel(self) -> bool:
        """False: a row has one class."""
        return False

    @property
    def labels(self) -> list[str]:
        """The names of class 0, 1, …; empty where these have numbers alone."""
        return [str(each) for each in self._facts["labels"]]

    @property
    def columns(self) -> list[str]:
        """The columns it was trained on."""
        return [str(each) for each in self._facts["columns"]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row."""
        return (int(self._facts["width"]),)

    def with_labels(self, labels: Sequence[str]) -> ModuleModel:
        """The same model with other names of its classes; none: numbers alone.

        Raises:
            ConfigurationError: they are not as many as the classes.
        """
        check_labels(labels, self.classes)
        return ModuleModel(self.module, {**self._facts, "labels": [str(each) for each in labels]}, self._program)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights by name, as the module has them."""
        state: dict[str, torch.Tensor] = self._callable().state_dict()
        return state

    def torch_module(self) -> Any:
        """The net as a `torch.nn.Module`: rows as they are stored, rows × values, to what `scores` gives.

        The module itself where rows are not standardised; else one that standardises them and holds it as `module`. Of
        a model that was read from disk it is the computation alone, which takes two rows and more.
        """
        module = self._callable()
        if not self._facts["subtract"]:
            return module
        return _Standardizing(module, self._facts["subtract"], self._facts["multiply"])

    def export(self, path: str | Path, format: str | None = None) -> None:  # noqa: A002 (as users write it)
        """Writes the model to a file for other programs, whole or not at all.

        Args:
            path: of the file; its suffix is the format's:

                - `.pt2`: the computation of `torch_module()` as `torch.export` writes it, standardisation included;
                - `.pt` or `.pth`: PyTorch's state_dict of the module, the weights alone;
                - `.npz`: the weights as NumPy's archive, fp32.

            format: `torch-export`, `state-dict` or `npz`, where the suffix does not say it.

        Raises:
            ConfigurationError: no such format; torch.export cannot write this module.
            WriteError: the file cannot be written.
        """
        path = Path(path)
        chosen = export_format(path, format)
        with replacing(path) as partial:
            if chosen == "torch-export":
                partial.write_bytes(self._exported(self.torch_module()))
            elif chosen == "state-dict":
                with partial.open("wb") as file:
                    torch.save(self.state_dict(), file)
            else:
                weights = {name: each for name, each in self.state_dict().items() if not exports.is_counter(name)}
                saved.write_arrays(
                    partial, {name: each.detach().to("cpu", torch.float32).numpy() for name, each in weights.items()}
                )

    def scores(self, rows: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The module's outputs, rows × classes, of the same rows as `predict` takes."""
        found = stored_rows(rows, self.shape, self.columns)
        if self._facts["subtract"]:
            subtract, multiply = (np.asarray(self._facts[name], np.float32) for name in ("subtract", "multiply"))
            found = (found - subtract) * multiply
        module = self._callable()
        size = self._rows_at_once
        with torch.inference_mode():
            parts = [self._computed(module, found[at : at + size]) for at in range(0, len(found), size)]
        return np.concatenate(parts) if parts else np.zeros((0, self.classes), np.float32)

    def predict(self, rows: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        """As `Model.predict`: labels and probabilities; of a regression numbers, and no probabilities.

        Raises:
            ConfigurationError: rows of another shape; a frame without one of the columns; values that are not finite.
        """
        scores = self.scores(rows)
        if self.is_regression:
            return scores[:, 0].astype(np.float64), np.zeros((len(scores), 0))
        _, probabilities, best = outcomes.of_classes(scores)
        return np.asarray(self.labels)[best] if self.labels else best, probabilities

    def transform(
        self,
        frame: DataFrame,
        features: str | Sequence[str] = (),
        *,
        raw_prediction: str = "rawPrediction",
        probability: str = "probability",
        prediction: str = "prediction",
        label: str = "",
        batch: int = _ROWS_AT_ONCE,
        handle_invalid: str = "error",
    ) -> DataFrame:
        """As `Model.transform`, by the executors' Python workers: they need this package, PyTorch, PyArrow and pandas,
        and the module's class where it is defined in a file of its own.

        Args:
            batch: rows that the module computes at once, at most: Spark hands a worker up to
                `spark.sql.execution.arrow.maxRecordsPerBatch` of them.
        """
        if not frames.is_of_connect(frame):
            frames.check(frame, "transform", " For an array call predict(array).")
        named = {"raw_prediction": raw_prediction, "probability": probability, "prediction": prediction, "label": label}
        columns = [features] if isinstance(features, str) else list(features)
        size = sum(each.numel() * each.element_size() for each in self.state_dict().values())
        of_connect = frames.is_of_connect(frame)
        with nullcontext() if of_connect else frames.own_python(frame.sparkSession.sparkContext):
            predicted = connect.transformed(
                frame, self._with_batch(batch), columns, named, handle_invalid, size if of_connect else 0
            )
        if not (self.labels and prediction):
            return predicted
        return predicted.withMetadata(
            prediction, {"ml_attr": {"name": prediction, "type": "nominal", "vals": self.labels}}
        )

    def evaluate(
        self, frame: DataFrame, features: str | Sequence[str] = (), *, label: str = "label", weight: str = ""
    ) -> dict[str, float]:
        """As `Model.evaluate`."""
        return evaluation.of_model(self, frame, features, label, weight)

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, which `load_model` reads: the computation as `torch.export` writes it, which
        runs without the module's class, and what is done to a row. A model that was there before is replaced.

        Raises:
            ConfigurationError: torch.export cannot write this module.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / _PROGRAM) as partial:
            partial.write_bytes(self._exported(self.module))
        replace_text(folder / FACTS, json.dumps({"schema": _SCHEMA, **self._facts}, ensure_ascii=False) + "\n")
        saved.remove(folder, saved.OF_A_NET)

    def _with_batch(self, size: int) -> ModuleModel:
        """The same model, which computes at most so many rows at once."""
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ConfigurationError(
                f"batch is {size!r}; it is how many rows the module computes at once, a whole number of at least 1."
            )
        chosen = copy.copy(self)
        chosen._rows_at_once = int(size)
        return chosen

    def _exported(self, module: Any) -> bytes:
        """What `torch.export.save` writes of a module of rows; of this model's own as it was read, where it was."""
        if self._program is not None and module in (None, self._loaded):
            return self._program
        written = io.BytesIO()
        try:
            rows = torch.export.Dim("rows")
            program = torch.export.export(module, (torch.zeros(2, *self.shape),), dynamic_shapes=({0: rows},))
            torch.export.save(program, written)
        except Exception as error:  # whatever torch.export's compiler meets in a user's code
            raise ConfigurationError(
                f"torch.export cannot write this module: {str(error).splitlines()[0]}. It writes modules without "
                "branches that depend on values. Keep the weights yourself: torch.save(model.net.state_dict(), path)."
            ) from error
        return written.getvalue()

    def _callable(self) -> Any:
        if self.module is not None:
            return self.module
        if self._loaded is None:
            self._loaded = torch.export.load(io.BytesIO(self._program or b"")).module()
        return self._loaded

    def _computed(self, module: Any, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        # What torch.export wrote takes two rows and more.
        padded = np.repeat(rows, 2, axis=0) if self.module is None and len(rows) == 1 else rows
        found: npt.NDArray[np.float32] = module(torch.from_numpy(np.ascontiguousarray(padded))).float().numpy()
        return found.reshape(len(padded), self.classes)[: len(rows)]


class _Standardizing(torch.nn.Module):
    """A module of standardised rows as one of rows as they are stored."""

    def __init__(self, module: Any, subtract: Sequence[float], multiply: Sequence[float]) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("_subtract", torch.tensor(subtract, dtype=torch.float32), persistent=False)
        self.register_buffer("_multiply", torch.tensor(multiply, dtype=torch.float32), persistent=False)
        # Not eval(), which what torch.export wrote refuses.
        self.training = False

    def forward(self, stored: Any) -> Any:
        return self.module((stored - self._subtract) * self._multiply)


def export_format(path: Path, name: str | None = None) -> str:
    """The format of a module's file: by name, or else by the path's suffix.

    Raises:
        ConfigurationError: it is none of `_EXPORTS`.
    """
    chosen = _EXPORTS.get(path.suffix.lower()) if name is None else name.replace("_", "-")
    if chosen in _EXPORTS.values():
        return str(chosen)
    given = f"The suffix of '{path}' names no format" if name is None else f"There is no format '{name}'"
    valid = "; ".join(f"{suffix} ({each})" for suffix, each in _EXPORTS.items())
    raise ConfigurationError(
        f"{given} of a PyTorch module. Valid: {valid}. For ONNX call PyTorch's own exporter with the module: "
        "torch.onnx.export(model.torch_module(), …)."
    )


def load(folder: Path) -> ModuleModel:
    """What `ModuleModel.save` wrote.

    Raises:
        ConfigurationError: it is damaged, or of a later version.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        program = (folder / _PROGRAM).read_bytes()
        if facts.pop("schema") != _SCHEMA:
            raise ValueError("it is of another version")
        width, classes = int(facts["width"]), int(facts["classes"])
        fits = (
            {len(facts["subtract"]), len(facts["multiply"])} in ({0}, {width})
            and len(facts["labels"]) in (0, classes)
            and len(facts["columns"]) >= 0
        )
        if width < 1 or classes < 1 or not fits:
            raise ValueError("its numbers do not fit each other")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"The folder '{folder}' holds no whole model of a PyTorch module: {error}. Take it as save(folder) wrote "
            "it."
        ) from error
    return ModuleModel(None, facts, program)
