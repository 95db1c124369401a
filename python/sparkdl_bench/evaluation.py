"""How good predictions on a DataFrame are: what scikit-learn's metrics say, summed up by Spark.

Nothing but sums comes to the driver: for classes one number per pair of label and prediction.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.frames import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Decimal numbers, as the training reads them (`data/Numbers.scala`): no NaN, no Infinity, no hexadecimal ones.
_DECIMAL = r"^[0-9+\-.eE]+$"
# scikit-learn's log_loss keeps probabilities so far from 0.
_LEAST_PROBABILITY = float(np.finfo(np.float64).eps)


def of_model(model: Any, frame: DataFrame, features: str | Sequence[str], label: str, weight: str) -> dict[str, float]:
    """As `Model.evaluate`."""
    from pyspark.sql import functions

    prediction, probability = "sparkdl_prediction", "sparkdl_probability"
    predicted = model.transform(
        with_label(frame, label),
        features,
        raw_prediction="",
        prediction=prediction,
        probability=probability,
        handle_invalid="skip",
    )
    if weight:
        # Rows of weight 0 count as nothing: their labels, too.
        predicted = predicted.filter(functions.coalesce(_weight(predicted, weight) != 0, functions.lit(True)))
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

    y, said = _number(predicted, label)
    found, w = functions.col(prediction), _weight(predicted, weight)
    error = found - y
    wrong, example, wrong_weights, a_weight, rows, total, absolute, squared, weighed = predicted.agg(
        *_odd(y, said, w),
        functions.count(y),
        functions.sum(w),
        functions.sum(w * functions.abs(error)),
        functions.sum(w * error * error),
        functions.sum(w * y),
    ).collect()[0]
    refuse_weights(weight, wrong_weights, a_weight)
    refuse_labels(label, wrong, example, "labels of a regression are finite numbers")
    _check(rows, total, label)
    mean = weighed / total
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

    y, given = _class(predicted, label, names, classes)
    w = _weight(predicted, weight)
    right = functions.get(vector_to_array(functions.col(probability)), y.cast("int"))
    unlikely = -functions.log(functions.greatest(right, functions.lit(_LEAST_PROBABILITY)))
    cells = (
        predicted.select(
            y.alias("y"),
            functions.col(prediction).alias("p"),
            w.alias("w"),
            unlikely.alias("loss"),
            given.alias("given"),
        )
        .groupBy("y", "p")
        .agg(
            *_odd(functions.col("y"), functions.col("given"), functions.col("w")),
            functions.count("*"),
            functions.sum("w"),
            functions.sum(functions.col("w") * functions.col("loss")),
        )
        .collect()
    )
    for _, _, _, _, wrong, example, *_ in cells:
        refuse_weights(weight, wrong, example)
    for _, _, wrong, example, *_ in cells:
        refuse_labels(label, wrong, example, _valid_labels(names, classes))
    counts = np.zeros((classes, classes))
    rows, losses = 0, 0.0
    for true, told, _, _, _, _, number, total, loss in cells:
        counts[int(true), int(told)] += total
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
    if weight:
        refuse_weights(weight, *predicted.agg(*_odd(w, w, w)[2:]).collect()[0])
    wrong = predicted.filter(
        (functions.size(y) != labels)
        | functions.exists(y, lambda each: each.isNull() | functions.isnan(each) | (each < 0) | (each > 1))
    ).limit(1)
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


def places(names: Sequence[str]) -> tuple[dict[str, int], dict[float, int]]:
    """The classes by their names, and by the values of those names that are numbers; the first of two counts.

    As the training finds a label's class (`data/RecordSink.scala`): by the name that the trimmed text is, then by the
    number that it says: -1.0 is the class whose name is -1, whatever the class's own number.
    """
    by_name: dict[str, int] = {}
    by_value: dict[float, int] = {}
    for at, name in enumerate(names):
        by_name.setdefault(name, at)
        by_name.setdefault(name.strip(), at)
        if re.fullmatch(_DECIMAL, name.strip()):
            try:
                value = float(name)
            except ValueError:
                continue  # +-. and its like
            if math.isfinite(value):
                by_value.setdefault(value + 0.0, at)  # -0.0 is 0.0
    return by_name, by_value


def _class(frame: DataFrame, name: str, names: Sequence[str], classes: int) -> tuple[Column, Column]:
    """The label's class as a number, null where it is none of the model's; and the label as a text, for messages.

    Where no name is a number, labels that are numbers, as StringIndexer makes them, are the classes' own.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, StringType

    value, text = _number(frame, name)
    kind = frame.schema[name].dataType
    by_name, by_value = places(names)
    if names and not isinstance(kind, BooleanType) and (by_value or isinstance(kind, StringType)):
        found = [_looked_up(by_name, text), _looked_up(by_name, _trimmed(text))]
        if by_value:
            # By the text: 0.1 as fp32 is another number than 0.1.
            found.append(_looked_up(by_value, _parsed(text, name) + functions.lit(0.0)))
        return functions.coalesce(*found), text
    valid = (value >= 0) & (value < classes) & (value == functions.floor(value))
    return functions.when(valid, value), text


