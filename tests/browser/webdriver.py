"""A headless Chromium driven over WebDriver's HTTP, with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
STARTS_WITHIN_S = 30.0
LOOKS = 200
FRAMES_TRIED = 5


def missing() -> str:
    """Why there is no browser; empty if there is."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed (Debian: chromium, chromium-driver)" if absent else ""


class Browser:
    """One browser, started and stopped by its test."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()
        options = {"args": [*FLAGS, f"--user-data-dir={folder}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask("DELETE", self._session)
        self._driver.terminate()
        self._driver.wait()

    def open(self, path: Path, fragment: str = "") -> None:
        """Until it is there: on a busy machine a driver that has just started may say so too early."""
        address = path.as_uri() + fragment
        self._ask("POST", f"{self._session}/url", {"url": address})
        for _ in range(LOOKS):
            if self.run("return [document.readyState, location.href]") == ["complete", address]:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{address} is not loaded")

    def run(self, script: str) -> Any:
        """What the script returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def resize(self, width: int, height: int) -> None:
        """What the page sees; a window without a screen does not always let itself be resized."""
        seen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": seen}
        self._ask("POST", f"{self._session}/goog/cdp/execute", command)

    def complaints(self) -> list[str]:
        """What the console has to say."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries]

    def photograph(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self._screenshot()))

    def _screenshot(self) -> str:
        """On a busy machine Chromium now and then has no frame to show, and has one a moment later."""
        for _ in range(FRAMES_TRIED):
            try:
                return str(self._ask("GET", f"{self._session}/screenshot"))
            except urllib.error.HTTPError:
                time.sleep(1.0)
        return str(self._ask("GET", f"{self._session}/screenshot"))

    def _wait(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline:
            try:
                self._ask("GET", "/status")
            except urllib.error.URLError:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError("chromedriver does not answer")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._root + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]
