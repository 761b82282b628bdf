"""Real servers, observed: what they report is enough, and nothing that must stay hidden is in any of it."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import FslError
from fsl_async.randomness import SeededSource
from fsl_async.wire.messages import SharePiece
from parties.compute import InlineLane
from parties.operator import ObserverSetup, OperatorObserver
from parties.server.peer.link import PeerLink
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling
from tests.parties.operator import probes
from tests.parties.operator.asking import Port
from tests.parties.operator.paper import Paper
from tests.parties.operator.stage import OneTask

SEED = 20
ROWS = (91_337, 77_551, 68_493)
VALUES = (0.7316254, -3.9174431, 2.6180339)
DENSE = 1.4142135
CLIENTS = ("alice", "bob", "<i>carol</i>")
TASK = Task(
    name="goods",
    blocks=[Sparse("items", rows=100_003, width=1, select=4), Dense("head", size=3)],
    ring=Ring(64, fraction_bits=24),
    updates="any",
    min_clients=2,
    max_clients=10,
)


class Observed(Network):
    """A simulation whose servers are operated."""

    def __init__(self, log) -> None:
        clock = trio.current_time
        self.observers = [OperatorObserver(ObserverSetup(index, TASK.name, log, clock=clock)) for index in (0, 1)]
        model = {"items": np.zeros((100_003, 1), dtype="f4"), "head": np.zeros(3, dtype="f4")}
        super().__init__(TASK, model, SEED, InlineLane())

    def _server_setup(self, index, model):
        return replace(super()._server_setup(index, model), observe=self.observers[index])

    def port(self, index: int) -> Port:
        """What an operator of a server asks."""
        return Port(OneTask(self.observers[index], self.servers[index]))


@contextmanager
def drawn(monkeypatch):
    """Every random byte string and every share of a sum that is made in the block."""
    seeds, shares = [], []
    draw, post = SeededSource.__call__, PeerLink.post_stored

    def noted_draw(self, size: int) -> bytes:
        seeds.append(draw(self, size))
        return seeds[-1]

    def noted_post(self, message, fetch):
        async def noted_fetch():
            bulk = await fetch()
            if isinstance(message, SharePiece):
                shares.append(bytes(bulk))
            return bulk

        post(self, message, noted_fetch)

    with monkeypatch.context() as patch:
        patch.setattr(SeededSource, "__call__", noted_draw)
        patch.setattr(PeerLink, "post_stored", noted_post)
        yield seeds, shares


async def take_part(net: Observed, name: str) -> None:
    async with net.client(name) as client:
        await client.retrieve({"items": list(ROWS)})
        await client.submit({"items": (list(ROWS), np.array(VALUES)[:, None]), "head": np.full(3, DENSE)})


async def run_rounds(net: Observed) -> None:
    """A round that is done, one that is aborted by its operator, and one with too few clients."""
    for name in CLIENTS:
        await take_part(net, name)
    outcome = await net.finish_round()
    assert outcome.update["items"][ROWS[0], 0] == pytest.approx(3 * VALUES[0], abs=1e-5)
    for server in net.servers:
        await server.next_round(1)
    await take_part(net, "alice")
    status, _, body = await net.port(0).ask("POST", "/rounds/2/abort", b'{"because": "a trial"}')
    assert status == 401, body
    status, answer = await net.port(0).order("POST", "/rounds/2/abort", b'{"because": "a trial"}')
    assert status == 202, answer
    for server in net.servers:
        await server.next_round(2)
    await take_part(net, "bob")
    with pytest.raises(FslError, match="aborted"):
        await net.finish_round()


async def observed_run(paper: Paper, check) -> None:
    with paper.log.installed(), seeded_scheduling(SEED):
        net = Observed(paper.log)
        async with trio.open_nursery() as nursery:
            await nursery.start(net.run)
            await run_rounds(net)
            await check(net)
            nursery.cancel_scope.cancel()


async def shown(net: Observed) -> str:
    """Everything that both servers' operators can ask for."""
    answers = []
    for index in (0, 1):
        port = net.port(index)
        for path in ("/status.json", "/rounds.json", "/rounds/1.json", "/rounds/2.json", "/metrics", "/readyz"):
            status, _, body = await port.ask("GET", path)
            assert status == 200, (path, body)
            answers.append(body.decode())
    return "\n".join(answers)


