"""The pair for clients in other languages: ours and the page's client are right in it, and whoever is not hears why."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async import Dense, MisuseError, Privacy, Ring, Sgd, Sparse, Task
from parties import Client, ClientSetup, Identity, ThreadLane
from parties.identity.keys import PublicIdentity
from parties.testing.conformance import Pair, main
from tests import ROOT
from tests.support.cases import in_turn
from tests.support.page_client import Connection, PageClient
from tests.support.wire_page import of
from transport import Kind, TcpTransport

ITEMS, HEAD = Sparse("items", rows=40, select=3, width=2, stash=1), Dense("head", size=3)
MORE, SMALL = Sparse("more", rows=100, select=5), Ring(32)
QUIET = 0.2
"""Seconds in which nothing happens once servers have taken all that a client sent that is gone."""


def task(*blocks: Sparse | Dense, **fields: Any) -> Task:
    ring = {"ring": Ring(64, fraction_bits=8)} if fields.get("protocol", "ssa") == "ssa" else {}
    clients = {"max_clients": 5} if fields.get("protocol") == "psr" else {"min_clients": 2, "max_clients": 5}
    return Task(name="tried", blocks=blocks or [ITEMS, HEAD], **ring | clients | fields)


async def tried(pair: Pair, foreign: Callable[[dict[str, Any]], Any]) -> list[str]:
    """What was wrong with a client: of one that breaks off, until the servers have taken what it sent."""
    async with trio.open_nursery() as nursery:
        needed = await nursery.start(pair.run)
        if not await foreign(needed):
            await wait_all_tasks_blocked(QUIET)
            pair.end(0)
    return [finding.text for finding in pair.findings if not finding.right]


def take_part(client: PageClient, needed: dict[str, Any]) -> bool:
    """What the pair asks for, to the end."""
    with client:
        client.ask_task()
        for rows in needed["rounds"]:
            at = client.enter()
            found = client.everything(rows)
            if at.protocol != "psr":
                client.submit({name: dict.fromkeys(each) for name, each in rows.items()} | found)
            client.outcome()
    return True


async def page(needed: dict[str, Any]) -> bool:
    return await trio.to_thread.run_sync(take_part, PageClient.of(needed), needed)


async def ours(needed: dict[str, Any]) -> bool:
    told = needed["client"]
    servers = [PublicIdentity(f"S{i}", of(s["channel"]), of(s["statement"])) for i, s in enumerate(needed["servers"])]
    setup = ClientSetup(
        task=Task.parse(of(needed["task"]), "the pair"),
        identity=Identity(told["name"], of(told["channel"]), of(told["statement"]), bytes(32)),
        servers=(servers[0], servers[1]),
        addresses=tuple(server["address"] for server in needed["servers"]),
        transport=TcpTransport(),
        lane=ThreadLane(),
        randomness=os.urandom,
        kind=Kind.LIVE,
    )
    async with Client(setup) as client:
        for rows in needed["rounds"]:
            found = await client.retrieve(rows | {"head": ...})
            await client.submit(
                {name: (rows[name], values) if name in rows else values for name, values in found.items()}
            )
            assert (await client.outcome()).counted
    return True


TASKS = {
    "verified": task(),
    "blocks of unequal shape, to one of which nobody asks twice": task(ITEMS, HEAD, MORE, updates="any"),
    "four rows a leaf": task(Sparse("items", rows=40, select=3), HEAD, ring=SMALL, security="semi-honest"),
    "one row a leaf, unproved": task(Sparse("items", rows=40, select=3, width=8), security="semi-honest"),
    "in a session": task(selection="fixed"),
    "counted": task(min_contributors=2, lying_clients=0),
    "wide elements": task(ring=Ring(128, fraction_bits=40)),
    "dense alone": task(HEAD),
    "the mean, with names": task(apply="mean", optimizer=Sgd(rate=0.5), participants="names"),
    "retrievals alone": task(Sparse("items", rows=400, select=3, width=2), protocol="psr"),
    "unions alone": task(ITEMS, protocol="psu"),
    "a union that moves plainly": task(alignment="union"),
    "a union under trees": task(Sparse("items", rows=4_000, select=30, width=2), HEAD, alignment="union"),
    "a union in a session": task(alignment="union", selection="fixed"),
}


@pytest.mark.parametrize("name", TASKS)
async def test_a_client_of_the_page_alone_is_right(name: str) -> None:
    played = TASKS[name]
    rounds = 1 if played.apply != "sum" else 4 if played.alignment == "union" else 2
    assert await tried(Pair(played, rounds, patience=60), page) == []


@pytest.mark.parametrize("fields", [{}, {"selection": "fixed"}, {"bound": 2.0, "largest": 1.0}], ids=str)
async def test_our_client_is_right(fields: dict[str, Any]) -> None:
    assert await tried(Pair(task(**fields), 2, patience=60), ours) == []


async def test_a_client_may_come_again_for_each_request() -> None:
    def comes_again(needed: dict[str, Any]) -> bool:
        client = PageClient.of(needed)
        with client:
            client.enter()
        with client:
            found = client.everything(needed["rounds"][0])
        with client:
            client.submit(found)
        with client:
            client.outcome()
        return True

    assert await tried(Pair(task(), patience=60), lambda needed: trio.to_thread.run_sync(comes_again, needed)) == []


# ---- mistakes: what a client does, and what it is told; each begins in a round, and leaves the rest undone


def another_value(client: PageClient, needed: dict[str, Any]) -> None:
    found = client.everything(rows := needed["rounds"][0])
    found["items"][rows["items"][1]] = found["items"][rows["items"][1]] + 1
    client.submit(found)
    client.outcome()


def no_submission(client: PageClient, needed: dict[str, Any]) -> None:
    client.everything(needed["rounds"][0])


def no_outcome(client: PageClient, needed: dict[str, Any]) -> None:
    client.submit(client.everything(needed["rounds"][0]))


def no_download(client: PageClient, needed: dict[str, Any]) -> None:
    client.submit(client.retrieve(needed["rounds"][0]) | {"head": needed["model"]["head"]})


def other_rows(client: PageClient, needed: dict[str, Any]) -> None:
    client.retrieve({"items": [0, 1, 2]})
    client.submit({"items": {0: [1, 1]}})
    client.outcome()


def no_close(client: PageClient, needed: dict[str, Any]) -> None:
    client.cut()


def no_message(client: PageClient, needed: dict[str, Any]) -> None:
    client.connections[0].send("nonsense")


def no_record(client: PageClient, needed: dict[str, Any]) -> None:
    client.connections[1].stream.sendall((17).to_bytes(2, "big") + bytes(17))
    client.cut()


def a_record_of_no_type(client: PageClient, needed: dict[str, Any]) -> None:
    client.connections[0].stream.sendall(client.connections[0].out.seal(7))


def one_server_alone(client: PageClient, needed: dict[str, Any]) -> None:
    found = client.everything(needed["rounds"][0])
    for connection in client.connections:
        connection.reply = lambda kind: None
    client.connections[client.carrier].send = lambda *kind, **fields: None
    client.submit(found)


def another_digest(client: PageClient, needed: dict[str, Any]) -> None:
    carrier, other = client.connections[client.carrier], client.connections[1 - client.carrier]
    changed(carrier, public_digest=bytes(32))
    other.receive = carrier.receive  # the other server has no public part to answer, and waits for it
    client.retrieve(needed["rounds"][0])


def another_seed(client: PageClient, needed: dict[str, Any]) -> None:
    changed(client.connections[0], seed=bytes(16))
    client.retrieve(needed["rounds"][0])


def two_digests(client: PageClient, needed: dict[str, Any]) -> None:
    found = client.everything(needed["rounds"][0])
    changed(client.connections[1 - client.carrier], public_digest=bytes(32))
    client.submit(found)


def no_proof(client: PageClient, needed: dict[str, Any]) -> None:
    found = client.everything(needed["rounds"][0])
    client.planted = client.planted._replace(tag_keys=(bytes(16), bytes(16)))
    client.submit(found)
    client.outcome()


def a_second_submission(client: PageClient, needed: dict[str, Any]) -> None:
    no_outcome(client, needed)
    client.submit({})


def changed(connection: Connection, **others: Any) -> None:
    """Have a connection send other values than the client gives it."""
    sends = connection.send
    connection.send = lambda kind, bulk=b"", **fields: sends(kind, bulk, **fields | others)


MISTAKES = {
    another_value: ["'items': the sum is exactly .* NO: wrong at 1 of 40 places: at 23: .*, not "],
    no_submission: ["S0, round 1: a submission has its receipt: NO", "S1, round 1: a submission has its receipt: NO"],
    no_outcome: ["S0, round 1: the outcome was asked for and told: NO", "S1, round 1: the outcome was asked for"],
    no_download: ["block 'head', or its union, was downloaded: NO: nobody asked for it"],
    other_rows: ["'items': the sum is exactly .* NO: wrong at 4 of 40 places: at 0: .256, 256., not .0, 0."],
    no_close: ["S0: a connection ended badly: the stream ended without a CLOSE", "S1: .* without a CLOSE"],
    no_message: ["S0: a connection ended badly: foreign: sent a message that cannot be read: Invalid value 'nonsense'"],
    no_record: ["S1: a connection ended badly: .*decrypt"],
    a_record_of_no_type: ["S0: a connection ended badly: .*type"],
    one_server_alone: ["a submission has its receipt: NO: Submit waits for the other server: send to both"],
    another_digest: ["Retrieve was refused .malformed.: .* does not have the digest that you announced"],
    another_seed: ["S0: Retrieve was refused .malformed.: .*commit"],
    two_digests: ["Submit was refused .malformed.: the public part that S. forwarded is not the one you announced"],
    no_proof: ["round 1: the submission is counted: NO: a tree is no point function"],
    a_second_submission: ["Submit was refused .conflict."],
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
async def test_a_client_hears_of_its_mistake(mistake: Callable[[PageClient, dict[str, Any]], None]) -> None:
    def breaks(needed: dict[str, Any]) -> None:
        with suppress(AssertionError, OSError, TypeError), PageClient.of(needed) as client:
            client.enter()
            mistake(client, needed)

    told = await tried(Pair(task(), patience=60), lambda needed: trio.to_thread.run_sync(breaks, needed))
    for words in MISTAKES[mistake]:
        assert any(re.search(words, line) for line in told), told


def preamble(needed: dict[str, Any]) -> PageClient:
    client = PageClient.of(needed)
    client.version = 5
    return client


def signature(needed: dict[str, Any]) -> PageClient:
    return PageClient.of(needed | {"client": needed["client"] | {"statement": "11" * 32}})


def channel_key(needed: dict[str, Any]) -> PageClient:
    return PageClient.of(needed | {"client": needed["client"] | {"channel": "11" * 32}})


STRANGERS = {preamble: "version 5", signature: "statement key", channel_key: "is not on S0's list"}


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger.__name__)
async def test_a_client_that_is_not_welcome_hears_why(stranger: Callable[[dict[str, Any]], PageClient]) -> None:
    def knocks(needed: dict[str, Any]) -> None:
        with suppress(AssertionError, OSError), stranger(needed):
            pass

    told = await tried(Pair(task(), patience=60), lambda needed: trio.to_thread.run_sync(knocks, needed))
    assert (
        "S0: connected: preamble, handshake, credentials and welcome: NO: nobody came with the keys of 'foreign'"
        in told
    )
    assert any(STRANGERS[stranger] in line for line in told), "\n".join(told)


# ---- what cannot be played, and the command

REFUSED = {
    "--rounds": (task(), {"rounds": 11}),
    "--patience": (task(), {"patience": float("inf")}),
    "--port": (task(), {"port": 65_535}),
    "privacy": (task(bound=1, privacy=Privacy(noise=20, delta=1e-6, budget=8), max_clients=1_000), {}),
    "sample": (task(sample=3), {}),
    "weights": (task(ITEMS, Dense("w", size=1), apply="weighted-mean", weights="w"), {}),
    "rule of its own": (task(apply="a.module:function"), {}),
    "--rounds 1": (task(apply="mean"), {"rounds": 2}),
    "other clients": (Task(name="t", blocks=[ITEMS], ring=SMALL, min_clients=50), {}),
    "weights, above": (task(Dense("d", size=2**24 + 1)), {}),
    "allows no update": (task(bound=2**-8), {}),
}


@in_turn("words, given", REFUSED.items())
def test_what_cannot_be_played_is_refused(words: str, given: tuple[Task, dict[str, Any]]) -> None:
    with pytest.raises(MisuseError, match=words):
        Pair(given[0], **given[1])


FILE = """
[task]
name = "tried"
min_clients = 2
blocks = [{type = "sparse", name = "items", rows = 40, select = 3}]
ring = {bits = 64, fraction_bits = 8}
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "task.toml"
    path.write_text(FILE)
    command = [sys.executable, "-m", "parties.testing.conformance", str(path), "--patience", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as pair:
        needed = json.loads(pair.stdout.readline())
        take_part(PageClient.of(needed), needed)
        said = pair.stdout.read().splitlines()
    assert pair.returncode == 0
    assert said
    assert all(line.startswith("right  ") for line in said), said
    assert main([str(path), "--patience", "0.1"]) == 1
    assert "WRONG  S1: connected" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([str(path), "--rounds", "0"])
    assert "--rounds is a number from 1 to 10, not 0" in capsys.readouterr().err
    path.write_text(FILE.replace("name", "nome"))
    with pytest.raises(SystemExit, match="2"):
        main([str(path)])
    assert "nome" in capsys.readouterr().err
