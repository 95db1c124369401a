"""What a trainer of whole epochs can be told, so that a run which it would train in another way is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import FitCase

SGD = frozenset({"momentum", "weight_decay", "nesterov"})
ADAM = frozenset({"beta1", "beta2", "epsilon", "weight_decay"})
ADAGRAD = frozenset({"epsilon", "weight_decay"})
# What PyTorch computes as our optimisers do (docs/reference/variants.md).
ALL_OPTIMIZERS = {"sgd": SGD, "adam": ADAM, "adamw": ADAM, "adagrad": ADAGRAD}
PERCEPTRON = frozenset({"linear", "relu", "flatten"})
# By which a key does nothing.
NEUTRAL = {"momentum": "0", "weight_decay": "0", "nesterov": "false"}


@dataclass(frozen=True)
class Abilities:
    """See the module.

    Attributes:
        optimizers: by name the keys that it has beyond the learning rate; empty: the optimiser is its own.
        layers: kinds of layers; None: all. With `chain` each reads the one before it alone.
        schedules: whether the learning rate may change.
        most_workers: None: as many as there are cores for.
        divides: whether the batch must be a multiple of the workers.
    """

    optimizers: Mapping[str, frozenset[str]]
    layers: frozenset[str] | None = None
    chain: bool = False
    schedules: bool = False
    least_workers: int = 1
    most_workers: int | None = 1
    most_threads: int | None = None
    divides: bool = False

    def check(self, name: str, case: FitCase) -> None:
        """Raises a ConfigurationError where the peer `name` would train `case` in another way."""
        self._check_optimizer(name, case)
        if not self.schedules and not _is_constant(case.schedule):
            raise ConfigurationError(
                f"The peer '{name}' trains with a constant learning rate, and the run has schedule.name = "
                f"{case.schedule.get('name')} with {case.schedule.get('warmup_steps', '0')} steps of warm-up. Take "
                "schedule.name = constant, or leave the peer out."
            )
        self._check_workers(name, case)
        if self.layers is not None and case.specification:
            self._check_layers(name, self.layers, case.specification)

    def _check_optimizer(self, name: str, case: FitCase) -> None:
        if not self.optimizers:
            return
        chosen = case.optimizer.get("name", "sgd")
        if chosen not in self.optimizers:
            raise ConfigurationError(
                f"The peer '{name}' cannot train with optimizer.name = {chosen}; it has {', '.join(self.optimizers)}. "
                "Take one of these, or leave the peer out."
            )
        for key, neutral in NEUTRAL.items():
            value = case.optimizer.get(key, neutral)
            is_used = key in ALL_OPTIMIZERS.get(chosen, SGD)  # what another optimiser alone has means nothing to ours
            if is_used and key not in self.optimizers[chosen] and not same(value, neutral):
                raise ConfigurationError(
                    f"The peer '{name}' trains with optimizer.{key} = {neutral}, and the run has {value}. Take that "
                    "value, or leave the peer out."
                )

    def _check_workers(self, name: str, case: FitCase) -> None:
        if case.workers < self.least_workers:
            raise ConfigurationError(
                f"The peer '{name}' needs at least {self.least_workers} workers, and the run has {case.workers}."
            )
        if self.most_workers is not None and case.workers > self.most_workers:
            raise ConfigurationError(
                f"The peer '{name}' is one process, but the case has {case.workers} workers. Set workers to 1 (threads "
                "may be more), or take a peer that is distributed."
            )
        if self.most_threads is not None and case.threads > self.most_threads:
            raise ConfigurationError(
                f"The peer '{name}' computes with at most {self.most_threads} thread per worker, and the run has "
                f"{case.threads}. Set engine.threads to 1 for it."
            )
        if self.divides and case.batch % case.workers:
            raise ConfigurationError(
                f"The peer '{name}' gives each worker the same number of rows, and a batch of {case.batch} is no "
                f"multiple of {case.workers} workers. Take one that is, or leave the peer out."
            )

    def _check_layers(self, name: str, kinds: frozenset[str], specification: str) -> None:
        before = "input"
        for layer in json.loads(specification)["layers"]:
            inputs = layer.get("inputs") or [before]
            if layer["kind"] not in kinds or (self.chain and inputs != [before]):
                raise ConfigurationError(
                    f"The peer '{name}' computes {'chains of ' if self.chain else ''}{', '.join(sorted(kinds))}; layer "
                    f"'{layer['name']}' of the model is of kind '{layer['kind']}' and reads {', '.join(inputs)}. Take "
                    "another model, or leave the peer out."
                )
            before = layer["name"]


def same(value: str, other: str) -> bool:
    """Whether two texts of a configuration mean the same."""
    try:
        return float(value) == float(other)
    except ValueError:
        return value.strip().lower() == other


def _is_constant(schedule: Mapping[str, str]) -> bool:
    return schedule.get("name", "constant") == "constant" and same(schedule.get("warmup_steps", "0"), "0")
