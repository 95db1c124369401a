"""A headless Chromium without any library: its debugging protocol over two pipes (null-ended JSON messages).

https://chromedevtools.github.io/devtools-protocol describes the methods that `Page.call` names.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Where this is 1 a machine without a browser fails the tests that need one, in place of skipping them.
REQUIRED = "SPARKDL_REQUIRE_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_S = 180.0


class Page:
    """One tab. Console messages of level error or warning, failed loads and exceptions gather in `complaints`."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, file: Path) -> None:
        uri = file.resolve().as_uri()
        self._events.clear()
        self.call("Page.navigate", url=uri)
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._has_loaded(uri):
            self._note(self._next(deadline))

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def scheme(self, name: str) -> None:
        """`dark` or `light`, as the system would say."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def width(self, pixels: int) -> None:
        self.window(pixels, 900)

    def window(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def wait_for(self, condition: str) -> None:
        """Until the expression is true, a minute at most."""
        deadline = time.monotonic() + 60
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def click(self, selector: str) -> None:
        """The left button, in the middle of the first element that fits; brought into the window before that."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """The pointer comes to the middle of the first element that fits."""
        x, y = self._middle(selector)
        for at in (x - 3, x):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at, y=y)

    def screenshot(self, file: Path) -> None:
        """The whole page, not only what a window would show."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def pdf(self, file: Path) -> None:
        """As it would be printed."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def _middle(self, selector: str) -> tuple[float, float]:
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        return x, y

    def _has_loaded(self, uri: str) -> bool:
        """What comes before the page does not count: the blank one of a new tab may say late that it has loaded."""
        came = False
        for event in self._events:
            method = event.get("method")
            came = came or (method == "Page.frameNavigated" and event["params"]["frame"]["url"] == uri)
            if came and method == "Page.loadEventFired":
                return True
        return False

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        method, values = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in values["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(values["exceptionDetails"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0, "Chromium does not answer"
            assert select.select([self._read], [], [], left)[0], "Chromium does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "Chromium has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def page() -> Iterator[Page]:
    """A tab of a Chromium of its own; where there is none the test is skipped, or fails where one is required."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        reason = f"no browser: none of {', '.join(_NAMES)} is on the PATH"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason}, and {REQUIRED} is 1")
        pytest.skip(reason)
    child_reads, we_write = os.pipe()
    we_read, child_writes = os.pipe()
    with tempfile.TemporaryDirectory(prefix="sparkdl-chromium-", ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"]

        def numbers() -> None:
            # The protocol's pipes are file descriptors 3 and 4; first out of their way, whatever numbers these have.
            reads, writes = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (child_reads, child_writes))
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        child = subprocess.Popen(
            [program, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=numbers,
            close_fds=False,
            start_new_session=True,
        )
        os.close(child_reads)
        os.close(child_writes)
        try:
            yield Page(we_write, we_read)
        finally:
            os.close(we_write)
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(20)
            os.close(we_read)
