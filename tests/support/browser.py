"""A headless Chromium that is controlled over pipes, to measure pages without network access."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


PATIENCE = 600
"""Timeout in seconds for a message of the browser."""


class Browser:
    """A page of a browser, controlled by the DevTools protocol: JSON messages, each followed by a zero byte."""

    def __init__(self, send, receive):
        self._send, self._receive, self._n, self._session, self._rest = send, receive, 0, None, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **params):
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while (reply := self._next()).get("id") != self._n:
            pass  # an event
        return reply["result"]

    def _next(self):
        """Return the next message."""
        message, zero, self._rest = self._rest.partition(b"\0")
        while not zero:
            assert select.select([self._receive], [], [], PATIENCE)[0], "the browser does not answer"
            more = os.read(self._receive.fileno(), 1 << 16)
            assert more, "the browser has ended"
            head, zero, self._rest = more.partition(b"\0")
            message += head
        return json.loads(message)

    def open(self, path, width, *, dark=False, height=900):
        """Show a file, or a page by its URL, in a window of the given size in pixels."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        ends = time.monotonic() + PATIENCE
        while self.ask("document.readyState") != "complete":
            assert time.monotonic() < ends, "the page is not there"
            time.sleep(0.02)

    def ask(self, expression):
        """Return the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path, *, whole=True):
        """Write a screenshot of the whole page, or of the visible part, as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(folder):
    """Start a browser that stores its files in a folder."""
    to_read, send = os.pipe()
    receive, to_write = os.pipe()
    flags = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    )
    # The browser reads from descriptor 3 and writes to 4.
    shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    command = ["bash", "-c", shell, "bash", PROGRAM, *flags, f"--user-data-dir={folder}"]
    process = subprocess.Popen(command, pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL)
    os.close(to_read)
    os.close(to_write)
    try:
        with open(send, "wb") as sending, open(receive, "rb", buffering=0) as receiving:
            yield Browser(sending, receiving)
        process.wait(timeout=PATIENCE)
    finally:
        process.kill()
