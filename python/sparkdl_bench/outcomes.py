"""What a model's outputs say of rows, as `predict/Outcome.scala` in the JVM has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def of_classes(outputs: npt.NDArray[Any]) -> tuple[Doubles, Doubles, npt.NDArray[np.int64]]:
    """Scores, probabilities and the most likely class of each row, of classes that exclude each other."""
    scores = outputs.astype(np.float64)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores, powers / powers.sum(axis=1, keepdims=True), scores.argmax(axis=1)


def of_answers(outputs: npt.NDArray[Any]) -> tuple[Doubles, Doubles, npt.NDArray[np.int64]]:
    """The same of outputs that each are the score of an answer, no or yes: 1 or 0 for each.

    One output alone tells classes 0 and 1 apart; the score of class 0 is then that of class 1 with the other sign.
    """
    scores = outputs.astype(np.float64)
    answers = (scores > 0).astype(np.int64)
    if scores.shape[1] == 1:
        scores = np.concatenate([-scores, scores], axis=1)
        return scores, sigmoid(scores), answers[:, 0]
    return scores, sigmoid(scores), answers


def sigmoid(x: Doubles) -> Doubles:
    powers = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, powers) / (1 + powers))
