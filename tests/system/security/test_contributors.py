"""A malicious server in a round that counts contributors: what it lies about is noticed, or gains it nothing more."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import Commitment, Message, Proofs, RowCounts

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


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_lie_that_contradicts_itself_is_noticed(
    mutation: Mutation, index: int, seed: int, autojump_clock: object
) -> None:
    account = await account_of(mutation.mutant, index, seed)
    assert mutation.reveals or not account.revealed
    (error,) = account.halts[1 - index]
    assert re.search(mutation.says, str(error)), error
    assert [entry.about for entry in account.evidence] == [f"S{index}"]
    assert not account.sums


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
@pytest.mark.parametrize("mutant", [CountsTooMany, CountsBelowNothing, OpensEveryRow])
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


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
@pytest.mark.parametrize(
    ("mutant", "rows", "sums"),
    [
        (SendsTheSameCountsTwice, [0], [15]),
        (PushesALoneRow, [0, 1], [15, 1]),
        (LiesAboutCounts, [0, 9], [15, 0]),
        (HidesARow, [], []),
    ],
)
async def test_within_what_clients_can_have_it_opens_and_hides_rows_at_will(
    mutant: type[Byzantine], rows: list[int], sums: list[int], index: int, seed: int, autojump_clock: object
) -> None:
    """What docs/bounds.md says cannot be seen: no more than it could learn if no contributors were counted."""
    account = await account_of(mutant, index, seed)
    assert account.report[0].ended == "done"
    assert row_sums(account, rows) == sums
    assert account.evidence == []
    told = [told for told in account.clients.values() if not isinstance(told, BaseException)]
    assert len(told) == len(CLIENTS)
    assert {tuple(each.opened_rows["items"].tolist()) for each in told} == {tuple(rows)}
