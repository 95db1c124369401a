"""Predictions in sessions of Spark Connect, through the DataFrame API alone: the Python workers compute.

A client of Spark Connect has no JVM, and the server's may have no jar of ours. `mapInArrow` takes a model and rows to
the executors' Python workers, which need this package: NumPy computes perceptrons there, ONNX Runtime other nets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from sparkdl_bench import outcomes
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.frames import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What travels within the plan; gRPC's messages have at most 128 MiB.
_MOST_BYTES = 100 << 20
_ROW = "sparkdl_bench_row"
# In the order in which they stand behind the frame's own columns.
_ADDED = ("raw_prediction", "probability", "prediction", "label")


class Predicting(Protocol):
    """What is asked of a model."""

    @property
    def classes(self) -> int: ...
    @property
    def is_regression(self) -> bool: ...
    @property
    def is_binary(self) -> bool: ...
    @property
    def is_multilabel(self) -> bool: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def scores(self, rows: npt.ArrayLike) -> npt.NDArray[np.float32]: ...


def transformed(
    frame: DataFrame, model: Predicting, features: Sequence[str], names: Mapping[str, str], rule: str, size_bytes: int
) -> DataFrame:
    """As `Model.transform`.

    Args:
        names: of the added columns, by argument; "" for none.
        rule: `error`, `skip` or `keep`.
        size_bytes: of the model's weights.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, DataType, DoubleType, StringType, StructField, StructType

    if rule not in ("error", "skip", "keep"):
        raise ConfigurationError(f"handle_invalid is '{rule}'; valid are error, skip, keep.")
    if size_bytes > _MOST_BYTES:
        raise ConfigurationError(
            f"The model's weights have {size_bytes >> 20} MiB, and Spark Connect takes {_MOST_BYTES >> 20} MiB with a "
            "query. Predict in a classic session: SparkSession.builder.master(…) in place of .remote(…)."
        )
    asked = [each for each in _ADDED if names[each] and (each == "prediction" or not model.is_regression)]
    own = frame.schema
    taken = {name.lower() for name in own.fieldNames()}
    for name in (names[each] for each in asked):
        if name.lower() in taken:
            raise ConfigurationError(
                f"The DataFrame has a column '{name}' already, or two columns of the predictions would have that "
                "name. Drop or rename it, or name another column for them."
            )
        taken.add(name.lower())
    kinds: dict[str, DataType] = {"label": StringType()}
    if not model.is_multilabel:
        kinds["prediction"] = DoubleType()
    added = [StructField(names[each], kinds.get(each, ArrayType(DoubleType()))) for each in asked]
    row = _row(frame, model, features)
    predicted = frame.withColumn(_ROW, row).mapInArrow(
        _predicting(model, asked, [names[each] for each in asked], rule), StructType([*own.fields, *added])
    )
    lists = ("raw_prediction", "probability", *(("prediction",) if model.is_multilabel else ()))
    vectors = [names[each] for each in asked if each in lists]
    if not vectors:
        return predicted
    columns = [
        _vector(functions.col(quoted(name))).alias(name) if name in vectors else functions.col(quoted(name))
        for name in (*own.fieldNames(), *(field.name for field in added))
    ]
    return predicted.select(*columns)


