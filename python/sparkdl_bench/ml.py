"""Spark ML: a classifier and a regressor for pipelines, cross-validation and grids, as pyspark's own are used.

The JVM's classes of the same names (docs/how-to/jvm.md) read what these write, and the other way round.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pyspark.ml.classification import ClassificationModel, Classifier
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vector, Vectors, VectorUDT
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasHandleInvalid,
    HasProbabilityCol,
    HasStandardization,
    HasValidationIndicatorCol,
    HasWeightCol,
)
from pyspark.ml.regression import RegressionModel, Regressor
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.ml.wrapper import JavaWrapper
from pyspark.sql import functions
from pyspark.sql.types import ArrayType, BooleanType, NumericType

from sparkdl_bench import catalogue, frames, module_training, outcomes
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.prediction import Model, load_model
from sparkdl_bench.trainer import Trainer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkDLClassificationModel", "SparkDLClassifier", "SparkDLRegressionModel", "SparkDLRegressor"]

_FEATURES, _LABEL, _VALIDATION, _WEIGHT = "features", "label", "validation", "weight"
# Rows that a run's own test figures are of; all rows train.
_TEST_ROWS = 1000
_MOST_SKIPPED = 2**31 - 1
_PART_BYTES = 16 << 20
# Who has more classes says so: a single stray label, an id or a year, would make a net of its size.
_MOST_COUNTED = 10_000
_BINARY = "binary-cross-entropy"
# Where there is no catalogue to say so.
_ALIASES = {"loss": ["loss.name"], "ignore_label": ["loss.ignore_label"]}
# What `settings` may not have, since parameters say it; "" for the rows.
_PARAMETERS = {
    **{name: name for name in ("model", "workers", "batch", "epochs")},
    "label": "labelCol",
    "columns": "featuresCols",
    "weight": "weightCol",
    **dict.fromkeys(("data", "table", "test_table"), ""),
}
# A run takes all of its workers' slots for as long as it trains. Two at once might each hold some of what the other
# waits for, and neither would begin where there are slots for one.
_TRAINING = threading.Lock()


class _InJvm:
    """Goes to and from the JVM's class of the same name: as a stage of a pipeline that pyspark asks the JVM to read."""

    @classmethod
    def _from_java(cls, java: Any) -> Any:
        own: Any = cls()
        own._resetUid(java.uid())
        for param in own.params:
            twin = java.getParam(param.name)
            if java.isSet(twin):
                own._paramMap[param] = _of_json(param, twin.jsonEncode(java.get(twin).get()))
            elif java.hasDefault(twin):
                own._defaultParamMap[param] = _of_json(param, twin.jsonEncode(java.getDefault(twin).get()))
        return own

    def _to_java(self) -> Any:
        own: Any = self
        name = f"sparkdl_bench.ml.{type(self).__name__}"
        try:
            java = JavaWrapper._new_java_obj(name, own.uid)
        except TypeError as error:  # a package, for pyspark
            raise ConfigurationError(
                f"The session's JVM has no class {name}. Start it with the jar of this version: "
                "spark = sparkdl_bench.configure(SparkSession.builder).getOrCreate()."
            ) from error
        for param, value in own._paramMap.items():
            twin = java.getParam(param.name)
            java.set(twin, twin.jsonDecode(json.dumps(value)))
        return java


def _of_json(param: Param[Any], text: str) -> Any:
    value = json.loads(text)
    return value if value is None else param.typeConverter(value)


class _Shared(_InJvm, HasHandleInvalid):
    """What estimators and models have besides Spark ML's own parameters."""

    featuresCols: Param[list[str]] = Param(
        Params._dummy(),
        "featuresCols",
        "names of numeric columns, in place of featuresCol",
        typeConverter=TypeConverters.toListString,
    )

    def setFeaturesCols(self, value: Sequence[str]) -> Any:
        """Sets the value of `featuresCols`: numeric columns in this order, in place of the one of `featuresCol`."""
        return self._set(featuresCols=list(value))

    def getFeaturesCols(self) -> list[str]:
        """Gets the value of `featuresCols` or its default value, []."""
        return self.getOrDefault(self.featuresCols)

    def _features(self) -> list[str]:
        """The columns of a row's values."""
        columns: Any = self
        return self.getFeaturesCols() or [columns.getFeaturesCol()]

    def setHandleInvalid(self, value: str) -> Any:
        """Sets the value of `handleInvalid`: what a row does that has no valid values.

        `error` ends the job; `skip` leaves the row out; `keep` keeps it with null predictions (and trains without it).
        """
        return self._set(handleInvalid=value)


class _WithProbability(HasProbabilityCol):
    """Of a classifier and its model."""

    def setProbabilityCol(self, value: str) -> Any:
        """Sets the value of `probabilityCol`; "" leaves the column out."""
        return self._set(probabilityCol=value)


