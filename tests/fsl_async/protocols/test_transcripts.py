"""The smaller machines as transcripts: toss, assembly, a client's round, its session, and the alignment of rounds."""

import re
from typing import Any

import msgspec
import pytest

from fsl_async import MisuseError, PeerViolationError, Ring
from fsl_async.config import ServerKeys
from fsl_async.protocols import assembly, client, entry, epochs, psu, toss
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.protocols.psr import client as psr
from fsl_async.protocols.psu import client as psu_client
from fsl_async.protocols.ssa import client as ssa_client
from fsl_async.union import UnionBlock
from fsl_async.wire.messages import TossCommitment, TossReveal
from tests.support.machine_scenes import ALICE, ALLOWED, BOB, CAROL, config_of, key, toss_halves

# ---- toss


def tossed_by_both(model: tuple[bytes, bytes] = (key(9), key(9))) -> tuple[toss.Toss, toss.Toss]:
    first: toss.Toss = toss.Committing(toss.Half(0, 3, model[0], key(1), key(2)))
    second: toss.Toss = toss.Committing(toss.Half(1, 3, model[1], key(3), key(4)))
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
    halves = [toss.Half(server, number, key(9), key(1), key(2)) for server in (0, 1) for number in (3, 4)]
    assert len({half.commitment() for half in halves}) == 4


# ---- assembly


@pytest.mark.parametrize("carrier_first", [True, False])
def test_halves_that_differ_are_kept_as_evidence(carrier_first: bool) -> None:
    events: list[Event] = [assembly.Public(BOB), assembly.Direct(ALICE)]
    state: assembly.Assembly = assembly.Expecting()
    for event in events if carrier_first else reversed(events):
        state = assembly.step(state, event)
    assert state == MISMATCHED


@pytest.mark.parametrize("again", [assembly.Direct(ALICE), assembly.Public(BOB)])
def test_halves_that_differ_may_be_said_again(again: Event) -> None:
    """A carrier forwards again whatever it has, and need not be the one that lied."""
    assert assembly.step(MISMATCHED, again) == MISMATCHED


MISMATCHED = assembly.Mismatched(announced=ALICE, received=BOB)
SECOND_WORDS = {
    "a client puts right what differs": (MISMATCHED, assembly.Direct(BOB)),
    "a carrier puts right what differs": (MISMATCHED, assembly.Public(ALICE)),
    "a client announces another digest": (assembly.DirectOnly(ALICE), assembly.Direct(BOB)),
    "a client announces another digest at the end": (assembly.Assembled(ALICE), assembly.Direct(BOB)),
    "a carrier forwards another part": (assembly.PublicOnly(ALICE), assembly.Public(BOB)),
    "a carrier forwards another part at the end": (assembly.Assembled(ALICE), assembly.Public(BOB)),
}


@pytest.mark.parametrize(("state", "event"), SECOND_WORDS.values(), ids=SECOND_WORDS)
def test_a_second_word_changes_no_half(state: assembly.Assembly, event: Event) -> None:
    with pytest.raises(UnexpectedEvent):
        assembly.step(state, event)


# ---- client

CONFIG = config_of()
INSIDE = client.ClientRound(entry.Inside(CONFIG), psr.Ready(psr.ClientTerms(4, 8)), ssa_client.Ready())


def follow(state: client.ClientRound, *events: client.ClientEvent) -> client.ClientRound:
    for event in events:
        state = client.step(state, event)
    return state


def test_a_client_s_round() -> None:
    state = follow(client.outside(0), entry.Announced(1, CONFIG), entry.Announced(0, CONFIG))
    assert state == INSIDE
    state = follow(state, psr.Ask())
    assert psr.effects(state.psr) == (psr.Query(0, 1), psr.Query(1, 1))
    state = follow(state, psr.Answered(1, 1))
    assert psr.effects(state.psr) == (psr.Query(0, 1),)
    with pytest.raises(UnexpectedEvent):  # one server's word counts once
        follow(state, psr.Answered(1, 1))
    state = follow(state, psr.Answered(0, 1))
    assert state.psr == psr.Holding(ALLOWED, 1)
    state = follow(state, ssa_client.Submit(ALICE), ssa_client.Receipted(0, ALICE))
    assert ssa_client.effects(state.ssa) == (ssa_client.Deliver(1),)
    with pytest.raises(UnexpectedEvent):
        follow(state, ssa_client.Receipted(0, ALICE))
    state = follow(state, ssa_client.Receipted(1, ALICE))
    assert ssa_client.effects(state.ssa) == (ssa_client.Learn(0), ssa_client.Learn(1))
    assert follow(state, ssa_client.Finish()) == client.ClientRound(
        entry.Outside(4), psr.Away(), ssa_client.Over(ALICE)
    )


