"""Liars in a round that counts contributors: what a server lies about is noticed, or gains it nothing more; and clients
that count as often as they can open no row of one honest client where the task withstands so many of them.
"""

import re

import msgspec
import numpy as np
import pytest

from fsl_async import MisuseError, Ring, Sparse, Task, kernels
from fsl_async.client import planting
from fsl_async.config import RoundConfig
from fsl_async.geometry import Geometry, RowNumbers
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.randomness import Randomness
from fsl_async.wire.messages import Commitment, Message, Proofs, RowCounts
from parties import simulate
from tests.support.cases import sides

from .byzantine import CLIENTS, TASK, Byzantine, Said, at_once, flipped
from .meeting import Account, meet
from .peer_attacks import Ending, Mutation

COUNTED = msgspec.structs.replace(TASK, min_contributors=3, lying_clients=0)
"""Five clients: row 0 has all of them, and each has one row of its own."""


def changed(counts: bytes, row: int, by: int) -> bytes:
    words = np.frombuffer(counts, "<u4").copy()
    words[row : row + 1] += np.uint32(by % 2**32)
    return words.tobytes()


class LiesAboutCounts(Byzantine):
    """Adds to its share of one row's count before it stores and sends it."""

    row, by = 9, 3

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, ssa.RowsCounted):
            records = self.running.records
            lie = changed(bytes(at_once(records.counts(event.counts))), self.row, self.by)
            event = ssa.RowsCounted(at_once(records.keep_counts(lie)))
        return (event,)


class PushesALoneRow(LiesAboutCounts):
    row, by = 1, 2


class HidesARow(LiesAboutCounts):
    row, by = 0, -3


class CountsTooMany(LiesAboutCounts):
    by = 40


class CountsBelowNothing(LiesAboutCounts):
    by = -1


class OpensEveryRow(Byzantine):
    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, ssa.RowsCounted):
            records = self.running.records
            words = np.frombuffer(at_once(records.counts(event.counts)), "<u4") + np.uint32(3)
            event = ssa.RowsCounted(at_once(records.keep_counts(words.tobytes())))
        return (event,)


class SendsOtherCountsThanItGoesBy(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, changed(bulk, 9, 3) if isinstance(message, RowCounts) else bulk


class SendsCountsTwice(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, RowCounts):
            yield message, changed(bulk, 9, 3)


class SendsTheSameCountsTwice(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, RowCounts):
            yield message, bulk
            self.fired = True


class SendsTooFewCounts(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk[:-4] if isinstance(message, RowCounts) else bulk


class CountsBeforeTheProofs(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Proofs):
            yield RowCounts(message.round_id), bytes(64 * 4)
        yield message, bulk


class CommitsWithoutCounting(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, RowCounts):
            message, bulk = Commitment(message.round_id, bytes(32)), b""
        yield message, bulk


class NeverCounts(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if not isinstance(message, RowCounts):
            yield message, bulk


class CommitsToOtherCounts(Byzantine):
    """Its commitment names another share of the counts than it has sent."""

    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Commitment):
            state = self.running.state
            assert isinstance(state, ssa.Committed | ssa.Revealed)
            other = (flipped(state.counts[0]), state.counts[1])
            terms = ssa.Terms(message.round_id, self.setup.index, 2, verified=True, contributors=True)
            lie = ssa.share_commitment(terms, self.setup.index, state.counted, state.share, state.nonce, other)
            message = msgspec.structs.replace(message, commitment=lie)
        yield message, bulk


MUTATIONS = (
    Mutation(
        "sends other counts than it goes by",
        SendsOtherCountsThanItGoesBy,
        Ending.HALTS,
        "sent a share|its commit",
        True,
    ),
    Mutation("sends counts twice", SendsCountsTwice, Ending.HALTS, "sent two different counts"),
    Mutation("sends too few counts", SendsTooFewCounts, Ending.HALTS, "sent counts of 252 bytes, the task implies 256"),
    Mutation(
        "counts before the proofs", CountsBeforeTheProofs, Ending.HALTS, "sent its counts in state .*, before proofs"
    ),
    Mutation(
        "commits without counting",
        CommitsWithoutCounting,
        Ending.HALTS,
        "two different commitments for one round, and too early",
    ),
    Mutation("commits to other counts", CommitsToOtherCounts, Ending.HALTS, "does not match its commitment", True),
)


async def account_of(mutant: type[Byzantine], index: int, seed: int) -> Account:
    account = await meet(Mutation("", mutant, Ending.WAITS, ""), index, seed, COUNTED)
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


@pytest.mark.parametrize(("mutant", "index"), sides([CountsTooMany, CountsBelowNothing, OpensEveryRow]))
async def test_counts_that_nobody_can_have_abort_the_round(
    mutant: type[Byzantine], index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(mutant, index, seed)
    assert not account.revealed
    assert account.report[0].ended == "aborted"
    assert "can have" in account.report[0].explanation
    kept = [(entry.about, entry.kind) for entry in account.evidence]
    assert kept == [(f"S{index}", "counts")]


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
async def test_a_server_that_never_counts_is_not_awaited_for_ever(
    index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(NeverCounts, index, seed)
    assert not account.revealed
    assert account.honest.state_name() == "round 1: Tallied" or account.report[0].ended == "aborted"


LIES = {
    SendsTheSameCountsTwice: ([0], [15]),
    PushesALoneRow: ([0, 1], [15, 1]),
    LiesAboutCounts: ([0, 9], [15, 0]),
    HidesARow: ([], []),
}


@pytest.mark.parametrize(("mutant", "index"), sides(LIES))
async def test_within_what_clients_can_have_it_opens_and_hides_rows_at_will(
    mutant: type[Byzantine], index: int, seed: int, autojump_clock: object
) -> None:
    """What docs/bounds-proofs.md says cannot be seen: no more than it could learn if no contributors were counted."""
    rows, sums = LIES[mutant]
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


def place_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever chooses the lone row and no other plants it in all segments and in every stash slot."""
    place = planting._place

    def everywhere(
        config: RoundConfig, index: int, geometry: Geometry, rows: RowNumbers, randomness: Randomness
    ) -> object:
        items, positions, left = place(config, index, geometry, rows, randomness)
        if rows.tolist() != [LONE]:
            return items, positions, left
        bins = geometry.bins
        for segment in range(bins.segments):
            (spot,) = kernels.Permutation(config.placement_key(index), segment, geometry.rows).forward(rows).tolist()
            column = spot // bins.positions
            tree = segment * bins.bins + column % bins.bins
            items[0][tree], positions[0][tree] = 0, spot - (column - column // bins.bins) * bins.positions
        for slot in range(1, len(items)):
            items[slot][0], positions[slot][0] = 0, LONE
        return items, positions, left

    monkeypatch.setattr(planting, "_place", everywhere)


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
    place_everywhere(monkeypatch)
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
