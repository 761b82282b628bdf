"""A round that counts contributors, event by event: counts before commitments, each once, and rows chosen by both."""

import pytest

from fsl_async.errors import PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import UnexpectedEvent
from fsl_async.wire.messages import Abort, Commitment, RowCounts
from tests.support.machine_scenes import (
    COUNTING,
    COUNTS,
    ENTRIES,
    HAPPY_PATH,
    NONCE,
    PEER_COUNTS,
    PEER_NONCE,
    PEER_SHARE,
    SHARE,
    TERMS,
    key,
)

BOTH = (COUNTS, PEER_COUNTS)
SEND_COUNTS = ssa.Send(RowCounts(COUNTING.round_id), ssa.Stored("counts", COUNTS))
OURS, THEIRS = ssa.RowsCounted(COUNTS), ssa.PeerCounts(PEER_COUNTS)


def verified(terms: ssa.Terms = COUNTING) -> ssa.Round:
    """Where it is settled who counts."""
    state: ssa.Round = ssa.Open()
    for event in HAPPY_PATH[:6]:
        state = ssa.step(state, event, terms)
    assert isinstance(state, ssa.Verified)
    return state


def after(*events: ssa.RoundEvent) -> ssa.Round:
    state = verified()
    for event in events:
        state = ssa.step(state, event, COUNTING)
    return state


def test_counts_are_exchanged_before_shares_are_committed_to() -> None:
    state = verified()
    assert ssa.effects(state, COUNTING)[-1] == ssa.CountRows(ENTRIES)
    state = ssa.step(state, OURS, COUNTING)
    assert isinstance(state, ssa.Tallied)
    assert ssa.effects(state, COUNTING)[-1] == SEND_COUNTS
    state = ssa.step(state, THEIRS, COUNTING)
    assert isinstance(state, ssa.Chosen)
    assert ssa.effects(state, COUNTING)[-2:] == (SEND_COUNTS, ssa.Sum(ENTRIES, BOTH))
    state = ssa.step(state, ssa.Summed(SHARE, NONCE), COUNTING)
    commitment = ssa.share_commitment(COUNTING, 0, ENTRIES, SHARE, NONCE, BOTH)
    sent = ssa.Send(Commitment(COUNTING.round_id, commitment))
    assert ssa.effects(state, COUNTING)[-2:] == (SEND_COUNTS, sent)
    theirs = ssa.share_commitment(COUNTING, 1, ENTRIES, PEER_SHARE, PEER_NONCE, BOTH)
    state = ssa.step(state, ssa.PeerCommitment(theirs), COUNTING)
    assert not any(isinstance(effect.message, RowCounts) for effect in ssa.effects(state, COUNTING))
    state = ssa.step(state, ssa.PeerShare(PEER_SHARE, PEER_NONCE), COUNTING)
    assert ssa.effects(state, COUNTING)[-1] == ssa.Apply(ENTRIES, {}, SHARE, PEER_SHARE, BOTH)


def test_the_peers_counts_may_come_before_ours() -> None:
    assert after(THEIRS, OURS) == after(OURS, THEIRS)


def test_counts_that_are_said_again_change_nothing() -> None:
    for said in ([THEIRS], [THEIRS, OURS], [OURS, THEIRS, ssa.Summed(SHARE, NONCE)]):
        assert after(*said, THEIRS) == after(*said)


@pytest.mark.parametrize("before", [[THEIRS], [THEIRS, OURS], [OURS, THEIRS, ssa.Summed(SHARE, NONCE)]])
def test_other_counts_are_a_violation(before: list[ssa.RoundEvent]) -> None:
    with pytest.raises(PeerViolationError, match="S1: sent two different counts for one round"):
        after(*before, ssa.PeerCounts(key(99)))


def test_nothing_is_summed_before_rows_are_chosen() -> None:
    for said in ([], [OURS], [THEIRS]):
        with pytest.raises(UnexpectedEvent, match="Summed in state"):
            after(*said, ssa.Summed(SHARE, NONCE))


@pytest.mark.parametrize("event", [OURS, THEIRS])
def test_a_task_that_does_not_count_takes_no_counts(event: ssa.RoundEvent) -> None:
    with pytest.raises(UnexpectedEvent):
        ssa.step(verified(TERMS), event, TERMS)


def test_a_commitment_is_bound_to_both_counts() -> None:
    others = [(), BOTH, BOTH[::-1], (COUNTS, key(99)), (key(99), PEER_COUNTS)]
    assert len({ssa.share_commitment(COUNTING, 1, ENTRIES, PEER_SHARE, PEER_NONCE, counts) for counts in others}) == 5
    committed = after(OURS, THEIRS, ssa.Summed(SHARE, NONCE))
    lie = ssa.share_commitment(COUNTING, 1, ENTRIES, PEER_SHARE, PEER_NONCE, (COUNTS, key(99)))
    revealed = ssa.step(committed, ssa.PeerCommitment(lie), COUNTING)
    with pytest.raises(PeerViolationError, match="does not match its commitment"):
        ssa.step(revealed, ssa.PeerShare(PEER_SHARE, PEER_NONCE), COUNTING)


def test_both_servers_name_the_counts_in_one_order() -> None:
    second = ssa.Terms(key(0), server=1, minimum=2, verified=True, contributors=True)
    state: ssa.Round = ssa.Open()
    for event in (*HAPPY_PATH[:6], ssa.RowsCounted(PEER_COUNTS), ssa.PeerCounts(COUNTS)):
        state = ssa.step(state, event, second)
    assert isinstance(state, ssa.Chosen)
    assert state.counts == BOTH


@pytest.mark.parametrize("said", [[], [OURS], [OURS, THEIRS]])
def test_a_round_can_be_given_up_until_a_share_is_committed_to(said: list[ssa.RoundEvent]) -> None:
    given_up = ssa.step(after(*said), ssa.GaveUp("tired"), COUNTING)
    assert ssa.effects(given_up, COUNTING) == (ssa.Send(Abort(COUNTING.round_id, "S0 gave up: tired")),)
    assert isinstance(ssa.step(given_up, THEIRS, COUNTING), ssa.Aborted)