class _Trained(_Shared, HasStandardization, HasValidationIndicatorCol, HasWeightCol):
    """The parameters of an estimator that trains with `Trainer`, besides those of Spark ML."""

    model: Param[Any] = Param(
        Params._dummy(), "model", "name of a model family, or a dict of its keys", typeConverter=TypeConverters.identity
    )
    workers: Param[int | str] = Param(
        Params._dummy(),
        "workers",
        "number of ranks, each one Spark task; or a range, 2..8",
        typeConverter=lambda value: value if isinstance(value, str) else TypeConverters.toInt(value),
    )
    batch: Param[int] = Param(
        Params._dummy(), "batch", "rows per step over all workers", typeConverter=TypeConverters.toInt
    )
    epochs: Param[int] = Param(Params._dummy(), "epochs", "passes over the rows", typeConverter=TypeConverters.toInt)
    settings: Param[dict[str, Any]] = Param(
        Params._dummy(), "settings", "further keywords of Trainer, by name", typeConverter=TypeConverters.identity
    )
    initialModel: Param[Any] = Param(
        Params._dummy(),
        "initialModel",
        "a trained model, or the path of one or of its weights, to start from",
        typeConverter=TypeConverters.identity,
    )

    def setParams(self, **params: Any) -> Any:
        """Sets the parameters that are given, by name; the others stay as they are."""
        unknown = sorted(name for name in params if not self.hasParam(name))
        if unknown:
            known = ", ".join(param.name for param in self.params)
            raise ConfigurationError(
                f"{type(self).__name__} has no parameter '{unknown[0]}'. Its parameters are {known}; other keywords of "
                "Trainer go into settings={…}."
            )
        return self._set(**params)

    def setModel(self, value: str | Mapping[str, Any]) -> Any:
        """Sets the value of `model`."""
        return self._set(model=value)

    def getModel(self) -> Any:
        """Gets the value of `model` or its default value."""
        return self.getOrDefault(self.model)

    def setWorkers(self, value: int | str) -> Any:
        """Sets the value of `workers`."""
        return self._set(workers=value)

    def getWorkers(self) -> int | str:
        """Gets the value of `workers` or its default value."""
        return self.getOrDefault(self.workers)

    def setBatch(self, value: int) -> Any:
        """Sets the value of `batch`."""
        return self._set(batch=value)

    def getBatch(self) -> int:
        """Gets the value of `batch` or its default value."""
        return self.getOrDefault(self.batch)

    def setEpochs(self, value: int) -> Any:
        """Sets the value of `epochs`."""
        return self._set(epochs=value)

    def getEpochs(self) -> int:
        """Gets the value of `epochs` or its default value."""
        return self.getOrDefault(self.epochs)

    def setSettings(self, value: Mapping[str, Any]) -> Any:
        """Sets the value of `settings`, all of it."""
        return self._set(settings=dict(value))

    def getSettings(self) -> dict[str, Any]:
        """Gets the value of `settings` or its default value."""
        return self.getOrDefault(self.settings)

    def setValidationIndicatorCol(self, value: str) -> Any:
        """Sets the value of `validationIndicatorCol`: a boolean column, true for the rows that are tested on."""
        return self._set(validationIndicatorCol=value)

    def setWeightCol(self, value: str) -> Any:
        """Sets the value of `weightCol`: a column of numbers of at least 0 that multiply the rows' losses."""
        return self._set(weightCol=value)

    def setStandardization(self, value: bool) -> Any:
        """Sets the value of `standardization`: whether features are standardised by the training rows."""
        return self._set(standardization=value)

    def setInitialModel(self, value: Any) -> Any:
        """Sets the value of `initialModel`: what training starts from, which must have the same layers.

        Args:
            value: what `fit` returned; a `sparkdl_bench.Model`; or the path of a saved model or of its weights, on the
                driver's host, as `initial_weights` of `Trainer` takes it. Where `model` is a `torch.nn.Module`, any of
                these with the same names and shapes, or another module. None: the weights that the seed gives, or the
                module has.
        """
        return self._set(initialModel=value)

    def getInitialModel(self) -> Any:
        """Gets the value of `initialModel` or its default value, None."""
        return self.getOrDefault(self.initialModel)

    def write(self) -> MLWriter:
        """A writer for any file system that Spark knows; a model in memory as `initialModel` cannot be written."""
        if module_training.is_module(self.getModel()):
            raise ConfigurationError(
                f"model of this {type(self).__name__} is a PyTorch module, and an estimator is written as text. Write "
                "the model that fit returns, or the pipeline's."
            )
        if not isinstance(self.getInitialModel(), (str, Path, type(None))):
            raise ConfigurationError(
                f"initialModel of this {type(self).__name__} is a model in memory, and an estimator is written as "
                "text. Save the net, model.net.save(path), and set initialModel to its path; or set it to None."
            )
        return DefaultParamsWriter(self)

    @contextmanager
    def _initial(self) -> Iterator[dict[str, str]]:
        """The keyword of `Trainer` that `initialModel` is."""
        given = self.getInitialModel()
        net = given.net if isinstance(given, _TrainedModel) else given
        if net is None:
            yield {}
        elif isinstance(net, Model):
            with tempfile.TemporaryDirectory(prefix="sparkdl-bench-initial-") as folder:
                net.save(folder)
                yield {"initial_weights": folder}
        elif isinstance(net, (str, Path)):
            yield {"initial_weights": str(net)}
        else:
            raise ConfigurationError(
                f"initialModel is a {type(net).__name__}. Give what fit returned, a sparkdl_bench.Model, or the "
                "path of a saved one."
            )

    def _rows(self, dataset: DataFrame, label: str, several: bool = False) -> DataFrame:
        """What is trained on: a row's values, the label as a number, the weight, and which rows are tested on.

        Args:
            several: the label is a list of numbers.
        """
        features = self._features()
        missing = next((name for name in features if name not in dataset.columns), None)
        if missing is not None:
            parameter = "featuresCols" if self.getFeaturesCols() else "featuresCol"
            raise ConfigurationError(
                f"The DataFrame has no column '{missing}' ({parameter}). Its columns are "
                f"{', '.join(dataset.columns[:20])}."
            )
        if self.getFeaturesCols():
            values = [_column(name).alias(_feature_name(at, name)) for at, name in enumerate(features)]
        else:
            values = [_column(features[0]).alias(_FEATURES)]
        given = _column(label) if several else _column(label).cast("double")
        columns = [*values, given.alias(_LABEL)]
        if self.isSet(self.weightCol) and self.getWeightCol():
            weight = self.getWeightCol()
            if weight not in dataset.columns or not isinstance(dataset.schema[weight].dataType, NumericType):
                kind = dataset.schema[weight].dataType.simpleString() if weight in dataset.columns else "not there"
                raise ConfigurationError(
                    f"Column '{weight}' (weightCol) is {kind}; it must be a column of the DataFrame with numbers of at "
                    "least 0, by which the rows' losses are multiplied."
                )
            columns.append(_column(weight).cast("double").alias(_WEIGHT))
        if self.isSet(self.validationIndicatorCol):
            indicator = self.getValidationIndicatorCol()
            if indicator not in dataset.columns or dataset.schema[indicator].dataType != BooleanType():
                kind = (
                    dataset.schema[indicator].dataType.simpleString() if indicator in dataset.columns else "not there"
                )
                raise ConfigurationError(
                    f"Column '{indicator}' (validationIndicatorCol) is {kind}; it must be a boolean column of the "
                    "DataFrame, true for the rows that are tested on."
                )
            columns.append(functions.coalesce(_column(indicator), functions.lit(False)).alias(_VALIDATION))
        return dataset.select(*columns)

    def _keywords(self) -> dict[str, Any]:
        """What `settings` has, but for what is None."""
        given = {name: value for name, value in self.getSettings().items() if value is not None}
        _refuse_parameters(type(self).__name__, given)
        return given

    def _train(self, rows: DataFrame, data: dict[str, Any], **keywords: Any) -> Model:
        """Trains on what `_rows` returned; the rows with holes by `handleInvalid`."""
        skipping = {} if self.getHandleInvalid() == "error" else {"on_error": "skip", "max_skipped": _MOST_SKIPPED}
        columns = [name for name in rows.columns if name not in (_LABEL, _VALIDATION, _WEIGHT)]
        weights = {"weight": _WEIGHT} if _WEIGHT in rows.columns else {}
        given = {"label": _LABEL, "columns": columns, **weights, **data, **skipping}
        if _VALIDATION in rows.columns:
            train, test = (rows.filter(which).drop(_VALIDATION) for which in (f"not {_VALIDATION}", _VALIDATION))
            # The rows are there to choose by.
            keywords = {"keep_best": "loss", **keywords}
        else:
            train, test = rows, rows.limit(_TEST_ROWS)
        if self.getStandardization() and not _normalizes(keywords):
            given["normalize"] = "standard"
        if module_training.is_module(self.getModel()):
            with _TRAINING:
                return self._train_module(
                    train, test if _VALIDATION in rows.columns else None, columns, given, keywords
                )
        with _TRAINING, self._initial() as initial:
            fitted = Trainer(
                self.getModel(),
                {"table": train, "test_table": test, **given},
                workers=self.getWorkers(),
                batch=self.getBatch(),
                epochs=self.getEpochs(),
                **initial,
                **keywords,
            ).fit(rows.sparkSession)
        return fitted.model("best" if keywords.get("keep_best", "off") != "off" else "last")

    def _train_module(
        self,
        train: DataFrame,
        test: DataFrame | None,
        columns: Sequence[str],
        given: Mapping[str, Any],
        keywords: Mapping[str, Any],
    ) -> Model:
        """The same with a PyTorch module: rows become arrays, a row's weight behind its values."""
        initial = self.getInitialModel()
        module = self.getModel()
        if _asked(keywords, "loss.name") == _BINARY:
            raise ConfigurationError(
                f"The loss {_BINARY} trains nets by name alone; a PyTorch module learns one class a row here. "
                "Train it on several labels in a function of your own: sparkdl_bench.launch."
            )
        settings = {name.replace("__", ".").removeprefix("data."): value for name, value in keywords.items()}
        if "loss" in settings:
            settings["loss"] = catalogue.canonical("loss.name", str(settings["loss"]))[1]
        standard = settings.pop("normalize", "standard" if self.getStandardization() else "none")
        if standard not in ("standard", "none"):
            raise ConfigurationError(
                f"normalize is '{standard}'; of a PyTorch module valid are standard and none. Put other steps before "
                "it, as stages of the pipeline."
            )
        sizes: dict[str, Any] = {"workers": self.getWorkers(), "batch": self.getBatch(), "epochs": self.getEpochs()}
        classes = int(given["classes"]) if "classes" in given else None
        settings = module_training.checked(settings, **sizes, classes=classes, is_tested=test is not None)
        if initial is not None:
            module = module_training.started(module, initial.net if isinstance(initial, _TrainedModel) else initial)
        strict = self.getHandleInvalid() == "error"
        weighted = _WEIGHT in train.columns
        arrays = _as_arrays(train, columns, strict)
        width = _width(arrays, columns)
        training = _weighed(arrays, weighted)
        subtract, multiply = (
            module_training.moments(training.filter(_are_numbers()), width, weighted)
            if standard == "standard"
            else ([], [])
        )
        rows = module_training.Rows(
            training,
            None if test is None else _weighed(_as_arrays(test, columns, strict), weighted),
            width,
            weighted,
            classes,
            self._features(),
            subtract,
            multiply,
        )
        trained: Any = module_training.train(module, rows, **sizes, settings=settings)
        return cast(Model, trained)


