"""Files that somebody tidies away under a running training: its shared memory, its folder for temporary files."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import psutil

from faults.kind import Kind, Scene
from faults.training import Training
from faults.ways import Way


class _SharedMemory(Kind):
    name = "shared-memory-removed"
    doc = "The mapped files through which ranks of one host, or a rank and its engine, exchange are removed."

    def suits(self, way: Way) -> bool:
        return way.name in ("block-stream-sliced", "numpy-engine", "decoded-sharded", "ucx-sliced", "mpi-sliced")

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        files = mapped(scene.training)
        for file in files:
            file.unlink(missing_ok=True)
        return f"{moment}, {len(files)} files"


class _Temporary(Kind):
    name = "temporary-removed"
    doc = "The folder for temporary files is removed."

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment(with_session=True)
        shutil.rmtree(scene.temporary, ignore_errors=True)
        return moment

    def heal(self, scene: Scene) -> None:
        scene.temporary.mkdir(exist_ok=True)


def mapped(training: Training) -> list[Path]:
    """Files of ours that the run's processes have mapped."""
    found: set[Path] = set()
    for process in training.processes():
        with contextlib.suppress(psutil.Error, OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            paths = (Path(line.split(maxsplit=5)[5]) for line in lines if len(line.split(maxsplit=5)) == 6)
            found.update(path for path in paths if path.name.startswith("sparkdl-") and path.suffix != ".jar")
    return sorted(path for path in found if path.is_file())


KINDS: list[Kind] = [_SharedMemory(), _Temporary()]