def _vector(values: Any) -> Any:
    """A column of arrays as one of vectors; null where the array is, which Spark's own function fails at."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions

    never_null = functions.coalesce(values, functions.array().cast("array<double>"))
    return functions.when(values.isNotNull(), array_to_vector(never_null))


def _row(frame: DataFrame, model: Predicting, features: Sequence[str]) -> Any:
    """A row's values as an array of floats."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BooleanType, NumericType, UserDefinedType

    names = list(features) or model.columns
    if not names:
        raise ConfigurationError(
            "The model was not trained on columns with names. Say with features which columns hold a row's values: one "
            "with an array or a vector, or numeric columns."
        )
    known = {field.name: field.dataType for field in frame.schema.fields}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"The DataFrame has no column '{name}', which is a feature. Its columns are {', '.join(known)}."
            )
    columns = [functions.col(quoted(name)) for name in names]
    kinds = [known[name] for name in names]
    if len(names) == 1 and isinstance(kinds[0], ArrayType):
        return columns[0].cast("array<float>")
    if len(names) == 1 and isinstance(kinds[0], UserDefinedType):
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(columns[0], "float32")
    for name, kind in zip(names, kinds, strict=True):
        if not isinstance(kind, (NumericType, BooleanType)):
            raise ConfigurationError(
                f"Column '{name}' is of type {kind.simpleString()}. Features are one column with an array of numbers "
                "or a vector, or several numeric columns."
            )
    width = int(np.prod(model.shape))
    if len(names) != width:
        raise ConfigurationError(
            f"The features are {len(names)} numeric columns ({', '.join(names[:20])}), and the model takes rows of "
            f"{width} values."
        )
    return functions.array(*(column.cast("float") for column in columns))


def _predicting(
    model: Predicting, asked: Sequence[str], names: Sequence[str], rule: str
) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """What a Python worker does to a partition's batches, which are pyarrow's."""

    def predicted(batches: Iterable[Any]) -> Iterable[Any]:
        for batch in batches:
            rows, valid = _values(batch.column(batch.schema.get_field_index(_ROW)), int(np.prod(model.shape)))
            if rule == "error" and not valid.all():
                raise ConfigurationError(
                    f"A row has no prediction (number {int(np.argmin(valid))} of its batch): its values are null, not "
                    f"finite, or not {int(np.prod(model.shape))}. Leave such rows out first, or set "
                    "handle_invalid to skip (they are left out) or keep (their predictions are null)."
                )
            yield _with_predictions(batch, model.scores(rows[valid]), valid, model, asked, names, rule)

    return predicted


def _values(column: Any, width: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """The rows, rows × width, and which of them can be predicted; the others are zero."""
    rows, valid = np.zeros((len(column), width), np.float32), np.zeros(len(column), bool)
    lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    fits = lengths == width
    flat = column.filter(_mask(fits)).flatten().to_numpy(zero_copy_only=False)
    rows[fits] = flat.astype(np.float32, copy=False).reshape(-1, width)
    valid[fits] = np.isfinite(rows[fits]).all(axis=1)
    return rows, valid


def _mask(values: npt.NDArray[np.bool_]) -> Any:
    import pyarrow

    return pyarrow.array(values)


def _named(best: Any, labels: Sequence[str]) -> str:
    """A class's name, or its number; of several labels those that the row has."""
    places = [int(at) for at in (np.flatnonzero(best) if np.ndim(best) else [best])]
    return ",".join(labels[at] if labels else str(at) for at in places)


def _with_predictions(
    batch: Any,
    scores: npt.NDArray[np.float32],
    valid: npt.NDArray[np.bool_],
    model: Predicting,
    asked: Sequence[str],
    names: Sequence[str],
    rule: str,
) -> Any:
    import pyarrow

    own = [name for name in batch.schema.names if name != _ROW]
    kept = batch.select(own)
    if rule == "skip":
        kept, valid = kept.filter(_mask(valid)), valid[valid]
    place = np.full(len(valid), -1)
    place[valid] = np.arange(len(scores))
    raw, probabilities, best = (outcomes.of_answers if model.is_binary else outcomes.of_classes)(scores)
    found: dict[str, Any] = {
        "raw_prediction": raw.tolist(),
        "probability": probabilities.tolist(),
        "prediction": (raw[:, 0] if model.is_regression else best.astype(np.float64)).tolist(),
        "label": [_named(each, model.labels) for each in best],
    }
    kinds = {"label": pyarrow.string()}
    if not model.is_multilabel:
        kinds["prediction"] = pyarrow.float64()
    columns = [
        pyarrow.array(
            [None if at < 0 else found[each][at] for at in place], kinds.get(each, pyarrow.list_(pyarrow.float64()))
        )
        for each in asked
    ]
    return pyarrow.RecordBatch.from_arrays([*kept.columns, *columns], names=[*own, *names])
