"""The bytes that processes of this host send each other over the loopback device, for tests (needs root)."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
import threading
from types import TracebackType

import numpy as np

_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_PACKET_OUTGOING = 4
_BUFFER_BYTES = 256 << 20
_ETHERNET_BYTES = 14
_LARGEST_PACKET_BYTES = 1 << 17
_POLL_SECONDS = 0.2


def obstacle() -> str | None:
    """Why nothing can be captured here; None when it can."""
    if not sys.platform.startswith("linux"):
        return "capturing packets needs Linux"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        return "capturing packets needs root (CAP_NET_RAW)"
    return None


class LoopbackCapture:
    """TCP payloads between local ports, of which one lies in `ports`, while the `with` block runs.

    `streams` holds, by (source port, destination port), the payloads in the order of their arrival. A packet passes the
    loopback device twice, out and in; it is taken once.
    """

    def __init__(self, ports: range) -> None:
        self.streams: dict[tuple[int, int], bytearray] = {}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        _attach(self._socket, ports)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(_POLL_SECONDS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> LoopbackCapture:  # noqa: PYI034 (Self is of Python 3.11)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(30)
        self._socket.close()

    @property
    def byte_count(self) -> int:
        return sum(len(stream) for stream in self.streams.values())

    def count(self, needles: list[bytes], ports: range | None = None) -> int:
        """How many of the byte strings appear somewhere, or somewhere from or to one of `ports`."""
        streams = list(self.streams.values()) if ports is None else self.at(ports)
        found = set().union(*(_found(needles, bytes(stream)) for stream in streams))
        return sum(needle in found for needle in needles)

    def at(self, ports: range) -> list[bytearray]:
        """The streams from or to one of `ports`."""
        return [stream for ends, stream in self.streams.items() if any(end in ports for end in ends)]

    def _receive(self) -> None:
        while True:
            try:
                packet, address = self._socket.recvfrom(_LARGEST_PACKET_BYTES)
            except TimeoutError:  # what had arrived before the end is read first
                if self._ended.is_set():
                    return
                continue
            if address[2] != _PACKET_OUTGOING:
                self._keep(packet)

    def _keep(self, packet: bytes) -> None:
        tcp = _ETHERNET_BYTES + (packet[_ETHERNET_BYTES] & 0xF) * 4
        (length,) = struct.unpack_from("!H", packet, _ETHERNET_BYTES + 2)
        source, destination = struct.unpack_from("!HH", packet, tcp)
        data = tcp + (packet[tcp + 12] >> 4) * 4
        # A large packet that the device has not cut says 0 or is longer than 16 bits can say.
        end = _ETHERNET_BYTES + length if length else len(packet)
        if data < end:
            self.streams.setdefault((source, destination), bytearray()).extend(packet[data:end])


def _found(needles: list[bytes], stream: bytes) -> set[bytes]:
    """Those that the stream holds. In one pass: thousands of searches one by one take longer than the capture."""
    wanted = set(needles)
    lengths = {len(needle) for needle in wanted}
    begins = np.zeros(1 << 16, dtype=bool)
    begins[[int.from_bytes(needle[:2], "little") for needle in wanted]] = True
    data = np.frombuffer(stream, np.uint8).astype(np.uint16)
    found: set[bytes] = set()
    for at in np.flatnonzero(begins[data[:-1] | data[1:] << 8]).tolist():
        found.update(piece for length in lengths if (piece := stream[at : at + length]) in wanted)
    return found


def _attach(raw: socket.socket, ports: range) -> None:
    """Lets the kernel drop all but IPv4 TCP packets from or to one of `ports` (classic BPF)."""
    load_half, load_byte, load_half_from_x, header_to_x = 0x28, 0x30, 0x48, 0xB1
    if_equal, if_at_least, answer = 0x15, 0x35, 0x06
    first, last = ports[0], ports[-1]
    program = [
        (load_half, 0, 0, 12),
        (if_equal, 0, 10, 0x0800),  # IPv4
        (load_byte, 0, 0, 23),
        (if_equal, 0, 8, 6),  # TCP
        (header_to_x, 0, 0, _ETHERNET_BYTES),
        (load_half_from_x, 0, 0, _ETHERNET_BYTES),  # source port
        (if_at_least, 0, 1, first),
        (if_at_least, 0, 3, last + 1),
        (load_half_from_x, 0, 0, _ETHERNET_BYTES + 2),  # destination port
        (if_at_least, 0, 2, first),
        (if_at_least, 1, 0, last + 1),
        (answer, 0, 0, _LARGEST_PACKET_BYTES),
        (answer, 0, 0, 0),
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code)
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(memory)))
