"""One Spark application that trains several cells, in a process of its own.

`python -m sparkdl_bench.comparison.application READ WRITE` reads one JSON object a line from the file descriptor READ
(first `{"spark": …}`, then `{"settings": …}` for each run) and answers each with one on WRITE: `{"ok": true}`, or
`{"error": …}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from sparkdl_bench.errors import RunFailedError, RunTimedOutError, SparkDLError
from sparkdl_bench.peers._environment import tail
from sparkdl_bench.peers._process import MARK, stop_all

# What helps a run of a comparison that was stopped.
MORE_TIME = "Allow more time with `timeout` in the comparison file, or train fewer epochs."
_START_S = 120.0


class Application:
    """The parent's side: starts the process, hands it runs, and leaves nothing of it behind.

    Attributes:
        key: tells whether a cell may run in it.
    """

    def __init__(self, key: str, spark: Mapping[str, str], name: str) -> None:
        self.key = key
        self._mark = secrets.token_hex(8)
        self._log = tempfile.TemporaryFile("w+", prefix="sparkdl-application-")  # noqa: SIM115 (closed by close)
        requests_read, requests_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self._child = subprocess.Popen(  # noqa: S603 (the command is ours)
            [sys.executable, "-m", "sparkdl_bench.comparison.application", str(requests_read), str(answers_write)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, MARK: self._mark, "PYTHONUNBUFFERED": "1"},
            pass_fds=(requests_read, answers_write),
            start_new_session=True,
        )
        os.close(requests_read)
        os.close(answers_write)
        self._requests = os.fdopen(requests_write, "w", encoding="utf-8")
        self._answers = answers_read
        try:
            self._ask({"spark": {"spark.app.name": name, **spark}}, _START_S)
        except RunTimedOutError as error:
            self.close()
            raise RunFailedError(
                f"{error.what} A session has to begin within that time: look at its master, "
                f"{spark.get('spark.master', 'which is not set')}."
            ) from None
        except SparkDLError:
            self.close()
            raise

    def train(self, settings: Mapping[str, str], timeout_s: float) -> None:
        """One run, to its end."""
        self._ask({"settings": dict(settings)}, timeout_s)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the process has gone before
            self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(30)
        stop_all(self._child, self._mark)
        os.close(self._answers)
        self._log.close()

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> None:
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except OSError:
            raise RunFailedError(f"The shared Spark application has ended. It last said: {self._said()}") from None
        answer = self._line(timeout_s)
        if "error" in answer:
            raise RunFailedError(str(answer["error"]))

    def _line(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        received = b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise RunTimedOutError(
                    f"The shared Spark application did not answer within {timeout_s:.0f} s and was stopped. It last "
                    f"said: {self._said()}",
                    MORE_TIME,
                )
            chunk = os.read(self._answers, 65536)
            if not chunk:
                raise RunFailedError(f"The shared Spark application has ended. It last said: {self._said()}")
            received += chunk
        answer: dict[str, Any] = json.loads(received)
        return answer

    def _said(self) -> str:
        self._log.seek(0)
        return tail(self._log.read()) or "nothing."


def serve(requests: IO[str], answers: IO[str]) -> None:
    """The process's side, until the requests end."""
    from sparkdl_bench import exports, session
    from sparkdl_bench.runner import follow

    def answer(value: Mapping[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    first = json.loads(requests.readline())
    try:
        _, spark_settings = session.start_jvm(first["spark"])
        opened = session.open_session(spark_settings)
        spark = opened.__enter__()
    except SparkDLError as error:
        answer({"error": str(error)})
        return
    try:
        api = session.check_session(spark)
        answer({"ok": True})
        for line in requests:
            try:
                with exports.for_jvm(json.loads(line)["settings"]) as settings:
                    run_id = api.start(settings)
                follow(api, run_id)
                api.forget(run_id)
                answer({"ok": True})
            except SparkDLError as error:
                answer({"error": str(error)})
    finally:
        opened.__exit__(None, None, None)


if __name__ == "__main__":
    with (
        os.fdopen(int(sys.argv[1]), encoding="utf-8") as reading,
        os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as out,
    ):
        serve(reading, out)
