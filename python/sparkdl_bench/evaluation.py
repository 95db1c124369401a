"""How good predictions on a DataFrame are: what scikit-learn's metrics say, summed up by Spark.

Nothing but sums comes to the driver: for classes one number per pair of label and prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.frames import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# scikit-learn's log_loss keeps probabilities so far from 0.
_LEAST_PROBABILITY = float(np.finfo(np.float64).eps)


def of_model(model: Any, frame: DataFrame, features: str | Sequence[str], label: str, weight: str) -> dict[str, float]:
    """As `Model.evaluate`."""
    prediction, probability = "sparkdl_prediction", "sparkdl_probability"
    predicted = model.transform(
        with_label(frame, label),
        features,
        raw_prediction="",
        prediction=prediction,
        probability=probability,
        handle_invalid="skip",
    )
    if model.is_regression:
        return of_numbers(predicted, label, prediction, weight)
    if model.is_multilabel:
        return of_labels(predicted, label, prediction, probability, weight, model.classes)
    return of_classes(predicted, label, prediction, probability, weight, model.labels, model.classes)


def with_label(frame: DataFrame, label: str) -> DataFrame:
    """The rows that have a label: neither null nor NaN."""
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, FloatType

    column = _column(frame, label, "label")
    there = frame.filter(column.isNotNull())
    kind = frame.schema[label].dataType
    return there.filter(~functions.isnan(column)) if isinstance(kind, (DoubleType, FloatType)) else there


def of_numbers(predicted: DataFrame, label: str, prediction: str, weight: str) -> dict[str, float]:
    """`mae`, `rmse` and `r2` (NaN where all labels are the same), and `rows`."""
    from pyspark.sql import functions

    y, found, w = _label(predicted, label, []), functions.col(prediction), _weight(predicted, weight)
    error = found - y
    rows, total, absolute, squared, mean = predicted.agg(
        functions.count(y),
        functions.sum(w),
        functions.sum(w * functions.abs(error)),
        functions.sum(w * error * error),
        functions.sum(w * y) / functions.sum(w),
    ).collect()[0]
    _check(rows, total, label)
    # Around the mean, so that large labels cost no digits.
    scatter = predicted.agg(functions.sum(w * (y - mean) * (y - mean))).collect()[0][0]
    return {
        "rows": rows,
        "mae": absolute / total,
        "rmse": math.sqrt(squared / total),
        "r2": 1 - squared / scatter if scatter > 0 else math.nan,
    }


def of_classes(
    predicted: DataFrame, label: str, prediction: str, probability: str, weight: str, names: Sequence[str], classes: int
) -> dict[str, float]:
    """`accuracy`, `log_loss`, and `precision`, `recall` and `f1`, of class 1 where there are two, and their means."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions

    y, w = _label(predicted, label, names), _weight(predicted, weight)
    right = functions.get(vector_to_array(functions.col(probability)), y.cast("int"))
    unlikely = -functions.log(functions.greatest(right, functions.lit(_LEAST_PROBABILITY)))
    cells = (
        predicted.select(y.alias("y"), functions.col(prediction).alias("p"), w.alias("w"), unlikely.alias("loss"))
        .groupBy("y", "p")
        .agg(functions.count("*"), functions.sum("w"), functions.sum(functions.col("w") * functions.col("loss")))
        .collect()
    )
    counts = np.zeros((classes, classes))
    rows, losses = 0, 0.0
    for true, said, number, total, loss in cells:
        if true is None or true != int(true) or not 0 <= true < classes:
            raise ConfigurationError(
                f"Column '{label}' (label) holds {true}, and the model tells the classes 0 to {classes - 1} apart"
                f"{' (' + ', '.join(names[:20]) + ')' if names else ''}. Leave such rows out, or name another column."
            )
        counts[int(true), int(said)] += total
        rows, losses = rows + number, losses + loss
    _check(rows, counts.sum(), label)
    found = {"rows": rows, "accuracy": float(np.trace(counts) / counts.sum()), "log_loss": losses / counts.sum()}
    found.update(_of_table(counts))
    if classes == 2:
        score = vector_to_array(functions.col(probability)).getItem(1)
        found["auc"] = _auc(predicted.select(score.alias("score"), y.alias("y"), w.alias("w")))
    return {name: float(value) if name != "rows" else value for name, value in found.items()}


def of_labels(
    predicted: DataFrame, label: str, prediction: str, probability: str, weight: str, labels: int
) -> dict[str, float]:
    """Of rows that may have several labels: `accuracy` (all labels right), `log_loss` (the mean over the labels), and
    `precision`, `recall` and `f1` of all labels at once (`_micro`) and as means over the labels (`_macro`).
    """
    from pyspark.sql import functions

    y, said, likely = (_list(predicted, name) for name in (label, prediction, probability))
    w = _weight(predicted, weight)
    wrong = predicted.filter((functions.size(y) != labels) | functions.exists(y, lambda each: each.isNull())).limit(1)
    if rows_wrong := wrong.select(y).collect():
        raise ConfigurationError(
            f"Column '{label}' (label) holds {rows_wrong[0][0]}, and a row has {labels} labels, each 0 or 1. "
            "Leave such rows out, or name another column."
        )
    each = functions.zip_with(
        functions.zip_with(y, said, lambda one, other: functions.struct(one.alias("y"), other.alias("p"))),
        likely,
        lambda pair, q: functions.struct((pair["y"] > 0.5).alias("y"), (pair["p"] > 0.5).alias("p"), q.alias("q")),
    )
    found = predicted.select(each.alias("each"), w.alias("w"))
    right = functions.forall("each", lambda one: one["y"] == one["p"]).cast("double")
    rows, total, hits = found.agg(
        functions.count("*"), functions.sum("w"), functions.sum(functions.col("w") * right)
    ).collect()[0]
    _check(rows, total, label)
    one, weighed = functions.col("one"), functions.col("w")
    unlikely = -functions.log(
        functions.greatest(
            functions.when(one["y"], one["q"]).otherwise(1 - one["q"]), functions.lit(_LEAST_PROBABILITY)
        )
    )
    sums = (
        found.select("w", functions.posexplode("each").alias("at", "one"))
        .groupBy("at")
        .agg(
            functions.sum(weighed * (one["y"] & one["p"]).cast("double")),
            functions.sum(weighed * one["p"].cast("double")),
            functions.sum(weighed * one["y"].cast("double")),
            functions.sum(weighed * unlikely),
        )
        .collect()
    )
    both, claimed, true, losses = (np.array([row[place] for row in sums], float) for place in (1, 2, 3, 4))
    told: dict[str, float] = {
        "rows": rows,
        "accuracy": hits / total,
        "log_loss": float(losses.sum() / (total * labels)),
    }
    for name, above, below in (("precision", both, claimed), ("recall", both, true), ("f1", 2 * both, claimed + true)):
        told[f"{name}_micro"] = float(above.sum() / below.sum()) if below.sum() > 0 else 0.0
        told[f"{name}_macro"] = float(np.divide(above, below, out=np.zeros_like(above), where=below > 0).mean())
    return told


