"""Trained models at work: predictions on DataFrames, by the executors' JVMs, and on arrays, here."""

from __future__ import annotations

import importlib.util
import math
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from sparkdl_bench import _jvm, connect, engines, evaluation, exports, frames, models, outcomes, saved
from sparkdl_bench.config import as_text
from sparkdl_bench.engines.numpy import KINDS, NumpyEngine
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.rows import check_labels, stored_rows
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_AT_ONCE = 1024


class Model:
    """A trained model. `FitResult.model()` gives one, `load_model(folder)` reads one from disk.

    A row goes through what the training did to its test rows: scaling, normalisation and the window in the centre of an
    image, by the numbers that were saved with the model.
    """

    def __init__(self, model: saved.SavedModel) -> None:
        self._saved = model
        self._spec = models.read(model.specification)
        self._input = model.input or {"shape": list(self._spec.input_shape)}
        self._folder: Path | None = None
        self._onnx: Any = None
        _check_weights(self._spec, model.weights)
        _check_input(self._spec, self._input)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which has neither this one's files nor its session of ONNX Runtime."""
        return {**self.__dict__, "_folder": None, "_onnx": None}

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.shape))
        what = "labels" if self.is_multilabel else "classes"
        gives = "one number" if self.is_regression else f"{self.classes} {what}"
        return f"Model({self._spec.name}: rows of {shape} values, {gives})"

    @property
    def classes(self) -> int:
        """How many classes it tells apart, or labels a row may have; 1 of a regression, which predicts a number."""
        return _classes(self._spec, self._input)

    @property
    def is_regression(self) -> bool:
        """Whether it predicts a number, as one trained with a loss of a regression does."""
        return self._spec.classes == 1 and not self.is_binary

    @property
    def is_binary(self) -> bool:
        """Whether each output is the score of an answer, no or yes, as `binary-cross-entropy` trains them."""
        return bool(self._input.get("binary"))

    @property
    def is_multilabel(self) -> bool:
        """Whether a row may have any number of the labels, in place of one class."""
        return self.is_binary and self._spec.classes > 1

    @property
    def labels(self) -> list[str]:
        """The names of class 0, 1, …, or of the labels; empty where these have numbers alone."""
        return [str(each) for each in self._input.get("labels", [])]

    @property
    def columns(self) -> list[str]:
        """The columns it was trained on: one of lists, or numeric ones in this order; empty where there were none."""
        return [str(each) for each in self._input.get("columns", [])]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row, before the model's own preprocessing."""
        return tuple(int(size) for size in self._input["shape"])

    @property
    def needs_numpy_alone(self) -> bool:
        """Whether `predict` of an array needs neither a JVM nor ONNX Runtime: the net is a perceptron."""
        return _is_chain(self._spec)

    @property
    def specification(self) -> dict[str, Any]:
        """The layers, as `model.json` has them."""
        return self._saved.specification

    def with_labels(self, labels: Sequence[str]) -> Model:
        """The same model with other names of its classes; none: numbers alone."""
        check_labels(labels, self.classes)
        rows = {**self._input, "labels": [str(each) for each in labels]}
        return Model(saved.SavedModel(self._saved.specification, self._saved.weights, rows))

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, which `load_model` reads."""
        saved.save(Path(path), self._saved.specification, self._saved.weights, self._input)

    def export(self, path: str | Path, format: str | None = None) -> None:  # noqa: A002 (as users write it)
        """Writes the model to a file for other programs, whole or not at all.

        Args:
            path: of the file; its suffix is the format's:

                - `.onnx`: rows as they are stored → `scores` and `probabilities`, preprocessing included;
                - `.safetensors`: the weights, with layers and preprocessing as metadata;
                - `.pt` or `.pth`: PyTorch's state_dict, for `torch_module` or a net of your own with the same names;
                - `.npz`: the weights as NumPy's archive.

            format: `onnx`, `safetensors`, `state-dict` or `npz`, where the suffix does not say it.

        Raises:
            ConfigurationError: no such format; a package that is not installed (the message names the extra).
            WriteError: the file cannot be written.
        """
        exports.write(
            saved.SavedModel(self.specification, self._saved.weights, self._input), self._spec, Path(path), format
        )

    def torch_module(self) -> Any:
        """The model as a `torch.nn.Module` in evaluation mode: rows as they are stored, rows × the row's shape, to
        class scores, rows × classes. Its state_dict is what `export` writes. Needs PyTorch (the extra `torch`).
        """
        from sparkdl_bench.exports import state_dict

        return state_dict.module(self._spec, saved.SavedModel(self.specification, self._saved.weights, self._input))

    def transform(
        self,
        frame: DataFrame,
        features: str | Sequence[str] = (),
        *,
        raw_prediction: str = "rawPrediction",
        probability: str = "probability",
        prediction: str = "prediction",
        label: str = "",
        batch: int = 256,
        handle_invalid: str = "error",
        **engine: Any,
    ) -> DataFrame:
        """The frame with predictions behind its own columns. Nothing is computed before Spark asks for rows.

        A regression gives the column `prediction` alone: the number. The others below are of classes. Where a row may
        have several labels, the vectors have a value for each, `prediction` is a vector of 1 and 0, and `label` has the
        names of the row's labels with commas between.

        The executors' JVMs compute, without a Python worker, each task for itself: any number of tasks, in batch and in
        Structured Streaming. In a Spark Connect session Python workers compute, as `predict` does: they need this
        package, PyArrow and pandas, and for other nets than perceptrons `onnx` and `onnxruntime`.

        Args:
            frame: of a classic session with our jar, or of a Spark Connect session; a stream's, too.
            features: a column with an array or a vector, or names of numeric columns in the order of the training;
                none: the columns that the model was trained on.
            raw_prediction: name of the column of class scores before the softmax, a vector; "" for none.
            probability: of the classes' probabilities, a vector; "" for none.
            prediction: of the most likely class's number, a double, as Spark ML has it; "" for none. Where classes have
                names, the column's metadata has them for `IndexToString`.
            label: of that class's name, a string; "" for none.
            batch: rows that are computed at once; with Spark Connect Spark's own batches are.
            handle_invalid: what a row does whose values are null, NaN, infinite or of the wrong number: `error` ends
                the job and names row and column, `skip` leaves the row out, `keep` keeps it with null predictions.
            engine: keys of the engine: `engine__name="numpy"`, `engine__blas="openblas"`.

        Raises:
            ConfigurationError: columns that are not there, or not what the model takes; no job was started.
        """
        columns = [features] if isinstance(features, str) else list(features)
        if frames.is_of_connect(frame):
            if engine:
                raise ConfigurationError(
                    f"{', '.join(engine)}: in a Spark Connect session Python workers compute the predictions, with "
                    "NumPy or ONNX Runtime, and there is no engine to choose. Leave it out."
                )
            named = {"raw_prediction": raw_prediction, "probability": probability, "prediction": prediction}
            named["label"] = label
            size = sum(array.nbytes for array in self._saved.weights.values())
            return connect.transformed(frame, self, columns, named, handle_invalid, size)
        frames.check(frame, "transform", " For an array call predict(array).")
        spark = frame.sparkSession
        api = check_session(spark)
        settings = {
            "raw_prediction": raw_prediction,
            "probability": probability,
            "prediction": prediction,
            "label": label,
            "batch": str(batch),
            "handle_invalid": handle_invalid,
            **{_engine_key(key): as_text(key, value, "the call of transform") for key, value in engine.items()},
        }
        with frames.view_of(frame) as view, frames.result_view(spark) as result:
            api.transform(str(self._on_disk()), view, result, columns, settings)
            return spark.table(result)

    def evaluate(
        self, frame: DataFrame, features: str | Sequence[str] = (), *, label: str = "label", weight: str = ""
    ) -> dict[str, float]:
        """How good the predictions on a DataFrame are, by Spark jobs; the numbers are scikit-learn's within rounding.

        Args:
            frame: rows at rest, with a label. Rows whose features are null or not finite do not count, nor do those
                whose label is null or NaN.
            features: as in `transform`.
            label: the column of class numbers, or of their names where the model has such: names that are numbers go by
                their values, as in the training. Of numbers for a regression; of arrays or vectors with 0 or 1 for each
                label where a row may have several.
            weight: a column of finite numbers of at least 0, how much each row counts, of 0 not at all; "": all alike.

        Returns:
            `rows` that counted, and

            - of classes `accuracy`, `log_loss`, and `precision`, `recall` and `f1` as means over the classes
              (`f1_macro`) and by the classes' rows (`f1_weighted`); of two classes also those of class 1 (`f1`) and
              `auc`, the area under the ROC curve;
            - of several labels a row `accuracy` (rows whose labels are all right), `log_loss` (mean over the labels),
              and `precision`, `recall` and `f1` of all labels at once (`f1_micro`) and as means over the labels;
            - of a regression `mae`, `rmse` and `r2`.

        Raises:
            ConfigurationError: columns that are not there; labels that are none of the model's classes; weights that
                are null, not finite or below 0, or all 0.
        """
        return evaluation.of_model(self, frame, features, label, weight)

    def predict(self, rows: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        """Labels and probabilities of an array's rows, computed in this process: for a few rows.

        A perceptron needs NumPy alone. Other nets are computed by the JVM of the Spark session that this process has,
        or else by ONNX Runtime, where it and `onnx` are installed.

        Args:
            rows: rows × values, or rows × the row's shape; one row may come alone. Of a frame of pandas whose columns
                have names those that the model was trained on are taken, by name.

        Returns:
            the label of each row (names where the classes have such, else numbers), and the classes' probabilities,
            rows × classes. Of a regression the number predicted for each row, fp64, and no probabilities: rows × 0.
            Where a row may have several labels 1 or 0 for each, and each label's probability: rows × labels.

        Raises:
            ConfigurationError: rows of another shape; a frame without one of the columns; values that are not finite; a
                net for which there is no JVM.
        """
        scores = self.scores(rows)
        if self.is_regression:
            return scores[:, 0].astype(np.float64), np.zeros((len(scores), 0))
        outcome = outcomes.of_answers if self.is_binary else outcomes.of_classes
        _, probabilities, best = outcome(scores)
        return np.asarray(self.labels)[best] if self.labels and not self.is_multilabel else best, probabilities

    def scores(self, rows: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The class scores before the softmax, rows × classes, of the same rows as `predict` takes.

        Of a regression the numbers, rows × 1; of classes 0 and 1 by one output the score of class 1, rows × 1.
        """
        stored = stored_rows(rows, self.shape, self.columns)
        return self._scores(stored) if len(stored) else np.zeros((0, self._spec.classes), np.float32)

    def _scores(self, stored: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if _is_chain(self._spec):
            return self._numpy_scores(self._features(stored))
        if not _jvm.is_running() or not _jvm.has_api(_jvm.running()):
            if self._onnx is None and _has_onnx():
                self._onnx = self._onnx_session()
            if self._onnx is not None:
                return self._onnx_scores(stored)
            kinds = sorted({layer.kind for layer in self._spec.layers} - set(KINDS))
            raise ConfigurationError(
                f"The model has layers of kind {', '.join(kinds)}, which the JVM computes, and this process has none "
                "with our jar. Start a session first: "
                "spark = sparkdl_bench.configure(SparkSession.builder).getOrCreate(). To predict without Spark, "
                "install ONNX and its runtime: pip install 'sparkdl-bench[mlflow]'."
            )
        api = _jvm.Api(_jvm.running())
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-") as folder:
            rows, scores = Path(folder) / "rows.f32", Path(folder) / "scores.f32"
            stored.astype("<f4").tofile(rows)
            api.scores(str(self._on_disk()), str(rows), str(scores))
            return (
                np.fromfile(scores, dtype="<f4").astype(np.float32, copy=False).reshape(len(stored), self._spec.classes)
            )

    def _onnx_session(self) -> Any:
        """ONNX Runtime's session of the exported model; a session keeps the file in memory."""
        import onnxruntime

        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-") as folder:
            file = Path(folder) / "model.onnx"
            self.export(file)
            return onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])

    def _onnx_scores(self, stored: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        rows = stored.reshape(len(stored), *self.shape)
        some = range(0, len(rows), _ROWS_AT_ONCE)
        parts = [self._onnx.run(["scores"], {"rows": rows[at : at + _ROWS_AT_ONCE]})[0] for at in some]
        return np.concatenate(parts).astype(np.float32, copy=False).reshape(len(stored), self._spec.classes)

    def _features(self, stored: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """As RowInput.features in the JVM."""
        found = (stored.astype(np.float64) * float(self._input.get("factor", 1))).astype(np.float32)
        if self._input.get("subtract"):
            subtract, multiply = (np.asarray(self._input[name], np.float32) for name in ("subtract", "multiply"))
            found = (found - subtract) * multiply
        if crop := int(self._input.get("crop", 0)):
            channels, height, width = self.shape
            top, left = (height - crop) // 2, (width - crop) // 2
            images = found.reshape(len(found), channels, height, width)
            found = images[:, :, top : top + crop, left : left + crop].reshape(len(found), -1)
        return found

    def _numpy_scores(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        flat = np.concatenate([self._saved.weights[place.name].ravel() for place in self._spec.parameters])
        memory = engines.Memory(flat.astype(np.float32, copy=False), np.empty(0, np.float32), np.empty(0, np.float32))
        engine = NumpyEngine(self._spec, 0, False, memory)
        some = range(0, len(features), _ROWS_AT_ONCE)
        parts = [features[start : start + _ROWS_AT_ONCE] for start in some]
        scores = [engine.predict(engines.Batch(part, np.zeros(len(part), np.int64))) for part in parts]
        return np.concatenate(scores).astype(np.float32, copy=False)

    def _on_disk(self) -> Path:
        """A folder with the model, for the JVM, as long as this object lives."""
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="sparkdl-bench-model-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.save(folder)
            self._folder = folder
        return self._folder


def load_model(folder: str | Path) -> Model:
    """Reads a model that `FitResult.save`, `Model.save` or `sparkdl-bench run` (its folder `model`) wrote; of a PyTorch
    module of one's own a `sparkdl_bench.torch.ModuleModel`, which has the same methods.

    Raises:
        ConfigurationError: the folder holds no saved model, or one that is not whole.
    """
    if (Path(folder) / saved.OF_A_MODULE[0]).is_file():
        try:
            from sparkdl_bench.torch import trained
        except ImportError as error:
            raise ConfigurationError(
                f"The model in '{folder}' is a PyTorch module, and PyTorch is not installed here: pip install "
                "'sparkdl-bench[torch]'."
            ) from error
        module: Any = trained.load(Path(folder))
        return cast(Model, module)
    return Model(saved.load(folder))


def _classes(spec: models.ModelSpec, rows: Mapping[str, Any]) -> int:
    """As SavedModel.classes in the JVM: one output whose sigmoid is a probability tells two classes apart."""
    return 2 if spec.classes == 1 and rows.get("binary") else spec.classes


def _has_onnx() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def _engine_key(keyword: str) -> str:
    name = keyword.replace("__", ".")
    if not name.startswith("engine."):
        raise ConfigurationError(
            f"transform has no argument '{keyword}'. Besides those in its documentation it takes the engine's keys: "
            "engine__name, engine__blas, …"
        )
    return name


def _is_chain(spec: models.ModelSpec) -> bool:
    """Whether NumPy has all that it takes."""
    before = models.INPUT
    for layer in spec.layers:
        if layer.kind not in KINDS or layer.inputs != (before,):
            return False
        before = layer.name
    return True


def _check_weights(spec: models.ModelSpec, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
    for place in (*spec.parameters, *spec.statistics):
        found = weights.get(place.name)
        if found is None or found.shape != tuple(place.shape):
            held = "is not there" if found is None else f"has the shape {found.shape}"
            raise ConfigurationError(
                f"The saved weights do not fit the model {spec.name}: '{place.name}' {held}, and it must have the "
                f"shape {tuple(place.shape)}. Save model and weights together, with FitResult.save(folder)."
            )


def _check_input(spec: models.ModelSpec, rows: Mapping[str, Any]) -> None:
    """As SavedModel.read in the JVM: what is done to a row gives the model's rows."""
    try:
        shape, crop, factor = rows["shape"], rows.get("crop", 0), rows.get("factor", 1)
        lists = {name: rows.get(name, []) for name in ("columns", "labels", "subtract", "multiply")}
        numbers = [*shape, crop, factor, *lists["subtract"], *lists["multiply"]]
        whole = all(type(each) is int for each in (*shape, crop))
        sizes = {len(lists["subtract"]), len(lists["multiply"])}
        names = (*lists["columns"], *lists["labels"])
        fits = (
            whole
            and all(type(each) in (int, float) and math.isfinite(each) for each in numbers)
            and all(isinstance(each, str) for each in names)
            and min(shape) > 0
            and sizes in ({0}, {math.prod(shape)})
            and (crop == 0 or (len(shape) == 3 and 0 < crop <= min(shape[1:])))
            and math.prod([shape[0], crop, crop] if crop else shape) == math.prod(spec.input_shape)
            and len(lists["labels"]) in (0, _classes(spec, rows))
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        takes = " × ".join(map(str, spec.input_shape))
        raise ConfigurationError(
            f"input.json of the saved model {spec.name} does not say how its rows are made: shape {rows.get('shape')}, "
            f"crop {rows.get('crop', 0)} and its other fields must give rows of {takes} values and name each of "
            f"{_classes(spec, rows)} classes or none. Take the folder as FitResult.save(folder) wrote it."
        )
