"""A real headless browser, spoken to through a pipe in its own debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60


def find_browser() -> str:
    """Return the browser's path; skip the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser here; on Debian: apt-get install chromium")
    return found


class Page:
    """An open page: what it logged, what it asked of a network, and what it shows."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def open(self, path: Path) -> None:
        """Show a file and wait until all of it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.absolute().as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self) -> NDArray[Any]:
        """Return the whole page as an image."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB"), np.int64)

    def problems(self) -> list[Any]:
        """Return what was logged to the console, and every exception."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for, but for data that the page holds itself."""
        asked = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in asked]
        return [address for address in addresses if not address.startswith("data:")]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda message: message.get("id") == number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _wait(self, is_it: Any) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                message: dict[str, Any] = json.loads(text)
                self.events.append(message)
                if is_it(message):
                    return message
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            self._buffer += os.read(self._read, 1 << 20)


def _as_the_protocols_pipe(to_read: int, to_write: int) -> None:
    """Make these the descriptors 3 and 4, by which a browser takes its commands and answers them."""
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write)]
    for number, end in zip((3, 4), ends, strict=True):
        os.dup2(end, number)


@contextlib.contextmanager
def open_page(path: Path, profile: Path) -> Iterator[Page]:
    """Show a file in a browser of its own, which ends with the block."""
    to_read, write = os.pipe()
    read, to_write = os.pipe()
    command = [
        *(find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--remote-debugging-pipe", "--window-size=1200,1600"),
        f"--user-data-dir={profile}",
    ]
    browser = subprocess.Popen(
        command,
        preexec_fn=lambda: _as_the_protocols_pipe(to_read, to_write),
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        page = Page(write, read)
        page.open(path)
        yield page
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        os.close(write)
        os.close(read)