def test_a_client_that_only_submits() -> None:
    state = follow(INSIDE, ssa_client.Submit(ALICE))
    assert ssa_client.effects(state.ssa) == (ssa_client.Deliver(0), ssa_client.Deliver(1))


def test_nothing_is_retrieved_and_nothing_else_submitted_after_a_submission() -> None:
    state = follow(INSIDE, ssa_client.Submit(ALICE))
    for event in (psr.Ask(), psr.Recollect(), ssa_client.Submit(BOB), ssa_client.Submit(ALICE)):
        with pytest.raises(UnexpectedEvent):
            follow(state, event)


@pytest.mark.parametrize(("protocol", "retrieves", "submits"), [("psr", True, False), ("psu", False, True)])
def test_what_a_round_runs_says_what_a_client_does_in_it(protocol: Any, retrieves: bool, submits: bool) -> None:
    task = CONFIG.task
    if protocol == "psr":
        task = msgspec.structs.replace(task, protocol="psr", alignment="all", min_clients=None)
    config = config_of(task=task, protocol=protocol)
    state = follow(client.outside(0), entry.Announced(1, config), entry.Announced(0, config))
    for event, allowed in ((psr.Ask(), retrieves), (ssa_client.Submit(ALICE), submits)):
        if allowed:
            assert follow(state, event) != state
        else:
            with pytest.raises(UnexpectedEvent):
                follow(state, event)
    assert follow(state, entry.RoundGone()) == client.outside(4)


def test_a_session_s_rows_are_recalled_and_asked_anew_after_it_is_left() -> None:
    session = psr.OfSession()
    state = follow(INSIDE, psr.Recollect(), psr.Answered(0, session), psr.Answered(1, session))
    assert state.psr == psr.Holding(ALLOWED, session)
    assert follow(state, psr.Recollect()).psr == psr.Asked(ALLOWED, session)
    assert follow(state, psr.Ask()).psr == psr.Asked(ALLOWED, 1)


def test_rows_are_asked_for_eight_times_at_most() -> None:
    state = INSIDE
    for query in range(1, 9):
        state = follow(state, psr.Ask(), psr.Answered(0, query), psr.Answered(1, query))
    with pytest.raises(MisuseError, match=r"8 retrievals in one round are the most .*; submit, or ask again"):
        follow(state, psr.Ask())
    assert isinstance(follow(state, ssa_client.Submit(ALICE)).ssa, ssa_client.Drafted)


@pytest.mark.parametrize("answered", [(), (1,)])
def test_an_interrupted_query_is_followed_by_the_next_number(answered: tuple[int, ...]) -> None:
    state = follow(INSIDE, psr.Ask(), *(psr.Answered(server, 1) for server in answered), psr.Interrupt())
    assert psr.effects(state.psr) == ()
    assert follow(state, psr.Ask()).psr == psr.Asked(ALLOWED, 2)
    assert isinstance(follow(state, ssa_client.Submit(ALICE)).ssa, ssa_client.Drafted)


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
    half = follow(client.outside(0), entry.Announced(1, CONFIG))
    with pytest.raises(PeerViolationError, match=r"^S0 and S1: announce different rounds") as violation:
        follow(half, entry.Announced(0, config_of(**changes)))
    assert re.search(rf"{re.escape(field)} is [0-9a-f]+…? at S1, [0-9a-f]+…? at S0$", str(violation.value))


def test_a_difference_in_the_task_is_named_to_the_field() -> None:
    other = msgspec.structs.replace(CONFIG.task, ring=Ring(64, fraction_bits=1))
    half = follow(client.outside(0), entry.Announced(0, CONFIG))
    with pytest.raises(PeerViolationError, match=r"task\.ring\.fraction_bits is 0 at S0, 1 at S1"):
        follow(half, entry.Announced(1, config_of(task=other)))