def _list(frame: DataFrame, name: str) -> Column:
    """A column of arrays or vectors as one of arrays of doubles."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import ArrayType

    column, kind = _column(frame, name, "label"), frame.schema[name].dataType
    if isinstance(kind, VectorUDT):
        return vector_to_array(column)
    if not isinstance(kind, ArrayType):
        raise ConfigurationError(
            f"Column '{name}' (label) is of type {kind.simpleString()}, and a row may have several labels. Name a "
            "column with an array or a vector that has 0 or 1 for each; of several columns: frame.withColumn('labels', "
            "array('a', 'b'))."
        )
    return column.cast("array<double>")


def _of_table(counts: npt.NDArray[np.float64]) -> dict[str, float]:
    """Precision, recall and F1 of weighted counts, labels × predictions; of what never occurs 0, as scikit-learn."""
    hits = np.diag(counts)
    said, true = counts.sum(axis=0), counts.sum(axis=1)
    each = {
        "precision": np.divide(hits, said, out=np.zeros_like(hits), where=said > 0),
        "recall": np.divide(hits, true, out=np.zeros_like(hits), where=true > 0),
        "f1": np.divide(2 * hits, said + true, out=np.zeros_like(hits), where=said + true > 0),
    }
    occurs = said + true > 0
    found: dict[str, float] = {}
    for name, values in each.items():
        if len(counts) == 2:
            found[name] = float(values[1])
        found[f"{name}_macro"] = float(values[occurs].mean())
        found[f"{name}_weighted"] = float(values @ true / true.sum())
    return found


def _auc(scored: DataFrame) -> float:
    """Area under the ROC curve: of all pairs of a row of class 1 and one of class 0, in how many the first scores
    higher, ties counting half. Rows are sorted across partitions; none has to hold all of them. NaN where a class is
    missing.
    """
    from pyspark.sql import Window, functions

    w, y = functions.col("w"), functions.col("y")
    sums = scored.groupBy("score").agg(
        functions.sum(functions.when(y == 1, w).otherwise(0.0)).alias("positive"),
        functions.sum(functions.when(y == 1, 0.0).otherwise(w)).alias("negative"),
    )
    sorted_ = sums.repartitionByRange("score").withColumn("part", functions.spark_partition_id()).persist()
    try:
        parts = sorted_.groupBy("part").agg(functions.sum("positive"), functions.sum("negative")).collect()
        positives, negatives = sum(row[1] for row in parts), sum(row[2] for row in parts)
        if not positives or not negatives:
            return math.nan
        below, lower = 0.0, {}
        for part, _, negative in sorted(parts):
            lower[part], below = below, below + negative
        before = functions.create_map(*(functions.lit(each) for pair in lower.items() for each in pair))
        own = functions.sum("negative").over(
            Window.partitionBy("part").orderBy("score").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        )
        negative, positive = functions.col("negative"), functions.col("positive")
        pairs = sorted_.select((positive * (before[functions.col("part")] + own - negative / 2)).alias("pairs")).agg(
            functions.sum("pairs")
        )
        return float(pairs.collect()[0][0] / (positives * negatives))
    finally:
        sorted_.unpersist()


def _label(frame: DataFrame, name: str, names: Sequence[str]) -> Column:
    """The label as a number; words by their place among the names of classes."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType

    column = _column(frame, name, "label")
    if not isinstance(frame.schema[name].dataType, StringType):
        return column.cast("double")
    if not names:
        raise ConfigurationError(
            f"Column '{name}' (label) holds words, and the model has no names of classes. Number the labels as for the "
            "training."
        )
    places = functions.create_map(*(functions.lit(each) for at, text in enumerate(names) for each in (text, float(at))))
    return places[column]


def _weight(frame: DataFrame, name: str) -> Column:
    from pyspark.sql import functions

    return _column(frame, name, "weight").cast("double") if name else functions.lit(1.0)


def _column(frame: DataFrame, name: str, what: str) -> Column:
    from pyspark.sql import functions

    if name not in frame.columns:
        raise ConfigurationError(
            f"The DataFrame has no column '{name}' ({what}). Its columns are {', '.join(frame.columns[:20])}."
        )
    return functions.col(quoted(name))


def _check(rows: int, total: float | None, label: str) -> None:
    if not rows or not total or total <= 0:
        raise ConfigurationError(
            f"No row with a label in column '{label}' has a prediction and a weight above 0, so there is nothing to "
            "measure."
        )