class _TrainedModel(_Shared, MLWritable):
    """What the models have in common: a net that was trained."""

    _estimator: str

    def __init__(self, net: Model | None = None) -> None:
        super().__init__()
        self._setDefault(handleInvalid="error", featuresCols=[])
        self._net = net

    @property
    def net(self) -> Model:
        """The trained model, which can be saved, and asked without Spark."""
        if self._net is None:
            name = type(self).__name__
            raise ConfigurationError(
                f"This {name} has no trained net. {self._estimator}.fit(frame) or {name}.load(path) gives one that has."
            )
        return self._net

    @property
    def numFeatures(self) -> int:
        """Values of a row."""
        return int(np.prod(self.net.shape))

    def write(self) -> MLWriter:
        """A writer for any file system that Spark knows: `model.write().overwrite().save(path)`."""
        return _ModelWriter(self)

    @classmethod
    def _from_java(cls, java: Any) -> Any:
        own = super()._from_java(java)
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-model-") as folder:
            java.saveNet(folder)
            own._net = load_model(folder)
        return own

    def _to_java(self) -> Any:
        if not isinstance(self.net, Model):
            raise ConfigurationError(
                "The net is a PyTorch module, which the JVM cannot compute. Write this stage by itself, and pipelines "
                "with Python's own writer: PipelineModel.write().save(path) of a pipeline whose stages are Python's."
            )
        java = super()._to_java()
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-model-") as folder:
            self.net.save(folder)
            return java.loadNet(folder)


