"""Liars in a round that counts contributors: what a server lies about is noticed, or gains it nothing more; and clients
that count as often as they can open no row of one honest client where the task withstands so many of them.
"""

import re

import msgspec
import numpy as np
import pytest

from fsl_async import MisuseError, Ring, Sparse, Task
from fsl_async.client import planting
from fsl_async.protocols import ssa
from fsl_async.wire.messages import Proofs, RowCounts
from parties import simulate
from tests.support.cases import sides
from tests.support.hand_made import placed_everywhere

from .byzantine import CLIENTS, TASK, Byzantine, at_once
from .meeting import Account, meet
from .peer_attacks import Ending, Mutation, after, hearing, in_place_of, with_bulk

COUNTED = msgspec.structs.replace(TASK, min_contributors=3, lying_clients=0)
"""Five clients: row 0 has all of them, and each has one row of its own."""


def changed(counts: bytes, row: int | slice = 9, by: int = 3) -> bytes:
    words = np.frombuffer(counts, "<u4").copy()
    words[row if isinstance(row, slice) else slice(row, row + 1)] += np.uint32(by % 2**32)
    return words.tobytes()


def counting(row: int | slice, by: int) -> type[Byzantine]:
    """A server that adds to its share of some rows' counts before it stores and sends it."""

    def lie(server: Byzantine, event: ssa.RowsCounted) -> ssa.RowsCounted:
        records = server.running.records
        return ssa.RowsCounted(
            at_once(records.keep_counts(changed(bytes(at_once(records.counts(event.counts))), row, by)))
        )

    return hearing(ssa.RowsCounted, lie)


MUTATIONS = (
    Mutation(
        "sends other counts than it goes by",
        with_bulk(RowCounts, changed),
        Ending.HALTS,
        "sent a share|its commit",
        True,
    ),
    Mutation(
        "sends too few counts",
        with_bulk(RowCounts, lambda bulk: bulk[:-4]),
        Ending.HALTS,
        "sent counts of 252 bytes, the task implies 256",
    ),
    Mutation(
        "counts before the proofs",
        in_place_of(Proofs, lambda message, bulk: [(RowCounts(message.round_id), bytes(64 * 4)), (message, bulk)]),
        Ending.HALTS,
        "sent its counts in state .*, before proofs",
    ),
)


async def account_of(mutant: type[Byzantine], index: int, seed: int) -> Account:
    account = await meet(mutant, index, seed, COUNTED)
    assert account.mutant.fired, "the mutated step was never reached"
    return account


def row_sums(account: Account, rows: list[int]) -> list[int]:
    np.testing.assert_array_equal(np.delete(account.sums["items"], rows, axis=0), 0)
    return [int(value) for value in account.sums["items"][rows, 0]]


@pytest.mark.parametrize(("mutation", "index"), sides(MUTATIONS))
async def test_a_lie_that_contradicts_itself_is_noticed(
    mutation: Mutation, index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(mutation.mutant, index, seed)
    assert mutation.reveals or not account.revealed
    (error,) = account.halts[1 - index]
    assert re.search(mutation.says, str(error)), error
    assert [entry.about for entry in account.evidence] == [f"S{index}"]
    assert not account.sums


IMPOSSIBLE = {"too many": counting(9, 40), "below nothing": counting(9, -1), "every row": counting(slice(None), 3)}


@pytest.mark.parametrize(("name", "index"), sides(IMPOSSIBLE))
async def test_counts_that_nobody_can_have_abort_the_round(
    name: str, index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(IMPOSSIBLE[name], index, seed)
    assert not account.revealed
    assert account.report[0].ended == "aborted"
    assert "can have" in account.report[0].explanation
    kept = [(entry.about, entry.kind) for entry in account.evidence]
    assert kept == [(f"S{index}", "counts")]


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
async def test_a_server_that_never_counts_is_not_awaited_for_ever(
    index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(in_place_of(RowCounts, lambda message, bulk: []), index, seed)
    assert not account.revealed
    assert account.honest.state_name() == "round 1: Tallied" or account.report[0].ended == "aborted"


LIES: dict[str, tuple[type[Byzantine], list[int], list[int]]] = {
    "says the same counts twice": (after(RowCounts, lambda message, bulk: [(message, bulk)]), [0], [15]),
    "pushes a lone row": (counting(1, 2), [0, 1], [15, 1]),
    "opens a row of nobody": (counting(9, 3), [0, 9], [15, 0]),
    "hides a row": (counting(0, -3), [], []),
}


@pytest.mark.parametrize(("name", "index"), sides(LIES))
async def test_within_what_clients_can_have_it_opens_and_hides_rows_at_will(
    name: str, index: int, seed: int, autojump_clock: object
) -> None:
    """What docs/bounds-proofs.md says cannot be seen: no more than it could learn if no contributors were counted."""
    mutant, rows, sums = LIES[name]
    account = await account_of(mutant, index, seed)
    assert account.report[0].ended == "done"
    assert row_sums(account, rows) == sums
    assert account.evidence == []
    told = [told for told in account.clients.values() if not isinstance(told, BaseException)]
    assert len(told) == len(CLIENTS)
    assert {tuple(each.opened_rows["items"].tolist()) for each in told} == {tuple(rows)}


# ---- clients that lie

LONE = 7
"""A row that one honest client has, and clients that lie choose alone."""


def withstanding(least: int, lying: int, stash: int) -> Task:
    return Task(
        name="counted",
        blocks=(Sparse("items", rows=64, select=2, stash=stash),),
        ring=Ring(64),
        updates="any",
        min_clients=2,
        max_clients=20,
        min_contributors=least,
        lying_clients=lying,
    )


@pytest.mark.parametrize(
    ("stash", "liars", "least", "trusting"),
    [(0, 1, 5, False), (1, 1, 6, False), (1, 2, 10, False), (0, 1, 4, True), (1, 1, 4, True), (1, 1, 5, True)],
)
async def test_clients_that_plant_one_row_everywhere_open_it_only_where_all_are_trusted(
    stash: int,
    liars: int,
    least: int,
    trusting: bool,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    autojump_clock: object,
) -> None:
    monkeypatch.setattr(planting, "_place", placed_everywhere(LONE))
    if trusting:
        with pytest.raises(MisuseError, match=f"does not withstand one client .*use at least {5 + stash}"):
            withstanding(least, 1, stash)
    task = withstanding(least, 0 if trusting else liars, stash)
    async with simulate(task, {"items": np.zeros((64, 1), dtype=np.int64)}, seed=seed) as net:
        for number in range(liars):
            async with net.client(f"liar-{number}") as liar:
                await liar.submit({"items": ([LONE], np.zeros((1, 1), dtype=np.int64))})
        async with net.client("victim") as victim:
            await victim.submit({"items": ([LONE, 3], np.full((2, 1), 9, dtype=np.int64))})
        outcome = await net.finish_round()
        assert len(outcome.clients) == liars + 1
        assert outcome.opened_rows["items"].tolist() == ([LONE] if trusting else [])
        assert net.model["items"][LONE].tolist() == [9 if trusting else 0]
