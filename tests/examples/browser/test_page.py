"""The page in a real browser, beside clients in Python: its round is exact, and what it cannot do it says."""

import json
from functools import partial

import numpy as np
import pytest
import trio

from examples.browser.serve import DIST, LABELS, TEXTS, row_of, serve
from tests.parties.operator.browser import MISSING, Browser, browser

BUILT = (DIST / "page.js").exists()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "never"),
    pytest.mark.skipif(not BUILT, reason="examples/browser was not built: `make browser` needs node and npm"),
]
MOST_SECONDS = 60
FORBIDDEN = "indexedDB.open = () => { throw new DOMException('storage is forbidden', 'SecurityError') };"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


async def test_its_round_is_exact_and_without_storage_it_takes_part_in_nothing(window, tmp_path):
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve, tmp_path))
        await trio.to_thread.run_sync(take_part, window, url)
        await trio.to_thread.run_sync(refuse, window, url)
        nursery.cancel_scope.cancel()


def take_part(window: Browser, url: str) -> None:
    window.open(url)
    window.wait_for("document.querySelector('#ready.good') && !document.getElementById('make-keys').disabled")
    window.run("document.getElementById('name').value = 'carla'; document.getElementById('make-keys').click()")
    window.wait_for("!document.getElementById('take-part').disabled")
    window.run("document.getElementById('take-part').click()")
    window.wait_for("document.getElementById('steps').dataset.done || document.querySelector('.bad')", MOST_SECONDS)
    assert not window.run("return document.querySelector('.bad')?.textContent")
    did = json.loads(window.run("return document.getElementById('steps').dataset.done"))
    assert did["counted"]
    assert did["sent"] + did["received"] < 65_536 * len(LABELS) * 4
    due = {row: np.array(did["change"]) for row in did["rows"]}
    assert row_of("late") in due
    for label, text in TEXTS.values():
        for row in {row_of(word) for word in text.split()} & due.keys():
            due[row] = due[row] + 0.25 * (np.eye(len(LABELS))[LABELS.index(label)] - 1 / len(LABELS))
    assert dict(did["after"]) == {row: values.tolist() for row, values in due.items()}
    assert window.console() == []


def refuse(window: Browser, url: str) -> None:
    window._cdp("Page.addScriptToEvaluateOnNewDocument", source=FORBIDDEN)
    window.open(url)
    text = window.wait_for("document.querySelector('#ready.bad')?.textContent")
    assert "storage is forbidden" in text
    assert "takes part in nothing" in text
    assert window.run("return document.getElementById('take-part').disabled")