class SparkDLClassifier(
    Classifier["SparkDLClassificationModel"],
    _Trained,
    _WithProbability,
    DefaultParamsWritable,
    DefaultParamsReadable["SparkDLClassifier"],
):
    """Trains a net with `Trainer`, on all rows of the DataFrame that `fit` gets.

    Labels are 0, 1, …, as `StringIndexer` makes them of words. Its metadata says how many classes there are and what
    they are called; without metadata, the largest label does. Runs of one process follow each other, so that
    `CrossValidator(parallelism=…)` works with slots for one. The test figures of a run's results are those of the first
    1,000 rows, which it was trained on as well (and `keep_best` chooses by them): measure a model on other rows, with
    an evaluator of Spark ML's.

    Args:
        featuresCol: a column of arrays or vectors, or one of numbers.
        featuresCols: numeric columns, in place of `featuresCol`.
        labelCol: the classes' numbers; or an array or a vector with 0 or 1 for each label that a row may have: the
            model is then trained with the loss `binary-cross-entropy`, and its prediction is a vector like the label.
        predictionCol, probabilityCol, rawPredictionCol: as in `LogisticRegression`; "" leaves a column out.
        model: as in `Trainer`: a name, or a dict: `{"name": "mlp", "hidden": [100]}`; or a `torch.nn.Module` of your
            own, which takes rows × values and gives a score for each class (or a number a row). It trains in Python
            workers by DistributedDataParallel over the chosen transport and predicts in Python workers, which need
            PyTorch; the one that is given stays as it is.
        workers: number of ranks, each one Spark task; or a range, `"2..8"`.
        batch: rows per step over all workers.
        epochs: passes over the rows.
        classWeights: `balanced`, or a list with what a row's loss is multiplied by, for each class; [] for none.
        weightCol: a column of numbers of at least 0: training minimises sum(weight * loss) / sum(weight), as Spark ML's
            own estimators do. Null, NaN or a negative number is a row without valid values (`handleInvalid`).
        standardization: whether (value - mean) / standard deviation takes the place of each feature's value, by the
            training rows and their weights, when training and in the model; True by default, as with Spark ML's own
            estimators, which leave the means where they are. A column of one value becomes 0.
            `settings={"normalize": …}` takes its place.
        validationIndicatorCol: a boolean column, true for rows that are tested on and not trained on; the model is then
            that of the epoch with the lowest test loss (`settings={"keep_best": …}` says otherwise).
        initialModel: a trained model, or the path of one or of its weights, to start from.
        settings: further keywords of `Trainer`, as a dict: `{"learning_rate": 0.1, "seed": 7}`; learning-rate schedules
            (`schedule`) and checkpoints (`checkpoint`) among them.
        handleInvalid: `error`, `skip` or `keep`.
    """

    classWeights: Param[Any] = Param(
        Params._dummy(),
        "classWeights",
        "balanced, or a list with a number for each class",
        typeConverter=TypeConverters.identity,
    )

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(model="mlp", workers=2, batch=128, epochs=5, settings={}, handleInvalid="error")
        self._setDefault(classWeights=[], featuresCols=[], initialModel=None, standardization=True)
        self.setParams(**params)

    def setClassWeights(self, value: str | Sequence[float]) -> SparkDLClassifier:
        """Sets the value of `classWeights`."""
        return self._set(classWeights=value if isinstance(value, str) else list(value))

    def getClassWeights(self) -> Any:
        """Gets the value of `classWeights` or its default value."""
        return self.getOrDefault(self.classWeights)

    def _fit(self, dataset: DataFrame) -> SparkDLClassificationModel:
        frames.check(dataset, "fit")
        _check_rule(self.getHandleInvalid())
        label = self.getLabelCol()
        names = _label_names(dataset, label)
        several = isinstance(dataset.schema[label].dataType, (ArrayType, VectorUDT))
        rows = self._rows(dataset, label, several)
        asked = self._keywords()
        if weights := self.getClassWeights():
            asked["class_weights"] = weights
        given: dict[str, Any] = {}
        loss = _asked(asked, "loss.name")
        if several and loss is None:
            asked["loss"] = _BINARY
        elif several and loss != _BINARY:
            raise ConfigurationError(
                f"Column '{label}' (labelCol) holds lists, several labels of a row, and settings has the loss "
                f"'{loss}'. Such rows have the loss {_BINARY}: leave it out, or name a column of classes."
            )
        elif not several and loss != _BINARY:
            ignored = frames.ignored_label(_asked(asked, "loss.ignore_label") or "")
            given["classes"] = max(2, _classes_in(asked) or len(names) or _count_classes(rows, label, ignored))
        trained = self._train(rows, given, **asked)
        if not several:
            trained = trained.with_labels(names if len(names) == trained.classes else [])
        model = SparkDLClassificationModel(trained)
        model._resetUid(self.uid)  # as a model of Spark ML's own has its estimator's
        return self._copyValues(model)


