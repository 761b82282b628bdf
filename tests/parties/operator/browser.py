"""Chromium without a window, driven through chromedriver's W3C interface with the standard library alone."""

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parties.settings.writing import free_addresses

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "chromium and chromedriver are not installed"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One window."""

    def __init__(self, port: int, session: str) -> None:
        self._port = port
        self._session = session

    def open(self, url: str) -> None:
        self.forget()
        self._command("POST", "url", {"url": url})

    def forget(self) -> None:
        """Let go what was noted of other pages."""
        self._command("POST", "url", {"url": "about:blank"})
        self.console()
        self.requests()

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and return what it returns."""
        return self._command("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, condition: str, seconds: float = 10.0) -> Any:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(f"return {condition}")):
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}\n{self.text()}"
            time.sleep(0.05)
        return value

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def resize(self, width: int, height: int) -> None:
        self._cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark."""
        self._cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def enter(self) -> None:
        """Press the Enter key."""
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            self._cdp("Input.dispatchKeyEvent", type=kind, **key)

    def screenshot(self, path: Path) -> None:
        """The whole page, however long."""
        size = self._cdp("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self._cdp("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def console(self) -> list[str]:
        """What the page said to the console since the last time this was asked: errors, and blocked contents."""
        return [entry["message"] for entry in self._command("POST", "se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Every address that was asked for since the last time."""
        notes = [
            json.loads(each["message"])["message"] for each in self._command("POST", "se/log", {"type": "performance"})
        ]
        return [note["params"]["request"]["url"] for note in notes if note["method"] == "Network.requestWillBeSent"]

    def _cdp(self, command: str, **parameters: Any) -> Any:
        return self._command("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def _command(self, method: str, path: str, body: Any) -> Any:
        return _ask(self._port, method, f"/session/{self._session}/{path}", body)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for as long as the block lasts; `profile` is an empty folder."""
    port = int(free_addresses(1)[0].rpartition(":")[2])
    environment = os.environ | {"HOME": str(profile)}
    driver = subprocess.Popen(
        [DRIVER, f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        _wait_until_ready(port)
        options = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}/data"]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = _ask(port, "POST", "/session", {"capabilities": {"alwaysMatch": options}})
        yield Browser(port, made["sessionId"])
        _ask(port, "DELETE", f"/session/{made['sessionId']}", None)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def _ask(port: int, method: str, path: str, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        value = json.loads(connection.getresponse().read())["value"]
    finally:
        connection.close()
    if isinstance(value, dict) and "error" in value:
        raise RuntimeError(f"{method} {path}: {value['error']}: {value['message']}")
    return value


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if _ask(port, "GET", "/status", None)["ready"]:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError("chromedriver does not start")
        time.sleep(0.05)
