"""A run's keys as a peer takes them, with all that is ready before its clock starts: rows, model, weights, orders."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench import helper_process, models, session
from sparkdl_bench.comparison import peer_data
from sparkdl_bench.comparison.cells import global_batch
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text
from sparkdl_bench.peers import FitCase
from sparkdl_bench.peers._abilities import same
from sparkdl_bench.peers.programs.measure import _same_start

# What decides how a net is trained and no peer can be told, with the value by which all train.
PEERS_WAY = {
    "clip_norm": "0",
    "max_steps": "0",
    "evaluate_every": "1",
    "early_stopping": "0",
    "loss.name": "cross-entropy",
    "loss.class_weights": "",
    "loss.ignore_label": "",
    "model.initial_weights": "",
    "data.weight": "",
    "data.padding": "0",
    "data.crop": "0",
    "data.flip": "false",
}


def prepare(settings: Mapping[str, str], spark: Mapping[str, str], folder: Path, tuned: bool = False) -> FitCase:
    """The case of a run, after its rows, model and start have been written to `folder`; what is there stays.

    Raises:
        ConfigurationError: the run is to train in a way that peers do not, so that not only the speed would differ.
    """
    rows_file = folder / peer_data.file_name(settings)
    case = replace(fit_case(settings, rows_file, spark), tuned=tuned)
    peer_data.export(settings, rows_file)
    with np.load(rows_file) as data:
        count, shape = len(data["y_train"]), [int(size) for size in data["shape"]]
    described = specification(settings, shape, int(settings.get("data.classes", "10")), folder)
    start_file = _start(described, case, count, folder)
    steps = -(-count // case.batch) * case.epochs
    schedule = {**case.schedule, **({"steps": str(steps)} if same(case.schedule.get("steps", "0"), "0") else {})}
    return replace(case, specification=described, start_path=str(start_file.resolve()), schedule=schedule)


def fit_case(settings: Mapping[str, str], data: Path, spark: Mapping[str, str]) -> FitCase:
    """The case without its model and start, for which the rows would be needed.

    Raises:
        ConfigurationError: as `prepare`.
    """
    for key, wanted in PEERS_WAY.items():
        if not same(settings.get(key, wanted), wanted):
            raise ConfigurationError(
                f"Peers train with {key} = {wanted or 'nothing'}, and the run has {settings[key]}. Leave the peers out "
                "of the comparison, or take that value."
            )
    peer_data.check(settings)
    return FitCase(
        data_path=str(data.resolve()),
        batch=global_batch(settings),
        epochs=int(settings.get("epochs", "5")),
        workers=int(settings.get("workers", "2")),
        threads=int(settings.get("engine.threads", "0")) or int(spark.get("spark.task.cpus", "1")),
        seed=int(settings.get("seed", "0")),
        optimizer={"name": "sgd", "learning_rate": "0.1", **_group(settings, "optimizer.")},
        schedule={"name": "constant", **_group(settings, "schedule.")},
    )


def specification(settings: Mapping[str, str], shape: list[int], classes: int, folder: Path) -> str:
    """The model as JSON, as the JVM of a run builds it; asked for once for a folder."""
    chosen = {key: value for key, value in settings.items() if key.startswith("model.")}
    question = {"settings": chosen, "shape": shape, "classes": classes}
    file = folder / f"model-{_digest(question)}.json"
    if not file.is_file():
        answer = helper_process.ask("sparkdl_bench.comparison.peer_case", question, "model of the peers")
        replace_text(file, json.dumps(answer))
    return file.read_text(encoding="utf-8")


def _start(described: str, case: FitCase, rows: int, folder: Path) -> Path:
    """Initial weights and the rows of each epoch: computed here, as no peer should wait for them."""
    file = folder / f"start-{_digest([described, case.seed, case.epochs, rows])}.npz"
    if not file.is_file():
        orders = [_same_start.row_order(case.seed, epoch, rows) for epoch in range(case.epochs)]
        parameters = models.read(described).initial_parameters(case.seed)
        partial = file.with_name(f".{file.name}.partial.npz")
        np.savez(partial, parameters=parameters, orders=np.asarray(orders, np.int32))
        partial.replace(file)
    return file


def _group(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _answer() -> None:
    question = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    api, _ = session.start_jvm({"spark.master": "local"})
    print(json.dumps(api.model(question["settings"], question["shape"], question["classes"])))


if __name__ == "__main__":
    helper_process.run_program(_answer)