class SparkDLClassificationModel(
    _TrainedModel, ClassificationModel, _WithProbability, MLReadable["SparkDLClassificationModel"]
):
    """What `SparkDLClassifier.fit` returns. `transform` needs no Python worker (`Model.transform`)."""

    _estimator = "SparkDLClassifier"

    @property
    def numClasses(self) -> int:
        """Number of classes, or of the labels that a row may have."""
        return self.net.classes

    @property
    def labels(self) -> list[str]:
        """What the classes are called, as StringIndexer had it; empty where the label had no metadata."""
        return self.net.labels

    def predict(self, value: Vector) -> float:
        """The class of one row."""
        if self.net.is_multilabel:
            raise ConfigurationError(
                f"A row may have several of the model's {self.net.classes} labels, which no single number says. Ask "
                "predictProbability(value), whose values above 0.5 are the row's labels, or transform(frame)."
            )
        return float(np.argmax(self.predictRaw(value).toArray()))

    def predictRaw(self, value: Vector) -> Vector:
        """The class scores of one row, before the softmax."""
        outcome = outcomes.of_answers if self.net.is_binary else outcomes.of_classes
        return Vectors.dense(outcome(self.net.scores([value.toArray()]))[0][0])

    def predictProbability(self, value: Vector) -> Vector:
        """The classes' probabilities of one row."""
        return Vectors.dense(self.net.predict([value.toArray()])[1][0])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return self.net.transform(
            dataset,
            self._features(),
            raw_prediction=self.getRawPredictionCol(),
            probability=self.getProbabilityCol(),
            prediction=self.getPredictionCol(),
            handle_invalid=self.getHandleInvalid(),
        )

    @classmethod
    def read(cls) -> MLReader[SparkDLClassificationModel]:
        """A reader of what `write` wrote."""
        return _ModelReader(SparkDLClassificationModel)