def _looked_up(classes: Mapping[str, int] | Mapping[float, int], key: Column) -> Column:
    """The class of a key as a double; null where there is none."""
    from pyspark.sql import functions

    pairs = functions.create_map(*(functions.lit(each) for key, at in classes.items() for each in (key, float(at))))
    return pairs[key]


def _number(frame: DataFrame, name: str) -> tuple[Column, Column]:
    """The label as a finite number, also where it is one in a text; null where it is none. And the label as a text."""
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, NumericType, StringType

    column, kind = _column(frame, name, "label"), frame.schema[name].dataType
    if not isinstance(kind, (NumericType, BooleanType, StringType)):
        raise ConfigurationError(
            f"Column '{name}' (label) is of type {kind.simpleString()}. Labels are numbers, texts or booleans: cast "
            "it, or name another column."
        )
    text = column.cast("string")
    value = _parsed(text, name) if isinstance(kind, StringType) else column.cast("double")
    return functions.when(functions.abs(value) <= sys.float_info.max, value), text


def _parsed(text: Column, name: str) -> Column:
    """The number that the column's text says; null where it says none."""
    from pyspark.sql import functions

    # As an expression: Column.try_cast is new in Spark 4. A cast fails at words.
    number = functions.expr(f"try_cast(cast({quoted(name)} as string) as double)")
    return functions.when(_trimmed(text).rlike(_DECIMAL), number)


def _trimmed(text: Column) -> Column:
    """As Java trims: Spark's trim takes blanks alone away."""
    from pyspark.sql import functions

    return functions.regexp_replace(text, r"^[\x00-\x20]+|[\x00-\x20]+$", "")


def _weight(frame: DataFrame, name: str) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import NumericType

    if not name:
        return functions.lit(1.0)
    column, kind = _column(frame, name, "weight"), frame.schema[name].dataType
    if not isinstance(kind, NumericType):
        raise ConfigurationError(
            f"Column '{name}' (weight) is of type {kind.simpleString()}. Weights are numbers of at least 0: cast it, "
            "or name another column."
        )
    return column.cast("double")


def _odd(label: Column, text: Column, weight: Column) -> list[Column]:
    """How many labels are null and one of their texts; how many weights are no finite number of at least 0, and one."""
    from pyspark.sql import functions

    good = functions.coalesce(weight.between(0, sys.float_info.max), functions.lit(False))
    shown = functions.coalesce(weight.cast("string"), functions.lit("null"))
    return [
        functions.count_if(label.isNull()),
        functions.min(functions.when(label.isNull(), text)),
        functions.count_if(~good),
        functions.min(functions.when(~good, shown)),
    ]


def refuse_labels(label: str, wrong: int, example: str | None, valid: str) -> None:
    """Refuses labels that the model cannot have.

    Args:
        wrong: how many rows have such a label.
        example: one of them.
        valid: which it can have, as a part of a sentence.
    """
    if wrong:
        raise ConfigurationError(
            f"Column '{label}' (label) holds {example}, and {valid}. Leave such rows out, or name another column."
        )


def refuse_weights(weight: str, wrong: int, example: str | None) -> None:
    """Refuses weights that are no finite numbers of at least 0; arguments as of `refuse_labels`."""
    if wrong:
        raise ConfigurationError(
            f"Column '{weight}' (weight) holds {example}. Weights are finite numbers of at least 0, and rows of weight "
            "0 do not count. Leave such rows out, or name another column."
        )


def _valid_labels(names: Sequence[str], classes: int) -> str:
    told = f"the model tells the classes 0 to {classes - 1} apart"
    return f"{told} ({', '.join(names[:20])}{', …' if len(names) > 20 else ''})" if names else told


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
