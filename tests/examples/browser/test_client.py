"""The page's client in Node: the wire's examples, what it must refuse, and rounds that are exact in every variant."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from parties.testing.conformance import Pair
from tests import ROOT

BUNDLER = ROOT / "examples" / "browser" / "node_modules" / ".bin" / "esbuild"
NODE = shutil.which("node")
MISSING = "" if NODE and BUNDLER.exists() else "examples/browser was not built: `make browser` needs node and npm"
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "never")

READ = {
    *("preamble, as a dialler", "message 2", "the first record", "records", "a server's message", "an announcement"),
    *("both announcements", "answers", "a reply to query 1", "a block", "a receipt", "a statement", "both statements"),
}
"""What a client reads, of the cases of docs/wire-refusals.json."""

COUNTED = Task(
    name="counted",
    blocks=[Sparse("items", rows=300, width=3, select=10, stash=1), Dense("head", size=7)],
    ring=Ring(32, fraction_bits=8),
    min_clients=2,
    min_contributors=2,
    lying_clients=0,
    participants="names",
)
SEMI_HONEST = Task(
    name="semi-honest",
    blocks=[Sparse("items", rows=500, select=20), Sparse("tags", rows=300, width=5, select=3, stash=2)],
    ring=Ring(32),
    security="semi-honest",
    updates="any",
    min_clients=2,
)
LARGE = Task(
    name="large",
    blocks=[Sparse("one", rows=1, width=3, select=1), Sparse("items", rows=700, select=9), Dense("head", size=9_000)],
    ring=Ring(128, fraction_bits=40),
    min_clients=2,
)


def test_its_source_is_short():
    folder = ROOT / "examples" / "browser"
    sources = [*folder.glob("src/*.ts"), folder / "index.html", folder / "style.css"]
    lines = [line for path in sources for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) < 1_500
    assert max(map(len, lines)) <= 120


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Path:
    bundle = tmp_path_factory.mktemp("client") / "client.mjs"
    source = Path(__file__).with_name("client.ts")
    subprocess.run([BUNDLER, source, "--bundle", "--platform=node", "--format=esm", f"--outfile={bundle}"], check=True)
    return bundle


def test_it_makes_what_the_examples_have_and_refuses_what_it_must(client):
    done = subprocess.run([NODE, client, "vectors", ROOT / "docs"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    cases = json.loads((ROOT / "docs" / "wire-refusals.json").read_text(encoding="utf-8"))
    due = Counter(case["does"] == "may accept" for case in cases if case["reads"] in READ)
    assert due[False] <= told["refused"] <= due.total()
    assert told["compared"] > 100


@pytest.mark.parametrize("task", [COUNTED, SEMI_HONEST, LARGE], ids=lambda task: task.name)
async def test_its_rounds_are_exact(task, client):
    pair = Pair(task)
    async with trio.open_nursery() as nursery:
        told = await nursery.start(pair.run)
        done = await trio.run_process([NODE, client, "take-part"], stdin=json.dumps(told).encode(), capture_stdout=True)
    assert [finding.text for finding in pair.findings if not finding.right] == []
    assert json.loads(done.stdout) == {"counted": [True], "left": None}


async def test_a_server_with_another_key_is_named(client):
    pair = Pair(SEMI_HONEST)
    async with trio.open_nursery() as nursery:
        told = await nursery.start(pair.run)
        told["servers"][1]["channel"] = told["servers"][0]["channel"]
        done = await trio.run_process([NODE, client, "take-part"], stdin=json.dumps(told).encode(), capture_stdout=True)
        nursery.cancel_scope.cancel()
    assert "does not hold the channel key of S1 that this page knows" in json.loads(done.stdout)


NOT_DONE = {
    'protocol = "psr"': {"protocol": "psr", "min_clients": None, "ring": Ring(64)},
    'protocol = "psu"': {"protocol": "psu", "ring": Ring(64)},
    'selection = "fixed"': {"selection": "fixed"},
    'alignment = "union"': {"alignment": "union"},
    "bound = 4": {"bound": 4.0},
    "": {},
}
SAID = [
    ("wss://s0.example/fsl", "http:", False, "came over plain http"),
    ("ws://s0.example/fsl", "https:", True, "a wss:// address"),
    ("http://s0.example/", "https:", True, "ws:// or wss://"),
    ("ws://127.0.0.1:7000/fsl", "https:", True, ""),
    ("wss://s0.example/fsl", "https:", True, ""),
]


def test_what_it_does_not_do_and_where_it_may_not_dial_it_says(client):
    common = {"name": "t", "blocks": [Sparse("items", rows=9, select=2)], "ring": Ring(64, fraction_bits=8)}
    tasks = [Task(**common | {"min_clients": 2} | fields).canonical().hex() for fields in NOT_DONE.values()]
    asked = json.dumps({"tasks": tasks, "addresses": [one[:3] for one in SAID]})
    done = subprocess.run([NODE, client, "check"], input=asked, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["tasks"] == [*NOT_DONE]
    for (*_, due), text in zip(SAID, told["addresses"], strict=True):
        assert due in text
        assert bool(due) == bool(text)