class SparkDLRegressor(
    Regressor["SparkDLRegressionModel"],
    _Trained,
    DefaultParamsWritable,
    DefaultParamsReadable["SparkDLRegressor"],
):
    """Trains a net that predicts a number with `Trainer`, on all rows of the DataFrame that `fit` gets.

    Losses grow with the labels' unit: bring labels that are far from -1 to 1 nearer first, or lower the learning rate.
    Runs follow each other, and a run's own test figures are those of the first 1,000 rows, as with `SparkDLClassifier`.

    Args:
        featuresCol: a column of arrays or vectors, or one of numbers.
        featuresCols: numeric columns, in place of `featuresCol`.
        labelCol: the numbers to predict.
        predictionCol: as in `LinearRegression`.
        loss: `mean-squared`, `absolute` or `huber` (whose `delta` stands in settings: `{"delta": 0.5}`).
        model: as in `Trainer`: a name, or a dict: `{"name": "mlp", "hidden": [100]}`; or a `torch.nn.Module` of your
            own, which takes rows × values and gives a score for each class (or a number a row). It trains in Python
            workers by DistributedDataParallel over the chosen transport and predicts in Python workers, which need
            PyTorch; the one that is given stays as it is.
        workers: number of ranks, each one Spark task; or a range, `"2..8"`.
        batch: rows per step over all workers.
        epochs: passes over the rows.
        weightCol: a column of numbers of at least 0: training minimises sum(weight * loss) / sum(weight), as Spark ML's
            own estimators do. Null, NaN or a negative number is a row without valid values (`handleInvalid`).
        standardization: whether (value - mean) / standard deviation takes the place of each feature's value, by the
            training rows and their weights, when training and in the model; True by default, as with Spark ML's own
            estimators, which leave the means where they are. A column of one value becomes 0.
            `settings={"normalize": …}` takes its place.
        validationIndicatorCol: a boolean column, true for rows that are tested on and not trained on; the model is then
            that of the epoch with the lowest test loss (`settings={"keep_best": …}` says otherwise).
        initialModel: a trained model, or the path of one or of its weights, to start from.
        settings: further keywords of `Trainer`, as a dict: `{"learning_rate": 0.1, "seed": 7}`; learning-rate schedules
            (`schedule`) and checkpoints (`checkpoint`) among them.
        handleInvalid: `error`, `skip` or `keep`.
    """

    loss: Param[str] = Param(
        Params._dummy(), "loss", "mean-squared, absolute or huber", typeConverter=TypeConverters.toString
    )

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(model="mlp", workers=2, batch=128, epochs=5, settings={}, handleInvalid="error")
        self._setDefault(loss="mean-squared", featuresCols=[], initialModel=None, standardization=True)
        self.setParams(**params)

    def setLoss(self, value: str) -> SparkDLRegressor:
        """Sets the value of `loss`."""
        return self._set(loss=value)

    def getLoss(self) -> str:
        """Gets the value of `loss` or its default value."""
        return self.getOrDefault(self.loss)

    def _fit(self, dataset: DataFrame) -> SparkDLRegressionModel:
        frames.check(dataset, "fit")
        _check_rule(self.getHandleInvalid())
        label = self.getLabelCol()
        _check_number(dataset, label)
        asked = self._keywords()
        if "loss" in asked:
            raise ConfigurationError(
                f"settings has the loss {asked['loss']!r}. The loss is a parameter of its own: "
                f"SparkDLRegressor(loss={asked['loss']!r})."
            )
        if catalogue.canonical("loss.name", self.getLoss())[1] in ("cross-entropy", _BINARY):
            raise ConfigurationError(
                f"loss is '{self.getLoss()}', which tells classes apart. Use SparkDLClassifier, or one of the losses "
                "mean-squared, absolute and huber."
            )
        rows = self._rows(dataset, label)
        model = SparkDLRegressionModel(self._train(rows, {}, loss=self.getLoss(), **asked))
        model._resetUid(self.uid)
        return self._copyValues(model)


class SparkDLRegressionModel(_TrainedModel, RegressionModel[Vector], MLReadable["SparkDLRegressionModel"]):
    """What `SparkDLRegressor.fit` returns. `transform` needs no Python worker (`Model.transform`)."""

    _estimator = "SparkDLRegressor"

    def predict(self, value: Vector) -> float:
        """The number predicted for one row."""
        return float(self.net.scores([value.toArray()])[0, 0])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return self.net.transform(
            dataset,
            self._features(),
            prediction=self.getPredictionCol(),
            handle_invalid=self.getHandleInvalid(),
        )

    @classmethod
    def read(cls) -> MLReader[SparkDLRegressionModel]:
        """A reader of what `write` wrote."""
        return _ModelReader(SparkDLRegressionModel)


