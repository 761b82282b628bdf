"""A malicious server, one mutated step at a time, meets an honest one: it learns nothing by it, and is named."""

import re

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import PeerViolationError
from parties import simulate
from parties.server.round.records import RoundRecords
from parties.server.server import Server
from tests import ROOT
from tests.support.cases import sides

from .byzantine import CLIENTS, MODEL, TASK, Byzantine
from .meeting import Account, meet
from .peer_attacks import ERROR, MUTATIONS, Ending, Mutation

SECURITY = ROOT / "docs" / "security.md"


def exact(account: Account, error: int = 0) -> None:
    """The honest server's sum is that of the clients it counted, plus an error in every weight."""
    values = [CLIENTS.index(name) + 1 for name in account.report[0].clients]
    items = np.zeros((64, 2), dtype=object)
    for value in values:
        items[[0, value]] += value
    np.testing.assert_array_equal(account.sums["items"], items + error)
    np.testing.assert_array_equal(account.sums["head"], np.full(3, sum(values) + error))


@pytest.mark.parametrize(("mutation", "index"), sides(MUTATIONS))
async def test_an_honest_server_ends_as_it_must(mutation: Mutation, index: int, seed: int, autojump_clock) -> None:
    account = await meet(mutation.mutant, index, seed)
    assert account.mutant.fired, "the mutated step was never reached"
    assert mutation.reveals or not account.revealed, "the honest server revealed its share"
    match mutation.ending:
        case Ending.HALTS:
            halts(account, index, mutation.says)
        case Ending.ABORTS:
            assert re.search(mutation.says, account.report[0].explanation)
            assert not account.sums
        case Ending.WAITS:
            assert not account.report
            assert mutation.says in account.honest.state_name()
        case Ending.GOES_ON:
            assert re.search(mutation.says, str(account.report[0].excluded))
            assert len(account.report[0].clients) >= 4
            exact(account)
        case Ending.CLIENTS_REFUSE:
            assert {re.search(mutation.says, str(told)) is not None for told in account.clients.values()} == {True}
            assert set(account.clients) == set(CLIENTS)
        case Ending.NOTICES_NOTHING:  # as docs/security.md says
            exact(account, ERROR)
            assert all(told.counted for told in account.clients.values())
            assert (account.halts, account.evidence) == ({}, [])


def halts(account: Account, index: int, says: str) -> None:
    """The honest server has ended, names the other one, says what it saw, and has kept it."""
    errors = account.halts[1 - index]
    assert [type(error) for error in errors] == [PeerViolationError], errors
    assert errors[0].peer == f"S{index}"
    assert re.search(says, str(errors[0]))
    kept = [entry for entry in account.evidence if entry.kind == "violation"]
    assert [(entry.about, entry.explanation) for entry in kept] == [(f"S{index}", str(errors[0]))]
    assert not account.sums


@pytest.mark.parametrize("index", [0, 1], ids="without a mutation, S{}".format)
async def test_without_a_mutation_all_are_counted(index: int, seed: int, autojump_clock) -> None:
    account = await meet(Byzantine, index, seed)
    assert tuple(account.report[0].clients) == CLIENTS
    assert not account.mutant.fired
    assert account.halts == {}
    assert account.evidence == []
    exact(account)
    assert all(told.counted for told in account.clients.values())


async def altered(server: Server, attribute: str, block: str) -> None:
    """Let a server hold other content for one block than it has announced."""
    arrays = getattr((await server.next_round(0)).start, attribute)
    content = arrays[block].copy()
    content[-1] += 1
    arrays[block] = content


async def test_a_dense_block_other_than_the_announced_one_is_not_taken(seed: int, autojump_clock) -> None:
    async with simulate(TASK, MODEL, seed) as network:
        for server in network.servers:
            await altered(server, "model", "head")
        async with network.client("anna") as anna:
            with pytest.raises(PeerViolationError, match="sent a block 'head' that is not the announced one"):
                await anna.retrieve({"head": ...})


async def test_a_union_other_than_the_announced_one_is_not_taken(seed: int, autojump_clock) -> None:
    task = msgspec.structs.replace(TASK, alignment="union")
    async with simulate(task, MODEL, seed) as net, net.client("anna") as anna, net.client("ben") as ben:
        await anna.unite({"items": [1, 2]})
        await ben.unite({"items": [3]})
        await net.finish_union()
        for server in net.servers:
            await altered(server, "union", "items")
        with pytest.raises(PeerViolationError, match="sent a union of 'items' that is not the announced one"):
            await anna.retrieve({"items": [1]})


def test_the_documentation_says_what_cannot_be_detected() -> None:
    sentence = "A server can add an error to its share before it commits, and nobody can tell which server did."
    assert sentence in " ".join(SECURITY.read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("name", "index"), sides(["forwards two parts of one client", "forwards a changed part", "commits twice"])
)
async def test_an_honest_server_comes_up_again(name: str, index: int, seed: int, autojump_clock, monkeypatch) -> None:
    """Whatever the peer made it store: what a restart would stumble over is not kept."""
    monkeypatch.setattr(RoundRecords, "_lends", lambda records, key: False)  # public parts are stored, not on loan
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    account = await meet(mutation.mutant, index, seed)
    assert account.mutant.fired
    async with trio.open_nursery() as nursery:
        await nursery.start(Server(account.honest.setup).run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
