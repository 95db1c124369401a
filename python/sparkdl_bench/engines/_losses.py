"""The losses of the axis `loss` in NumPy: of a batch's outputs the sum over rows, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError

Values = npt.NDArray[np.floating[Any]]
NAMES = ("absolute", "binary-cross-entropy", "cross-entropy", "huber", "mean-squared")


@dataclass(frozen=True)
class Loss:
    """What training makes small.

    Attributes:
        name: one of `NAMES`. `binary-cross-entropy` has a label, 0 or 1, for each output; all but these two are for
            regression: one output, labels are numbers.
        delta: largest error that `huber` squares, in the label's unit.
        class_weights: of `cross-entropy` what a row's loss is multiplied by, for each class; none: all count alike.
        ignored_label: of both cross-entropies the label of rows, or of their outputs, whose loss is 0; None: all count.

    Raises:
        ConfigurationError: another name, or a delta that is not above 0.
    """

    name: str = "cross-entropy"
    delta: float = 1.0
    class_weights: tuple[float, ...] = ()
    ignored_label: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ConfigurationError(f"There is no loss '{self.name}'. Valid: {', '.join(NAMES)}.")
        if not 0 < self.delta < float("inf"):
            raise ConfigurationError(f"The loss's delta is {self.delta}; it must be a number above 0.")

    @property
    def is_regression(self) -> bool:
        return self.has_numbers and not self.is_binary

    @property
    def is_binary(self) -> bool:
        return self.name == "binary-cross-entropy"

    @property
    def has_numbers(self) -> bool:
        """Whether labels are numbers, fp32: one a row, or rows × outputs."""
        return self.name != "cross-entropy"

    def of(
        self, outputs_BC: Values, labels: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None
    ) -> tuple[float, Values]:
        """The sum of the rows' losses, and its gradient with respect to the outputs, B rows × C outputs.

        Args:
            weights: what each row's loss is multiplied by; None: all count alike.
        """
        if self.is_regression:
            losses_B, gradient_BC = self._of_errors(outputs_BC, labels)
        elif self.is_binary:
            losses_B, gradient_BC = self._of_answers(outputs_BC, labels)
        else:
            counted_B = self.counted(labels)
            if not counted_B.all():
                # Their label may be none of the classes.
                labels = np.where(counted_B, labels, 0)
                weights = counted_B if weights is None else np.where(counted_B, weights, 0)
            losses_B, gradient_BC = _cross_entropy(outputs_BC, labels)
            if self.class_weights:
                of_classes = np.asarray(self.class_weights, outputs_BC.dtype)[labels]
                weights = of_classes if weights is None else of_classes * weights
        if weights is not None:
            own_B = weights.astype(outputs_BC.dtype, copy=False)
            losses_B, gradient_BC = losses_B * own_B, gradient_BC * own_B[:, np.newaxis]
        return float(losses_B.sum(dtype=np.float64)), gradient_BC

    def counted(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which labels count."""
        if self.ignored_label is None:
            return np.ones(labels.shape, bool)
        return np.asarray(labels != self.ignored_label)

    def measured(self, outputs_BC: Values, labels: npt.NDArray[Any]) -> tuple[int, int]:
        """How many rows count, and how many of these are classified rightly; of a regression 0."""
        if self.is_regression:
            return len(labels), 0
        if self.is_binary:
            labels_BC = labels.reshape(outputs_BC.shape)
            counted_BC = self.counted(labels_BC)
            right_BC = (outputs_BC > 0) == (labels_BC > 0.5)
            counted_B, right_B = counted_BC.any(axis=1), (right_BC | ~counted_BC).all(axis=1)
        else:
            counted_B, right_B = self.counted(labels), np.argmax(outputs_BC, axis=1) == labels
        return int(counted_B.sum()), int((counted_B & right_B).sum())

    def _of_answers(self, outputs_BC: Values, labels: npt.NDArray[Any]) -> tuple[Values, Values]:
        """The mean over a row's outputs, by formulas that do not overflow."""
        labels_BC = labels.reshape(outputs_BC.shape)
        counted_BC = self.counted(labels_BC)
        wanted_BC = np.where(counted_BC, labels_BC, 0).astype(outputs_BC.dtype)
        powers_BC = np.exp(-np.abs(outputs_BC))
        losses_BC = np.maximum(outputs_BC, 0) - outputs_BC * wanted_BC + np.log1p(powers_BC)
        likely_BC = np.where(outputs_BC >= 0, 1, powers_BC) / (1 + powers_BC)
        slopes_BC = np.where(counted_BC, likely_BC - wanted_BC, 0) / outputs_BC.shape[1]
        return np.where(counted_BC, losses_BC, 0).mean(axis=1), slopes_BC.astype(outputs_BC.dtype, copy=False)

    def _of_errors(self, outputs_BC: Values, labels: npt.NDArray[Any]) -> tuple[Values, Values]:
        error_BC = outputs_BC - labels.astype(outputs_BC.dtype)[:, np.newaxis]
        size_BC = np.abs(error_BC)
        if self.name == "mean-squared":
            losses_BC, slopes_BC = error_BC * error_BC, 2 * error_BC
        elif self.name == "absolute":
            losses_BC, slopes_BC = size_BC, np.sign(error_BC)
        else:
            beyond_BC = self.delta * (size_BC - self.delta / 2)
            losses_BC = np.where(size_BC <= self.delta, error_BC * error_BC / 2, beyond_BC)
            slopes_BC = np.clip(error_BC, -self.delta, self.delta)
        return losses_BC.sum(axis=1), slopes_BC.astype(outputs_BC.dtype, copy=False)


CROSS_ENTROPY = Loss()


def log_softmax(x_BC: Values) -> Values:
    shifted = x_BC - x_BC.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _cross_entropy(logits_BC: Values, labels: npt.NDArray[Any]) -> tuple[Values, Values]:
    log_probabilities_BC = log_softmax(logits_BC)
    rows = np.arange(len(labels))
    picked: Values = log_probabilities_BC[rows, labels]
    gradient_BC = np.exp(log_probabilities_BC)
    gradient_BC[rows, labels] -= 1
    return -picked, gradient_BC
