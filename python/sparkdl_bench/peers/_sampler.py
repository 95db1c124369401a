"""What a peer's processes use, looked at from outside while they run: the same file that a run of ours leaves.

A peer is not asked. Its processes are those that it has started, however deep, and those that carry its mark; a process
that lives shorter than a look is missed, and so is what one did after its last.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

HERTZ = 4.0
FILE = "resources.json"
# How often it looks for processes that are new.
_SEARCH_S = 1.0
# What a system does not tell (docs/reference/metrics.md).
_UNKNOWN = -1
# The longest run keeps so many samples of a process: every second one is dropped each time.
_MOST_SAMPLES = 4000


class Sampler:
    """Samples in a thread of its own between `start` and `stop`.

    Args:
        child: the process whose descendants are the peer's.
        others: finds processes of the peer that are no descendants (any more).
    """

    def __init__(self, child: int, others: Callable[[], Iterable[psutil.Process]], hertz: float = HERTZ) -> None:
        self._child, self._others, self._period = child, others, 1 / hertz
        self._seen: dict[int, _Process] = {}
        self._begun = time.monotonic()
        self._searched = float("-inf")
        self._network = _network()
        self._cpu_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkdl-peer-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)

    def sample(self) -> None:
        """One look at all processes."""
        begun = time.thread_time()
        now = time.monotonic()
        if now - self._searched >= _SEARCH_S:
            self._searched = now
            for process in self._found():
                if process.pid not in self._seen:
                    self._seen[process.pid] = _Process(process)
        network = _network()
        moved = {name: (sent - self._network.get(name, (0, 0))[0], received - self._network.get(name, (0, 0))[1])
                 for name, (sent, received) in network.items()}  # fmt: skip
        for each in self._seen.values():
            each.sample(now - self._begun, moved)
        self._cpu_s += time.thread_time() - begun

    def content(self) -> dict[str, Any]:
        """As `resources.json` holds it; of the whole machine is `network`, as in a run of ours."""
        listed = [each.content() for each in self._seen.values() if each.seconds]
        if listed:  # all of it was the work of one thread
            listed[0] |= {
                "sampler_cpu_seconds": round(self._cpu_s, 4),
                "sampler_seconds": round(time.monotonic() - self._begun, 3),
            }
        return {"schema": 1, "hertz": 1 / self._period, "sampled": "from outside", "processes": listed}

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.content()) + "\n", encoding="utf-8")

    def _found(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            child = psutil.Process(self._child)
            found = [child, *child.children(recursive=True)]
        return [*found, *self._others()]

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.sample()
            self._stopped.wait(self._period)


class _Process:
    """One process, as long as it lives."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._lives = True
        self._cpu_s: float | None = None
        self._every, self._looks = 1, 0
        self.name = ""
        self.seconds: list[float] = []
        self._cores: list[float] = []
        self._resident: list[int] = []
        self._threads: list[int] = []
        self._network: dict[str, tuple[list[int], list[int]]] = {}

    def sample(self, at_s: float, network: dict[str, tuple[int, int]]) -> None:
        if not self._lives:
            return
        self._looks += 1
        if self._looks % self._every:
            return
        try:
            with self._process.oneshot():
                if self._process.status() == psutil.STATUS_ZOMBIE:
                    self._lives = False
                    return
                self.name = self.name or _called(self._process)
                times = self._process.cpu_times()
                resident = self._process.memory_info().rss
                threads = self._process.num_threads()
        except psutil.Error:
            self._lives = False
            return
        used_s = times.user + times.system
        before_s = self._cpu_s if self._cpu_s is not None else used_s
        span_s = at_s - self.seconds[-1] if self.seconds else 0.0
        self._cpu_s = used_s
        self.seconds.append(round(at_s, 3))
        self._cores.append(round((used_s - before_s) / span_s, 3) if span_s > 0 else 0.0)
        self._resident.append(resident)
        self._threads.append(threads)
        for interface, (sent, received) in network.items():
            lists = self._network.setdefault(interface, ([], []))
            lists[0].append(sent)
            lists[1].append(received)
        if len(self.seconds) > _MOST_SAMPLES:
            self._thin()

    def content(self) -> dict[str, Any]:
        count = len(self.seconds)
        return {
            "process": f"{self.name} {self._process.pid}",
            "host": "127.0.0.1",
            "seconds": self.seconds,
            "cpu_cores": self._cores,
            "resident_bytes": self._resident,
            "threads": self._threads,
            "heap_bytes": [_UNKNOWN] * count,
            "direct_bytes": [_UNKNOWN] * count,
            "gc_ms": [_UNKNOWN] * count,
            "network": {
                interface: {"received_bytes": received[-count:], "sent_bytes": sent[-count:]}
                for interface, (sent, received) in self._network.items()
                if len(sent) >= count
            },
        }

    def _thin(self) -> None:
        self._every *= 2
        for values in (self.seconds, self._cores, self._resident, self._threads):
            del values[::2]
        for sent, received in self._network.values():
            del sent[::2]
            del received[::2]


def _called(process: psutil.Process) -> str:
    """`java CoarseGrainedExecutorBackend`, `python`: what tells a peer's processes apart, and no path."""
    name = process.name()
    if name == "java":
        main = next((word for word in process.cmdline() if word.startswith("org.apache.spark.")), "")
        return f"{name} {main.rpartition('.')[2]}".strip()
    return name


def _network() -> dict[str, tuple[int, int]]:
    """By interface of this host the bytes sent and received since it started."""
    return {name: (each.bytes_sent, each.bytes_recv) for name, each in psutil.net_io_counters(pernic=True).items()}
