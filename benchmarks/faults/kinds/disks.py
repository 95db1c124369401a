"""Disks that fill up while a run writes to them, and one that becomes read-only (mounted for the run; needs root)."""

from __future__ import annotations

import errno
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from faults.kind import Kind, Scene, needs_root
from faults.law import Expectation
from sparkdl_bench.errors import RunFailedError

_COMMAND_S = 30.0
_REFILL_S = 0.02
_PIECE = bytes(1 << 20)
_REMOUNTS = 200
_FILLER = "filler"


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RunFailedError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}.")


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own at `folder`; gone afterwards."""
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "none", str(folder))
    try:
        yield
    finally:
        # Lazily: a process that is being killed may still hold a file there.
        _run("umount", "--lazy", str(folder))


class _Filler(threading.Thread):
    """Keeps a disk full until it is told to stop: what a run removes there gives no room."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="filler", daemon=True)
        self._file, self._over = folder / _FILLER, threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            for piece in (_PIECE, _PIECE[:4096], _PIECE[:1]):
                self._fill(piece)
            time.sleep(_REFILL_S)

    def _fill(self, piece: bytes) -> None:
        try:
            with self._file.open("ab", buffering=0) as stream:
                while not self._over.is_set():
                    stream.write(piece)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def stop(self) -> None:
        self._over.set()
        self.join(_COMMAND_S)
        self._file.unlink(missing_ok=True)


class _FullDisk(Kind):
    def __init__(
        self, name: str, doc: str, place: Callable[[Scene], Path], megabytes: int, summary: bool = True
    ) -> None:
        self.name, self.doc, self._place, self._megabytes, self._summary = name, doc, place, megabytes, summary
        self._filler: _Filler | None = None

    def obstacle(self) -> str | None:
        return needs_root()

    def expectation(self, weights: str) -> Expectation:
        return Expectation(weights, summary=self._summary)

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        with small_disk(self._place(scene), self._megabytes):
            try:
                yield
            finally:
                self.heal(scene)

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        self._filler = _Filler(self._place(scene))
        self._filler.start()
        return moment

    def heal(self, scene: Scene) -> None:  # noqa: ARG002 (an interface's)
        if self._filler:
            self._filler.stop()
            self._filler = None


class _ReadOnly(Kind):
    name = "checkpoints-read-only"
    doc = "The file system of the checkpoints becomes read-only."

    def obstacle(self) -> str | None:
        return needs_root()

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        with small_disk(scene.checkpoints, 64):
            yield

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        for _ in range(_REMOUNTS):
            try:
                _run("mount", "-o", "remount,ro", str(scene.checkpoints))
                break
            except RunFailedError:  # busy: a checkpoint is being written
                time.sleep(0.005)
        else:
            return f"{moment}, always busy"
        return moment

    def heal(self, scene: Scene) -> None:
        with suppress(RunFailedError):
            _run("mount", "-o", "remount,rw", str(scene.checkpoints))


KINDS: list[Kind] = [
    _FullDisk("results-full", "The disk of the results is full.", lambda scene: scene.results, 64, summary=False),
    _FullDisk("checkpoints-full", "The disk of the checkpoints is full.", lambda scene: scene.checkpoints, 64),
    _FullDisk("local-full", "The disk of Spark's scratch space is full.", lambda scene: scene.local, 512),
    _ReadOnly(),
]
