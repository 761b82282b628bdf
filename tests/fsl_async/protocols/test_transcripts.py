"""The smaller machines as transcripts: toss, assembly, a client's round, its session, and the alignment of rounds."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Task
from fsl_async.config import ServerKeys
from fsl_async.protocols import assembly, client, epochs, psu, toss
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.wire.messages import TossCommitment, TossReveal
from tests.support.machine_scenes import ALICE, BOB, CAROL, config_of, key, toss_halves

# ---- toss


def tossed_by_both(model: tuple[bytes, bytes] = (key(9), key(9))) -> tuple[toss.Toss, toss.Toss]:
    first: toss.Toss = toss.begin(0, 3, model[0], key(1), key(2))
    second: toss.Toss = toss.begin(1, 3, model[1], key(3), key(4))
    for _ in range(2):  # commitments, then reveals
        said = toss.effects(first), toss.effects(second)
        for message in said[1]:
            first = toss.step(first, heard(message), "S1")
        for message in said[0]:
            second = toss.step(second, heard(message), "S0")
    return first, second


def heard(message: TossCommitment | TossReveal) -> Event:
    if isinstance(message, TossCommitment):
        return toss.PeerTossCommitment(message.commitment, message.model)
    return toss.PeerTossReveal(message.seed, message.nonce)


def test_a_toss() -> None:
    ours, theirs = toss_halves()
    assert toss.effects(ours) == (TossCommitment(number=3, commitment=ours.half.commitment(), model=key(9)),)
    revealing = toss.step(ours, toss.PeerTossCommitment(theirs.half.commitment(), key(9)), "S1")
    assert toss.effects(revealing) == (*toss.effects(ours), TossReveal(number=3, seed=key(1), nonce=key(2)))
    tossed = toss.step(revealing, toss.PeerTossReveal(key(3), key(4)), "S1")
    assert toss.effects(tossed) == (TossReveal(number=3, seed=key(1), nonce=key(2)),)


def test_both_servers_toss_the_same() -> None:
    first, second = tossed_by_both()
    assert isinstance(first, toss.Tossed)
    assert isinstance(second, toss.Tossed)
    assert first.hash_seed == second.hash_seed
    assert first.proof_key == second.proof_key
    assert first.commitments == second.commitments == tuple(half.half.commitment() for half in toss_halves())
    assert len({first.hash_seed, first.proof_key, key(1), key(3)}) == 4


def test_nothing_is_revealed_before_the_peer_has_committed() -> None:
    ours, _ = toss_halves()
    assert not any(isinstance(message, TossReveal) for message in toss.effects(ours))
    with pytest.raises(UnexpectedEvent):
        toss.step(ours, toss.PeerTossReveal(key(3), key(4)), "S1")


def test_halves_stay_out_of_logs() -> None:
    first, _ = tossed_by_both()
    assert repr(key(1))[2:-1] not in repr(first.half)
    assert repr(key(2))[2:-1] not in repr(first.half)


def test_servers_with_different_models_find_out_before_any_client_is_let_in() -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: holds another model: 0b0b.* there, 0909.* here; start both"):
        tossed_by_both((key(9), key(11)))


@pytest.mark.parametrize(
    ("seed", "nonce"), [(key(5), key(4)), (key(3), key(5)), (key(4), key(3)), (key(1), key(2)), (b"", b"")]
)
def test_a_half_that_was_not_committed_to_is_refused(seed: bytes, nonce: bytes) -> None:
    ours, theirs = toss_halves()
    revealing = toss.step(ours, toss.PeerTossCommitment(theirs.half.commitment(), key(9)), "S1")
    with pytest.raises(PeerViolationError, match=r"^S1: revealed a seed that it had not committed to"):
        toss.step(revealing, toss.PeerTossReveal(seed, nonce), "S1")


def test_our_own_half_cannot_be_played_back() -> None:
    """A peer that repeats our commitment cannot open it with our reveal: it names the server."""
    ours, _ = toss_halves()
    revealing = toss.step(ours, toss.PeerTossCommitment(ours.half.commitment(), key(9)), "S1")
    with pytest.raises(PeerViolationError, match="had not committed to"):
        toss.step(revealing, toss.PeerTossReveal(key(1), key(2)), "S1")


def test_a_second_commitment_or_reveal_is_a_violation() -> None:
    first, _ = tossed_by_both()
    with pytest.raises(PeerViolationError, match="two different toss commitments"):
        toss.step(first, toss.PeerTossCommitment(key(99), key(9)), "S1")
    with pytest.raises(PeerViolationError, match="two different toss reveals"):
        toss.step(first, toss.PeerTossReveal(key(99), key(4)), "S1")


def test_a_commitment_is_bound_to_server_and_round() -> None:
    halves = [toss.begin(server, number, key(9), key(1), key(2)).half for server in (0, 1) for number in (3, 4)]
    assert len({half.commitment() for half in halves}) == 4


# ---- assembly


@pytest.mark.parametrize("carrier_first", [True, False])
def test_halves_that_differ_are_kept_as_evidence(carrier_first: bool) -> None:
    events: list[Event] = [assembly.Public(BOB), assembly.Direct(ALICE)]
    state: assembly.Assembly = assembly.Expecting()
    for event in events if carrier_first else reversed(events):
        state = assembly.step(state, event)
    assert state == assembly.Mismatched(announced=ALICE, received=BOB)


@pytest.mark.parametrize("again", [assembly.Direct(ALICE), assembly.Public(BOB)])
def test_halves_that_differ_may_be_said_again(again: Event) -> None:
    """A carrier forwards again whatever it has, and need not be the one that lied."""
    state = assembly.Mismatched(announced=ALICE, received=BOB)
    assert assembly.step(state, again) == state


@pytest.mark.parametrize("other", [assembly.Direct(BOB), assembly.Public(ALICE)])
def test_halves_that_differ_are_not_put_right(other: Event) -> None:
    with pytest.raises(UnexpectedEvent):
        assembly.step(assembly.Mismatched(announced=ALICE, received=BOB), other)


@pytest.mark.parametrize("state", [assembly.DirectOnly(ALICE), assembly.Assembled(ALICE)])
def test_a_client_announces_one_digest(state: assembly.Assembly) -> None:
    with pytest.raises(UnexpectedEvent):
        assembly.step(state, assembly.Direct(BOB))


@pytest.mark.parametrize("state", [assembly.PublicOnly(ALICE), assembly.Assembled(ALICE)])
def test_a_carrier_forwards_one_part(state: assembly.Assembly) -> None:
    with pytest.raises(UnexpectedEvent):
        assembly.step(state, assembly.Public(BOB))


# ---- client

CONFIG = config_of()


def follow(state: client.ClientRound, *events: Event) -> client.ClientRound:
    for event in events:
        state = client.step(state, event)
    return state


def test_a_client_s_round() -> None:
    state = follow(client.Outside(0), client.Announced(1, CONFIG), client.Announced(0, CONFIG))
    assert state == client.Inside(CONFIG)
    state = follow(state, client.Ask(), client.Answered(1, 1))
    assert state == client.Retrieving(CONFIG, 1, frozenset({1}))
    assert follow(state, client.Answered(1, 1)) == state  # one server's word counts once
    state = follow(state, client.Answered(0, 1))
    assert state == client.Holding(CONFIG, 1)
    state = follow(state, client.Submit(ALICE), client.Receipted(0, ALICE))
    assert state == client.Submitting(CONFIG, ALICE, frozenset({0}))
    assert follow(state, client.Receipted(0, ALICE)) == state
    assert follow(state, client.Receipted(1, ALICE), client.Finish()) == client.Over(4)


def test_a_client_that_only_submits() -> None:
    assert follow(client.Inside(CONFIG), client.Submit(ALICE)) == client.Submitting(CONFIG, ALICE, frozenset())


def test_a_session_s_rows_are_recalled_and_asked_anew_after_it_is_left() -> None:
    state = follow(
        client.Inside(CONFIG),
        client.Recollect(),
        client.Answered(0, client.OfSession()),
        client.Answered(1, client.OfSession()),
    )
    assert state == client.Holding(CONFIG, client.OfSession())
    assert follow(state, client.Recollect()) == client.Retrieving(CONFIG, client.OfSession(), frozenset())
    assert follow(state, client.Ask()) == client.Retrieving(CONFIG, 1, frozenset())


def test_rows_are_asked_for_eight_times_at_most() -> None:
    state: client.ClientRound = client.Inside(CONFIG)
    for query in range(1, 9):
        state = follow(state, client.Ask(), client.Answered(0, query), client.Answered(1, query))
    with pytest.raises(MisuseError, match=r"8 retrievals in one round are the most .*; submit, or ask again"):
        follow(state, client.Ask())
    assert isinstance(follow(state, client.Submit(ALICE)), client.Submitting)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hash_seed": key(77)}, "hash_seed"),
        ({"servers": (ServerKeys(key(4), key(5)), ServerKeys(key(6), key(8)))}, "servers[1].statement"),
        ({"toss": (key(2), key(4))}, "toss[1]"),
        ({"session": 1}, "session"),
    ],
)
def test_servers_that_announce_different_rounds_are_told_apart(changes: dict[str, Any], field: str) -> None:
    half = follow(client.Outside(0), client.Announced(1, CONFIG))
    with pytest.raises(PeerViolationError, match=r"^S0 and S1: announce different rounds") as violation:
        follow(half, client.Announced(0, config_of(**changes)))
    assert re.search(rf"{re.escape(field)} is [0-9a-f]+…? at S1, [0-9a-f]+…? at S0$", str(violation.value))


def test_a_difference_in_the_task_is_named_to_the_field() -> None:
    other = Task(name="t", blocks=(*CONFIG.task.blocks[:1], Dense("d", size=3)), ring=Ring(64, fraction_bits=1))
    half = follow(client.Outside(0), client.Announced(0, CONFIG))
    with pytest.raises(PeerViolationError, match=r"task\.ring\.fraction_bits is 0 at S0, 1 at S1"):
        follow(half, client.Announced(1, config_of(task=other)))


def test_a_stale_announcement_is_passed_over() -> None:
    half = follow(client.Outside(3), client.Announced(0, config_of(5)))
    assert follow(half, client.Announced(1, config_of(4))) == half
    newer = follow(half, client.Announced(1, config_of(6)))
    assert newer == client.HalfEntered(3, 1, config_of(6))
    assert follow(newer, client.Announced(0, config_of(6))) == client.Inside(config_of(6))


def test_one_server_cannot_announce_for_both() -> None:
    half = follow(client.Outside(3), client.Announced(0, CONFIG))
    with pytest.raises(UnexpectedEvent):
        follow(half, client.Announced(0, CONFIG))


def test_servers_acknowledge_what_was_sent() -> None:
    submitting = client.Submitting(CONFIG, ALICE, frozenset())
    with pytest.raises(PeerViolationError, match=r"^S1: acknowledged another submission than the one sent"):
        follow(submitting, client.Receipted(1, BOB))


def test_servers_answer_what_was_asked() -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: answered query 3; query 2 was asked"):
        follow(client.Retrieving(CONFIG, 2, frozenset()), client.Answered(1, 3))


@pytest.mark.parametrize(
    "state",
    [
        client.Inside(CONFIG),
        client.Retrieving(CONFIG, 1, frozenset()),
        client.Holding(CONFIG, 1),
    ],
)
def test_a_round_that_is_gone_is_not_entered_again(state: client.ClientRound) -> None:
    assert follow(state, client.RoundGone()) == client.Outside(4)


def test_a_server_s_word_that_the_round_is_gone_ends_no_submission() -> None:
    state = client.Submitting(CONFIG, ALICE, frozenset({1}))
    with pytest.raises(UnexpectedEvent, match="RoundGone in state Submitting"):
        follow(state, client.RoundGone())
    assert follow(state, client.Finish()) == client.Over(4)


def test_a_round_half_entered_may_be_tried_again() -> None:
    assert follow(client.HalfEntered(3, 0, CONFIG), client.Leave()) == client.Outside(3)


# ---- session


def live(state: epochs.Session, *events: Event) -> epochs.Session:
    for event in events:
        state = epochs.step(state, event, "alice")
    return state


def test_a_session() -> None:
    state = live(epochs.Absent(), epochs.Brought(1, ALICE))
    assert state == epochs.Planted(1, ALICE)
    state = live(state, epochs.Counted(1))
    assert state == epochs.Established(1, 1, ALICE)
    state = live(state, epochs.Hinted(2, BOB), epochs.Counted(2), epochs.Hinted(5, CAROL))
    assert state == epochs.Established(1, 5, CAROL)
    assert live(state, epochs.Dropped(5)) == state  # the trees stay, and so does the epoch
    assert live(state, epochs.Brought(6, ALICE)) == epochs.Planted(6, ALICE)


def test_trees_that_were_not_counted_are_gone() -> None:
    assert live(epochs.Absent(), epochs.Brought(3, ALICE), epochs.Dropped(3)) == epochs.Absent()


def test_a_hint_needs_a_session() -> None:
    for state in (epochs.Absent(), epochs.Planted(3, ALICE)):
        with pytest.raises(UnexpectedEvent):
            live(state, epochs.Hinted(4, BOB))


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (epochs.Established(1, 4, ALICE), epochs.Hinted(4, BOB)),
        (epochs.Established(1, 4, ALICE), epochs.Brought(4, BOB)),
        (epochs.Planted(4, ALICE), epochs.Brought(4, BOB)),
    ],
)
def test_two_hints_for_one_epoch_are_named(state: epochs.Session, event: Event) -> None:
    with pytest.raises(PeerViolationError, match=r"^alice: gave two different hints for epoch 4: 0a0a.* and 0b0b"):
        live(state, event)


@pytest.mark.parametrize("event", [epochs.Hinted(3, ALICE), epochs.Brought(3, ALICE)])
def test_epochs_only_rise(event: Event) -> None:
    with pytest.raises(PeerViolationError, match="gave a hint for epoch 3 after one for epoch 4; epochs only rise"):
        live(epochs.Established(1, 4, ALICE), event)


def test_the_same_hint_again_is_harmless() -> None:
    standing = epochs.Established(1, 4, ALICE)
    assert live(standing, epochs.Hinted(4, ALICE)) == standing


def test_trees_cannot_come_in_an_epoch_that_was_hinted_in() -> None:
    """Nobody but a malicious client sends them: an honest one's repeat is known by its digest before it comes here."""
    with pytest.raises(PeerViolationError, match="brought trees in epoch 4 after a hint for it"):
        live(epochs.Established(1, 4, ALICE), epochs.Brought(4, ALICE))


# ---- alignment


def test_a_union_that_stays_and_one_that_does_not() -> None:
    for stays, expected in ((True, psu.Aligned((), True)), (False, psu.Seeking())):
        found = psu.step(psu.Seeking(), psu.UnionFound((), stays))
        assert psu.step(found, psu.MainSettled()) == expected


def test_where_a_task_begins() -> None:
    assert psu.begin(msgspec.structs.replace(CONFIG.task, alignment="all")) == psu.Everything()
    assert psu.begin(msgspec.structs.replace(CONFIG.task, alignment="union")) == psu.Seeking()