class _ModelWriter(MLWriter):
    """The parameters as Spark ML writes them, and the model's files as rows of Parquet files in `data`."""

    def __init__(self, instance: _TrainedModel) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self._instance, path, self.sc)
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-model-") as folder:
            self._instance.net.save(folder)
            rows = [
                (file.name, at // _PART_BYTES, bytearray(content[at : at + _PART_BYTES]))
                for file in sorted(Path(folder).iterdir())
                for content in [file.read_bytes()]
                for at in range(0, len(content), _PART_BYTES)
            ]
        # A task each: rows travel within tasks, whose size Spark limits (spark.rpc.message.maxSize, 128 MiB).
        each = self.sc.parallelize(rows, max(1, len(rows)))
        frame = self.sparkSession.createDataFrame(each, "file string, part int, content binary")
        frame.write.parquet(f"{path}/data")


class _ModelReader(MLReader[Any]):
    def __init__(self, kind: type[_TrainedModel]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        rows = self.sparkSession.read.parquet(f"{path}/data").orderBy("file", "part").collect()
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-model-") as folder:
            for row in rows:
                with (Path(folder) / Path(row["file"]).name).open("ab") as file:
                    file.write(row["content"])
            model: Any = self._kind(load_model(folder))
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _asked(keywords: Mapping[str, Any], key: str) -> str | None:
    """What keywords of `Trainer` say of a key of the run, by whatever words of the catalogue; None: nothing.

    Args:
        keywords: `{"loss": "bce"}`, `{"loss__name": "bce"}`, `{"loss": {"name": "bce"}}` or `{"criterion": "bce"}`.
        key: `loss.name`, say.
    """
    known = catalogue.load()
    aliases: Mapping[str, Sequence[str]] = known.aliases if known else _ALIASES
    for keyword, given in keywords.items():
        group = keyword.replace("__", ".")
        said = (
            {f"{group}.{name}": value for name, value in given.items()}
            if isinstance(given, Mapping)
            else {group: given}
        )
        for name, value in said.items():
            if value is not None and list(aliases.get(name, [name])) == [key]:
                return known.value(key, str(value)) if known else str(value)
    return None


def _refuse_parameters(estimator: str, keywords: Mapping[str, Any]) -> None:
    """Refuses keywords of `Trainer` in `settings` that parameters of the estimator say already."""
    for keyword in keywords:
        key = keyword.replace("__", ".").removeprefix("data.")
        if key in _PARAMETERS:
            parameter = _PARAMETERS[key]
            said = f"is the parameter {parameter}: {estimator}({parameter}=…)" if parameter else "is what fit gets"
            raise ConfigurationError(f"settings has {keyword!r}, which {said}. Leave it out of settings.")


def _classes_in(keywords: dict[str, Any]) -> int | None:
    """Takes the number of classes out of keywords, as `classes` or `data__classes`; None where nobody says it."""
    names = [name for name in keywords if name.replace("__", ".").removeprefix("data.") == "classes"]
    said = {name: str(keywords.pop(name)) for name in names}
    if len(set(said.values())) > 1:
        raise ConfigurationError(
            f"settings says the number of classes twice: {', '.join(f'{name}={text}' for name, text in said.items())}. "
            "Set it once."
        )
    for name, text in said.items():
        if not re.fullmatch(r"0*[1-9][0-9]*", text):
            raise ConfigurationError(f"settings has {name}={text}; it is a whole number of at least 1.")
        return int(text)
    return None


def _normalizes(keywords: Mapping[str, Any]) -> bool:
    """Whether settings say themselves how features are normalised."""
    return any(name.replace("__", ".") in ("normalize", "data.normalize") for name in keywords)


def _as_arrays(frame: DataFrame, columns: Sequence[str], strict: bool) -> DataFrame:
    """Rows with the values of `columns` as one array of floats; those with holes are left out, unless `strict`."""
    kind = frame.schema[columns[0]].dataType
    if len(columns) == 1 and isinstance(kind, VectorUDT):
        frame = frame if strict else frame.filter(_column(columns[0]).isNotNull())
        values = vector_to_array(_column(columns[0]), "float32")
    elif len(columns) == 1 and isinstance(kind, ArrayType):
        values = _column(columns[0]).cast("array<float>")
    else:
        values = functions.array(*(_column(name).cast("float") for name in columns))
    others = [name for name in (_LABEL, _WEIGHT) if name in frame.columns]
    made = frame.select(values.alias(_FEATURES), *others)
    if strict:
        return made
    whole = _are_numbers()
    for name in others:
        whole = whole & functions.col(name).isNotNull() & ~functions.isnan(name)
    return made.filter(whole & _is_weight() if _WEIGHT in others else whole)


def _is_weight() -> Any:
    """Whether the row's weight is a finite number of at least 0; not null either."""
    return functions.coalesce(functions.col(_WEIGHT).between(0, sys.float_info.max), functions.lit(False))


def _are_numbers() -> Any:
    """Whether all of a row's values are finite numbers."""
    return functions.forall(_FEATURES, lambda x: x.isNotNull() & ~functions.isnan(x) & (functions.abs(x) < math.inf))


def _width(frame: DataFrame, columns: Sequence[str]) -> int:
    first = frame.filter(functions.col(_FEATURES).isNotNull()).select(functions.size(_FEATURES)).head()
    if first is None or first[0] < 1:
        raise ConfigurationError(
            f"The DataFrame has no rows with values in '{columns[0]}', so there is nothing to learn."
        )
    return int(first[0])


def _weighed(frame: DataFrame, weighted: bool) -> DataFrame:
    """The weights, with a mean of 1, behind the values: so a mean over rows is the weighted mean."""
    if not weighted:
        return frame
    mean, wrong = frame.agg(functions.avg(_WEIGHT), functions.count_if(~_is_weight())).collect()[0]
    if wrong:
        raise ConfigurationError(
            f"{wrong} rows have a weight (weightCol) that is null, NaN, infinite or negative; weights are finite "
            "numbers of at least 0. Leave such rows out: handleInvalid='skip'."
        )
    if not mean or math.isinf(mean):
        raise ConfigurationError(
            f"The rows' weights (weightCol) have the mean {mean or 0}, so "
            + (
                "they cannot be compared. Give smaller ones."
                if mean
                else "no row counts. Give some of them one above 0."
            )
        )
    behind = functions.array((functions.col(_WEIGHT) / mean).cast("float"))
    return frame.select(functions.concat(_FEATURES, behind).alias(_FEATURES), _LABEL)


def _check_rule(rule: str) -> None:
    if rule not in ("error", "skip", "keep"):
        raise ConfigurationError(f"handleInvalid is {rule!r}; valid are 'error', 'skip' and 'keep'.")


def _feature_name(at: int, name: str) -> str:
    """Of a feature's column while it trains, and in the net: its own, unless that cannot stand beside the others."""
    return f"{_FEATURES}_{at}" if name in (_LABEL, _VALIDATION, _WEIGHT) or "," in name else name


def _column(name: str) -> Any:
    return functions.col(frames.quoted(name))


def _label_names(dataset: DataFrame, label: str) -> list[str]:
    """The names of the classes, as StringIndexer leaves them in the column's metadata; none where it has no such."""
    if label not in dataset.columns:
        raise ConfigurationError(
            f"The DataFrame has no column '{label}' (labelCol). Its columns are {', '.join(dataset.columns[:20])}."
        )
    field = dataset.schema[label]
    if field.dataType.typeName() == "string":
        raise ConfigurationError(
            f"Column '{label}' (labelCol) holds words. Number them first: StringIndexer(inputCol={label!r}, "
            "outputCol='label') of pyspark.ml.feature, whose names of the classes the model keeps."
        )
    return [str(each) for each in field.metadata.get("ml_attr", {}).get("vals", [])]


def _check_number(dataset: DataFrame, label: str) -> None:
    """Refuses a label that is not there or holds no numbers, before any job."""
    if label not in dataset.columns:
        raise ConfigurationError(
            f"The DataFrame has no column '{label}' (labelCol). Its columns are {', '.join(dataset.columns[:20])}."
        )
    kind = dataset.schema[label].dataType
    if not isinstance(kind, (NumericType, BooleanType)):
        raise ConfigurationError(
            f"Column '{label}' (labelCol) is of type {kind.simpleString()}, and a regression predicts numbers. Cast "
            "it, or name another column; for words and classes there is SparkDLClassifier."
        )


def _count_classes(rows: DataFrame, label: str, ignored: int | None) -> int:
    counted = rows.filter(~functions.isnan(_LABEL))
    if ignored is not None:
        counted = counted.filter(functions.col(_LABEL) != ignored)
    different = functions.size(functions.expr(frames.seen(_LABEL, _MOST_COUNTED)))
    found, present = counted.agg(functions.max(_LABEL), different).collect()[0]
    if found is None:
        raise ConfigurationError(
            f"No row has a label in the column '{label}' (labelCol), so there is nothing to learn."
        )
    if not 0 <= found < _MOST_COUNTED or found != int(found):
        raise ConfigurationError(
            f"The largest label in the column '{label}' (labelCol) is {found}. Labels are 0, 1, … up to "
            f"{_MOST_COUNTED - 1}. Number them with StringIndexer of pyspark.ml.feature; to predict numbers, use "
            'SparkDLRegressor; for more classes, say how many: settings={"classes": …}.'
        )
    frames.tell_gaps(label, present, int(found))
    return int(found) + 1
