"""Takes the pictures of docs/operating.md: `python tests/parties/operator/screenshots.py docs/images`."""

import io
import sys
import tempfile
import time
from pathlib import Path

import trio

from parties.operator import Log
from tests.parties.operator.asking import serving
from tests.parties.operator.browser import Browser, browser
from tests.parties.operator.stage import Stage, play_computing, play_day

PICTURES = {
    "operator-page.png": (1080, 900, "light", "collect"),
    "operator-page-phone.png": (390, 844, "dark", "collect"),
    "operator-page-dark.png": (1080, 900, "dark", "compute"),
}


async def take(folder: Path) -> None:
    stage = Stage(Log("S0", "json", stream=io.StringIO()), now=time.time())
    with stage.log.installed():
        play_day(stage)
    with tempfile.TemporaryDirectory() as scratch:
        async with serving(stage, Path(scratch) / "token") as address:
            with browser(Path(scratch)) as window:
                for step in ("collect", "compute"):
                    if step == "compute":
                        play_computing(stage)
                    await trio.to_thread.run_sync(photograph, window, f"http://{address}/", folder, step)


def photograph(window: Browser, url: str, folder: Path, step: str) -> None:
    for name, (width, height, scheme, shown) in PICTURES.items():
        if shown != step:
            continue
        window.resize(width, height)
        window.prefer(scheme)
        window.open(url)
        window.wait_for("document.querySelectorAll('#past tr').length > 3 && document.querySelector('#names .name')")
        time.sleep(0.6)  # the bars grow
        window.screenshot(folder / name)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    trio.run(take, target)
