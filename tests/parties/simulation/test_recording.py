"""A deployed task's history: the records of a server's rounds, in the order of the rounds and each once."""

import json
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import MisuseError
from parties import Server, record_rounds
from parties.compute import InlineLane
from parties.simulation.history import HistoryFile
from parties.simulation.network import Network
from tests.parties.server.test_restart import MODEL, TASK, Disk, House, KilledError, update


def norm(model):
    return {"norm": float(np.abs(model["items"]).sum()), "undefined": float("nan")}


class Recorded(House):
    """Two servers, the first of which records its rounds; killed with it, it is started again with the same store."""

    def __init__(self, path, network):
        super().__init__(network, (Disk(), Disk()))
        self.path, self.histories, self.over = path, [], trio.Event()

    async def live(self, index, server):
        if index == 0:
            self.histories.append(await record_rounds(server, self.path, evaluate=norm, every=2))
            self.over.set()


@pytest.fixture
def killing(monkeypatch):
    """Kills the server that writes a line, so often; half of the times when the line has been written."""
    writes = []

    def write(self, content, mode="r+b"):
        writes.append(content)
        if len(writes) in {1, 3, 5}:
            if len(writes) == 3:
                real(self, content, mode)
            raise KilledError
        real(self, content, mode)

    real = HistoryFile._write
    monkeypatch.setattr(HistoryFile, "_write", write)


async def test_every_round_is_recorded_once_however_often_the_server_is_killed(tmp_path, killing, autojump_clock):
    network = Network(TASK, MODEL, 5, InlineLane())
    setups = [server.setup for server in network.servers]
    network.servers = tuple(
        Server(replace(setup, schedule=msgspec.structs.replace(setup.schedule, clients=2, rounds=3)))
        for setup in setups
    )
    home = Recorded(tmp_path / "run.jsonl", network)
    async with trio.open_nursery() as nursery:
        for index in (0, 1):
            nursery.start_soon(home.keep, index)
        for event in home.started:
            await event.wait()
        expected = []
        for _ in range(3):
            async with network.client("anna") as anna, network.client("ben") as ben:
                async with trio.open_nursery() as clients:
                    for place, client in enumerate((anna, ben)):
                        clients.start_soon(partial(client.submit, update(place), wait=True))
                await anna.outcome()
                expected.append(norm(network.model)["norm"])
        await home.over.wait()
        nursery.cancel_scope.cancel()
    (history,) = home.histories
    assert home.kills.count(0) >= 2
    assert [json.loads(line) for line in home.path.read_text().splitlines()] == history.records
    assert [(record["round"], record["counted"]) for record in history.records] == [(1, 2), (2, 2), (3, 2)]
    assert [record.get("norm") for record in history.records] == [None, expected[1], None]
    assert history.records[1]["undefined"] is None
    assert all(record["seconds.collecting"] >= 0 and record["bytes_up"] > 0 for record in history.records)
    assert history.model["items"].tobytes() == network.model["items"].tobytes()
    with pytest.raises(MisuseError, match="round 1 that S0 has not: S0 has another store, or an older one"):
        await record_rounds(Network(TASK, MODEL, 5, InlineLane()).servers[0], home.path)
    with pytest.raises(MisuseError, match="not the history of this run"):
        await record_rounds(network.servers[1], home.path)
    again = await record_rounds(network.servers[0], home.path, on_round=lambda record: record["round"] == 3)
    assert again.records == history.records
