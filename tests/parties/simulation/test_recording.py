"""A deployed task's history: the records of a server's rounds, in the order of the rounds and each once."""

import json
from functools import partial

import numpy as np
import pytest
import trio

from fsl_async import MisuseError
from parties import Server, record_rounds, simulate
from parties.simulation.history import HistoryFile
from parties.testing.processes import current_life
from tests.parties.server.test_restart import MODEL, TASK, update
from tests.parties.testing.small_world import listening, present

NAMES = ("anna", "ben")


def norm(model):
    return {"norm": float(np.abs(model["items"]).sum()), "undefined": float("nan")}


@pytest.fixture
def killing(monkeypatch):
    """Kills the server that writes a line, so often; half of the times when the line has been written."""
    writes = []

    def write(self, content, mode="r+b"):
        writes.append(content)
        if len(writes) in {1, 3, 5}:
            if len(writes) == 3:
                real(self, content, mode)
            life = current_life()
            life.process.kill(1.0)
            life.require_alive()
        real(self, content, mode)

    real = HistoryFile._write
    monkeypatch.setattr(HistoryFile, "_write", write)


async def test_every_round_is_recorded_once_however_often_the_server_is_killed(tmp_path, killing, autojump_clock):
    path, histories, over = tmp_path / "run.jsonl", [], trio.Event()

    class Recorded(Server):
        """Killed with its recording, it is started again with the same store."""

        async def run(self, *, task_status=trio.TASK_STATUS_IGNORED):
            async with trio.open_nursery() as nursery:
                task_status.started(await nursery.start(super().run))
                histories.append(await record_rounds(self, path, evaluate=norm, every=2))
                over.set()

    schedule = {"rounds": 3, "seconds": float("inf")}
    async with listening(TASK, MODEL, NAMES, schedule=schedule, make_server=(Recorded, Server)) as made:
        anna, ben = await present(made, NAMES)
        for _ in range(3):
            async with trio.open_nursery() as clients:
                for place, client in enumerate((anna, ben)):
                    clients.start_soon(partial(client.submit, update(place), wait=True))
            await anna.outcome()
        await over.wait()
        server, other = made.servers
        (history,) = histories
        assert made.process("S0").lives >= 3
        assert [json.loads(line) for line in path.read_text().splitlines()] == history.records
        assert [(record["round"], record["counted"]) for record in history.records] == [(1, 2), (2, 2), (3, 2)]
        assert [record.get("norm") for record in history.records] == [None, norm(made.models[0][2])["norm"], None]
        assert history.records[1]["undefined"] is None
        assert all(record["seconds.collecting"] >= 0 and record["bytes_up"] > 0 for record in history.records)
        assert history.model["items"].tobytes() == server.model["items"].tobytes()
        with pytest.raises(MisuseError, match="not the history of this run"):
            await record_rounds(other, path)
        again = await record_rounds(server, path, on_round=lambda record: record["round"] == 3)
        assert again.records == history.records
    async with simulate(TASK, MODEL, 5) as net:
        with pytest.raises(MisuseError, match="round 1 that S0 has not: S0 has another store, or an older one"):
            await record_rounds(net.servers[0], path)