def test_a_stale_announcement_is_passed_over() -> None:
    half = follow(client.outside(3), entry.Announced(0, config_of(5)))
    assert entry.effects(client.outside(3).entry) == (entry.Hear(0, 3),)
    assert entry.effects(half.entry) == (entry.Hear(1, 4),)
    assert follow(half, entry.Announced(1, config_of(4))) == half
    newer = follow(half, entry.Announced(1, config_of(6)))
    assert newer.entry == entry.HalfEntered(3, 1, config_of(6))
    assert follow(newer, entry.Announced(0, config_of(6))).entry == entry.Inside(config_of(6))


def test_one_server_cannot_announce_for_both() -> None:
    half = follow(client.outside(3), entry.Announced(0, CONFIG))
    with pytest.raises(UnexpectedEvent):
        follow(half, entry.Announced(0, CONFIG))


def test_servers_acknowledge_what_was_sent() -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: acknowledged another submission than the one sent"):
        follow(INSIDE, ssa_client.Submit(ALICE), ssa_client.Receipted(1, BOB))


def test_servers_answer_what_was_asked() -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: answered query 3; query 1 was asked"):
        follow(INSIDE, psr.Ask(), psr.Answered(1, 3))


@pytest.mark.parametrize(
    "events", [(), (psr.Ask(), psr.Interrupt()), (psr.Ask(), psr.Answered(0, 1), psr.Answered(1, 1))]
)
def test_a_round_that_is_gone_is_not_entered_again(events: tuple[client.ClientEvent, ...]) -> None:
    state = follow(INSIDE, *events)
    assert client.may_be_lost(state)
    assert follow(state, entry.RoundGone()) == client.outside(4)


def test_a_server_s_word_that_the_round_is_gone_ends_no_submission() -> None:
    state = client.submitted_before(CONFIG, ALICE, (1,))
    assert not client.may_be_lost(state)
    with pytest.raises(UnexpectedEvent, match="RoundGone in state HalfReceipted"):
        follow(state, entry.RoundGone())
    assert follow(state, ssa_client.Finish()).entry == entry.Outside(4)


@pytest.mark.parametrize(("receipts", "owing"), [((), (0, 1)), ((0,), (1,)), ((1,), (0,))])
def test_a_restarted_client_sends_to_the_servers_that_owe_a_receipt(
    receipts: tuple[int, ...], owing: tuple[int, ...]
) -> None:
    state = client.submitted_before(CONFIG, ALICE, receipts)
    assert ssa_client.effects(state.ssa) == tuple(ssa_client.Deliver(server) for server in owing)


def test_a_round_half_entered_may_be_tried_again() -> None:
    assert follow(client.outside(3), entry.Announced(0, CONFIG), entry.Leave()) == client.outside(3)


# ---- a client that learns the union

UNION = (UnionBlock("a", 3, key(1)), UnionBlock("b", 0, key(2)))


def learn(*events: Event) -> psu_client.Learning:
    state: psu_client.Learning = psu_client.Unknown()
    for event in events:
        state = psu_client.step(state, event)
    return state


TOLD = psu_client.Described((UNION, UNION))


def test_a_union_is_known_once_both_servers_describe_it_and_all_of_it_is_here() -> None:
    assert psu_client.effects(learn()) == ()
    assert psu_client.effects(learn(TOLD)) == tuple(psu_client.Fetch(block) for block in UNION)
    first, second = (psu_client.Downloaded(1, block.name, block.digest) for block in UNION)
    assert psu_client.effects(learn(TOLD, first)) == (psu_client.Fetch(UNION[1]),)
    assert learn(TOLD, first, TOLD) == learn(TOLD, first)
    assert learn(TOLD, second, first) == learn(TOLD, second, first, TOLD) == psu_client.Known(UNION)
    another = (UNION[0], UnionBlock("b", 1, key(3)))
    assert learn(TOLD, second, first, psu_client.Described((another, another))) == psu_client.Told(another, frozenset())


def test_servers_describe_one_union() -> None:
    with pytest.raises(PeerViolationError, match=r"^S0 and S1: describe different unions: a of 3 .* at S0, none at S1"):
        learn(psu_client.Described((UNION, ())))


def test_a_server_sends_the_union_that_both_describe() -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: sent a union of 'a' that is not the announced one"):
        learn(TOLD, psu_client.Downloaded(1, "a", key(2)))


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