async def test_nothing_secret_is_logged_counted_or_shown(monkeypatch):
    paper, seen = Paper(), []

    async def look(net: Observed) -> None:
        seen.append(await shown(net))

    with drawn(monkeypatch) as (seeds, shares):
        await observed_run(paper, look)
    assert len(seeds) > 50
    assert len(shares) >= 2
    text = paper.text + seen[0]
    assert len(paper.lines) > 60
    assert not probes.found_in(text, seeds)
    written = set(re.findall(r"(?<![\w.])-?\w{8,}", text))
    for share in shares:
        elements = np.frombuffer(share, dtype="<u8")
        told = {f"{element:d}" for element in elements} | {f"{element:016x}" for element in elements}
        told |= {f"{element:d}" for element in elements.view("<i8")}
        assert not {word for word in told & written if word.strip("0")}
    for number in (*ROWS, *VALUES, DENSE, *(round(value * 2**24) for value in (*VALUES, DENSE))):
        assert not re.search(rf"(?<![\d.]){re.escape(str(number))}(?!\d)", text), f"{number} is told"


async def test_the_probes_find_what_is_there(monkeypatch):
    """The test above would be worth nothing if it could not fail."""
    with drawn(monkeypatch) as (seeds, _):
        secret = SeededSource(SEED, "probe")(32)
    assert seeds == [secret]
    for form in probes.forms(secret):
        assert probes.found_in(f"a line with {form} in it", seeds)


async def test_both_servers_report_enough_to_be_operated():
    paper = Paper()

    async def look(net: Observed) -> None:
        for server in net.servers:
            await server.next_round(3)
        first, second = [await net.port(index).json("/status.json") for index in (0, 1)]
        assert first["round"]["number"] == second["round"]["number"]
        assert first["round"]["fingerprint"] == second["round"]["fingerprint"]
        assert first["fingerprints"] == second["fingerprints"]
        for index in (0, 1):
            port = net.port(index)
            status = await port.json("/status.json")
            assert (status["rounds_done"], status["rounds_aborted"]) == (1, 2)
            assert status["peer_connected"]
            assert (await port.json("/readyz"))["ready"]
            first, second, third = (await port.json("/rounds.json"))["rounds"]
            assert (first["counted"], first["explanation"], first["not_counted"]) == (3, "", {})
            assert "a trial" in second["explanation"]
            assert (third["ended"], bool(third["explanation"])) == ("aborted", True)
            for past in (first, second, third):
                spent = sum(past["times"].values())
                assert spent == pytest.approx(past["seconds"], abs=0.1), (
                    "every moment of a round is somewhere in its times"
                )
                assert past["times"]["interrupted"] == 0
            assert status["server"] == f"S{index}"
            listed = await port.json("/clients.json")
            assert [client["name"] for client in listed["clients"]] == sorted(CLIENTS)
            assert (await port.json("/rounds/1.json"))["clients"] == sorted(CLIENTS)
            value = net.observers[index].metrics.registry.get_sample_value
            assert value("fsl_rounds_total", {"outcome": "done"}) == 1
            assert value("fsl_rounds_total", {"outcome": "aborted"}) == 2
            assert value("fsl_clients_counted_total") == 3
            assert value("fsl_evaluation_seconds_count") >= 3
            for kind, direction in (("submit", "in"), ("receipt", "out"), ("roster", "out"), ("share", "out")):
                assert value("fsl_messages_total", {"kind": kind, "direction": direction}), (kind, direction)
            assert value("fsl_message_bytes_total", {"kind": "share-piece", "direction": "out"}) >= 8 * (100_003 + 3)

    await observed_run(paper, look)
    for server in ("S0", "S1"):
        events = [line["event"] for line in paper.lines if line["server"] == server]
        assert {"round opened", "submission in", "submission evaluated", "round moved", "peer connected"} <= set(events)
        audited = [line for line in paper.lines if line["logger"] == "parties.audit" and line["server"] == server]
        assert [line["event"] for line in audited][:3] == ["round done", "round aborted", "round aborted"]
        assert audited[0]["clients"] == sorted(CLIENTS)
    assert not [line for line in paper.lines if "withheld" in line or "withheld" in json.dumps(line)]
