"""What a plain TCP stream gets on loopback (two processes, blocking sockets, large buffers): bandwidths' yardstick.

`python -m sparkdl_bench.bench.link receive HOST SECONDS` and `… send HOST PORT` are its ends on hosts of their own.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import time

from sparkdl_bench.errors import RunFailedError

BUFFER_BYTES = 1 << 20
WINDOWS = 10
_TIMEOUT_S = 30.0


def measure_link_gbps(seconds: float = 2.0) -> float:
    """Gigabits a second, the median over WINDOWS windows after as long a warm-up as one window.

    Raises:
        RunFailedError: the stream broke, or nothing arrived for half a minute.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_TIMEOUT_S)
        context = multiprocessing.get_context("spawn")
        sender = context.Process(target=_send, args=(server.getsockname()[1],), daemon=True)
        sender.start()
        try:
            return _accept(server, seconds)
        except OSError as error:
            raise RunFailedError(f"The plain TCP stream on loopback could not be measured: {error}.") from error
        finally:
            sender.kill()
            sender.join(_TIMEOUT_S)


def _accept(server: socket.socket, seconds: float) -> float:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(_TIMEOUT_S)
        window_s = seconds / WINDOWS
        _receive(connection, window_s)
        return statistics.median(_receive(connection, window_s) for _ in range(WINDOWS))


def _receive(connection: socket.socket, seconds: float) -> float:
    """Gigabits a second that arrive in about `seconds`."""
    buffer = bytearray(BUFFER_BYTES)
    total = 0
    start = now = time.perf_counter()
    while now - start < seconds:
        count = connection.recv_into(buffer)
        if count == 0:
            raise OSError("the sender has gone")
        total += count
        now = time.perf_counter()
    return total * 8 / 1e9 / (now - start)


def _send(port: int, host: str = "127.0.0.1") -> None:
    """Sends until the receiver, or the program that started this process, ends it."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        while True:
            try:
                connection.sendall(buffer)
            except OSError:
                return


def main() -> None:
    role, host, number = sys.argv[1:]
    if role == "send":
        _send(int(number), host)
        return
    with socket.create_server((host, 0)) as server:
        server.settimeout(_TIMEOUT_S)
        sys.stdout.write(f"port {server.getsockname()[1]}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{_accept(server, float(number))}\n")


if __name__ == "__main__":
    main()
