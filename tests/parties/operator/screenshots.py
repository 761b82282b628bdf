"""Takes the pictures of docs/operating.md: `python tests/parties/operator/screenshots.py docs/images`."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from parties.operator import Log, OneTask, serve_operator
from tests.parties.operator.browser import browser
from tests.parties.operator.stage import Stage, play_day

PICTURES = {"operator-page.png": (1080, 900, "light"), "operator-page-dark.png": (390, 844, "dark")}


async def take(folder: Path) -> None:
    stage = Stage(Log("S0", "json", stream=io.StringIO()), now=time.time())
    with stage.log.installed():
        play_day(stage)
    with tempfile.TemporaryDirectory() as scratch:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(
                partial(serve_operator, OneTask(stage.observer, stage), "127.0.0.1:0", Path(scratch) / "token")
            )
            await trio.to_thread.run_sync(photograph, f"http://{address}/", folder, Path(scratch))
            nursery.cancel_scope.cancel()


def photograph(url: str, folder: Path, scratch: Path) -> None:
    with browser(scratch) as window:
        for name, (width, height, scheme) in PICTURES.items():
            window.resize(width, height)
            window.prefer(scheme)
            window.open(url)
            window.wait_for("document.querySelectorAll('#past tr').length > 3")
            time.sleep(0.6)  # the bars grow
            window.screenshot(folder / name)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    trio.run(take, target)
