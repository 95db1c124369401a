"""Strangers at the listening ports of a run: programs that connect and are no part of it."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import psutil

_CONNECT_S = 1.0
_PAUSE_S = 0.02
_MOST_OPEN = 40
_DRIP_S = 0.05

Manner = Callable[[socket.socket, random.Random], bool]
"""What a stranger does with a new connection; whether it holds it open then."""


def knock(connection: socket.socket, chance: random.Random) -> bool:
    """Connects and closes, at times with a reset."""
    if chance.random() < 0.5:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def noise(connection: socket.socket, chance: random.Random) -> bool:
    """Sends random bytes, as many as a message or a flood has."""
    connection.sendall(chance.randbytes(chance.choice([1, 64, 4096, 1 << 18])))
    return False


def half(connection: socket.socket, chance: random.Random) -> bool:
    """Begins as a peer would, and says no more."""
    # Of Spark's frames the length and the type of message; of `tcp` magic number and version; of TLS its hello.
    frame = struct.pack(">QB", chance.choice([21, 1 << 20, 1 << 62]), chance.randrange(12)) + chance.randbytes(9)
    hello = struct.pack(">IIQ", 0x53444C54, 1, chance.randrange(1 << 63))
    tls = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + chance.randbytes(16)
    connection.sendall(chance.choice([frame, hello, tls]))
    return True


def drip(connection: socket.socket, chance: random.Random) -> bool:
    """Sends a byte now and then, and holds the connection."""
    connection.sendall(chance.randbytes(1))
    return True


MANNERS: dict[str, Manner] = {"knock": knock, "noise": noise, "half": half, "drip": drip}


class Strangers(threading.Thread):
    """Goes from port to port until it is told to stop.

    Args:
        listening: gives the addresses to visit, again and again: a run opens its ports one by one.
        manners: what to do, by turns.

    Attributes:
        visits: connections made so far, by port.
    """

    def __init__(
        self, listening: Callable[[], Iterable[tuple[str, int]]], manners: Sequence[Manner], chance: random.Random
    ) -> None:
        super().__init__(name="strangers", daemon=True)
        self._listening, self._manners, self._chance = listening, manners, chance
        self._over = threading.Event()
        self._open: list[tuple[socket.socket, float]] = []
        self.visits: dict[int, int] = {}

    def run(self) -> None:
        while not self._over.is_set():
            for address in self._listening():
                if self._over.is_set():
                    break
                self._visit(address, self._chance.choice(self._manners))
                self._drip()
                time.sleep(_PAUSE_S)
            time.sleep(_PAUSE_S)
        for connection, _ in self._open:
            connection.close()

    def stop(self) -> None:
        self._over.set()
        self.join(60)

    def _visit(self, address: tuple[str, int], manner: Manner) -> None:
        try:
            connection = socket.create_connection(address, _CONNECT_S)
        except OSError:
            return  # it has just been closed
        self.visits[address[1]] = self.visits.get(address[1], 0) + 1
        held = False
        try:
            held = manner(connection, self._chance)
        except OSError:
            held = False  # it would not have us
        if held and len(self._open) < _MOST_OPEN:
            self._open.append((connection, time.monotonic() if manner is drip else float("inf")))
        else:
            connection.close()

    def _drip(self) -> None:
        now = time.monotonic()
        for index, (connection, due) in enumerate(self._open):
            if due <= now:
                with contextlib.suppress(OSError):
                    connection.send(b"\x00")
                self._open[index] = (connection, now + _DRIP_S)


def listening(processes: Iterable[psutil.Process]) -> list[tuple[str, int]]:
    """The addresses at which these processes take connections."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            for each in process.net_connections("inet"):
                if each.status == psutil.CONN_LISTEN and each.laddr:
                    host = each.laddr.ip.removeprefix("::ffff:")
                    found.add(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), each.laddr.port))  # noqa: S104
    return sorted(found)
