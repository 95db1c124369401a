"""An engine in a process of its own beside a task of Spark, whose JVM asks it (`engine/python/PythonProcess.scala`).

`python -m sparkdl_bench.engines._process` reads requests from its standard input and answers each on its standard
output, until the input ends. The first request is a line of JSON, the others are binary, numbers big-endian; rows,
weights and gradients stand in files that both map, numbers as the host has them.

    request 1   {"version", "engine", "device", "seed", "rows", "loss", "delta", "class_weights", "ignored_label",
                "model", "files": {"parameters", "gradients", "statistics", "batch"}, "labels_at", "ids_at"}: what to
                compute; the batch's file holds features (fp32), and from those bytes on labels (int64; where labels are
                numbers the bits of one of fp32 in the lower half; the upper half has the bits by which the row's
                weight, fp32, differs from 1, or where none was given 0, or -1 behind a negative label) and ids (int32),
                room for `rows` rows each; of answers each row has as many labels as the model has outputs, and its
                weight is with the first
    answer 1    int32 0, int32 length, that many bytes of JSON: the engine's facts
    request n   int32 what (1 step, 2 evaluation, 3 prediction), int32 rows, int64 number of the step, float64 weight
    answer n    int32 0, float64 sum of the rows' losses, int64 rows that are classified rightly (of a step 0);
                behind those of an evaluation, and alone after the int32 0 of a prediction: int32 length, that many
                bytes of class scores, fp32, big-endian
    any answer  int32 1 (the user can fix it) or 2, int32 length, that many bytes of UTF-8: why there is no other
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from sparkdl_bench import engines, models
from sparkdl_bench.engines import Batch, Memory
from sparkdl_bench.engines._losses import Loss
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.version import __version__

_DONE, _USER_ERROR, _FAILED = 0, 1, 2
_STEP, _EVALUATION, _PREDICTION = 1, 2, 3
_REQUEST = struct.Struct(">iiqd")
_RESULT = struct.Struct(">idq")
_WORDS = struct.Struct(">ii")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; the JVM ends us
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What libraries print must not get between the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:  # the JVM has gone
        os._exit(1)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers until the requests end."""
    try:
        served = _Served(json.loads(requests.readline()))
    except Exception as error:
        _refuse(answers, error)
        return
    _tell(answers, _DONE, json.dumps(served.facts))
    while len(request := requests.read(_REQUEST.size)) == _REQUEST.size:
        what, rows, step, weight = _REQUEST.unpack(request)
        try:
            if what == _PREDICTION:
                scores = served.predict(rows)
                answer = _WORDS.pack(_DONE, len(scores)) + scores
            elif what == _EVALUATION:
                loss, correct, scores = served.evaluate(rows)
                answer = _RESULT.pack(_DONE, loss, correct) + struct.pack(">i", len(scores)) + scores
            else:
                answer = _RESULT.pack(_DONE, served.step(what, rows, step, weight), 0)
        except Exception as error:
            _refuse(answers, error)
        else:
            answers.write(answer)
            answers.flush()


class _Served:
    """The engine, over the mapped files."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        if question["version"] != __version__:
            raise ConfigurationError(
                f"The jar of sparkdl-bench is of version {question['version']}, and the Python package that "
                f"{sys.executable} finds in '{Path(engines.__file__).parents[1]}' of {__version__}. Install both from "
                "one version on every host, or name a Python that has it with engine.python."
            )
        spec = models.read(question["model"])
        self._rows, self._width = int(question["rows"]), int(np.prod(spec.input_shape))
        files = question["files"]
        memory = Memory(
            _floats(files["parameters"], spec.parameter_count),
            _floats(files["gradients"], spec.parameter_count),
            _floats(files["statistics"], spec.statistics_count),
        )
        batch = _mapped(files["batch"])
        self._features = np.frombuffer(batch, np.float32, self._rows * self._width).reshape(self._rows, self._width)
        self._ids = np.frombuffer(batch, np.int32, self._rows, int(question["ids_at"]))
        variant = engines.find(str(question["engine"]))
        weights = tuple(float(each) for each in question["class_weights"])
        self._loss = Loss(str(question["loss"]), float(question["delta"]), weights, question["ignored_label"])
        # As many a row as outputs where these are answers.
        self._labels_a_row = spec.classes if self._loss.is_binary else 1
        count = self._rows * self._labels_a_row
        self._labels = np.frombuffer(batch, np.int64, count, int(question["labels_at"]))
        self._engine = variant.over(spec, int(question["seed"]), memory, str(question["device"]), self._loss)

    @property
    def facts(self) -> dict[str, str]:
        return {"process": sys.executable, **self._engine.facts}

    def step(self, what: int, rows: int, step: int, weight: float) -> float:
        """The sum of the losses."""
        if what != _STEP:
            raise ValueError(
                f"request {what} is no step ({_STEP}), evaluation ({_EVALUATION}), prediction ({_PREDICTION})"
            )
        loss = self._engine.step(self._batch(rows, step), weight)
        _ = self._engine.gradients  # copies them out of a GPU
        return loss

    def evaluate(self, rows: int) -> tuple[float, int, bytes]:
        """The sum of the losses, the rows that are classified rightly, and the class scores, fp32, big-endian."""
        found = self._engine.evaluate(self._batch(rows, 0))
        return found.loss_sum, found.correct, found.scores.astype(">f4").tobytes()

    def predict(self, rows: int) -> bytes:
        """The class scores of the rows, fp32, big-endian."""
        return self._engine.predict(self._batch(rows, 0)).astype(">f4").tobytes()

    def _batch(self, rows: int, step: int) -> Batch:
        if not 0 < rows <= self._rows:
            raise ValueError(f"a batch of {rows} rows was given to an engine loaded for at most {self._rows}")
        both = self._labels[: rows * self._labels_a_row]
        labels: Any = both.astype(np.int32)
        labels = labels.view(np.float32) if self._loss.has_numbers else labels.astype(np.int64)
        if self._labels_a_row > 1:
            labels = labels.reshape(rows, self._labels_a_row)
        weights = _weights(both[:: self._labels_a_row] >> 32)
        return Batch(self._features[:rows], labels, self._ids[:rows].tolist(), step, weights)


def _weights(upper: npt.NDArray[np.int64]) -> npt.NDArray[np.float32] | None:
    """The rows' weights of the upper halves of their labels; None where no row has one of its own."""
    given = (upper != 0) & (upper != -1)
    if not given.any():
        return None
    bits = np.where(given, upper, 0).astype(np.int32) ^ np.float32(1).view(np.int32)
    return np.asarray(bits.view(np.float32))


def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _floats(path: str, count: int) -> npt.NDArray[np.float32]:
    return np.frombuffer(_mapped(path), np.float32)[:count]


def _refuse(answers: BinaryIO, error: Exception) -> None:
    if isinstance(error, SparkDLError):
        _tell(answers, _USER_ERROR if isinstance(error, ConfigurationError) else _FAILED, str(error))
    else:
        traceback.print_exc()  # to the file that standard error is
        _tell(answers, _FAILED, f"{type(error).__name__}: {error}")


def _tell(answers: BinaryIO, status: int, words: str) -> None:
    content = words.encode()
    answers.write(_WORDS.pack(status, len(content)) + content)
    answers.flush()


if __name__ == "__main__":
    main()
