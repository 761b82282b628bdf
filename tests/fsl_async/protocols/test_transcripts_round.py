"""Protocol machines as transcripts: an event goes in, a state and what is new among its effects come out."""

from typing import Any

import msgspec
import pytest

from fsl_async import PeerViolationError
from fsl_async.counting import count_of
from fsl_async.errors import MisuseError
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.protocols.ssa import (
    Aborted,
    Applied,
    Apply,
    AwaitGrace,
    Closed,
    CloseRound,
    Closing,
    Combined,
    Committed,
    Concluded,
    Differed,
    Done,
    Evaluate,
    Evaluated,
    GaveUp,
    GraceOver,
    Open,
    PeerAbort,
    PeerCommitment,
    PeerConclusion,
    PeerProofs,
    PeerRoster,
    PeerShare,
    Proved,
    Revealed,
    Rostered,
    Round,
    Send,
    Stored,
    Submitted,
    Sum,
    Summed,
    Terms,
    Verified,
    effects,
    share_commitment,
    step,
)
from fsl_async.wire.messages import Abort, Commitment, Conclusion, Proofs, RosterList, Share
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from tests.support.cases import in_turn
from tests.support.machine_scenes import (
    ALICE,
    BOB,
    CAROL,
    ENTRIES,
    HAPPY_PATH,
    NONCE,
    OUTCOME,
    PEER_COMMITMENT,
    PEER_NONCE,
    PEER_SHARE,
    PROOFS,
    SEMI_HONEST,
    SHARE,
    TERMS,
    key,
)

Line = tuple[Event, type[Any], list[Any]]

ROUND = TERMS.round_id
SEND_ROSTER = Send(RosterList(ROUND), pack_digests(ENTRIES))
SEND_PROOFS = Send(Proofs(ROUND), pack_digests(PROOFS))
SEND_COMMITMENT = Send(Commitment(ROUND, share_commitment(TERMS, 0, ENTRIES, SHARE, NONCE)))
SEND_SHARE = Send(Share(ROUND, NONCE), Stored("share", SHARE))
SEND_CONCLUSION = Send(Conclusion(ROUND, OUTCOME))


def abort(explanation: str) -> Send:
    return Send(Abort(ROUND, explanation))


def play(terms: Terms, state: Round, *lines: Line) -> Round:
    """Take events one by one; after each compare the state's type and the effects that are new, as the actor does."""
    for event, kind, expected in lines:
        before = effects(state, terms)
        state = step(state, event, terms)
        new = [effect for effect in effects(state, terms) if effect not in before]
        assert (type(state), new) == (kind, expected), f"after {event}"
    return state


def reach(kind: type[Any]) -> Any:
    """The first state of that kind on the happy path."""
    state: Round = Open()
    for event in HAPPY_PATH:
        if isinstance(state, kind):
            break
        state = step(state, event, TERMS)
    return state


OPENED: list[Line] = [(Submitted("alice", ALICE), Open, []), (Submitted("bob", BOB), Open, [])]
SUMMED: list[Line] = [
    (Summed(SHARE, NONCE), Committed, [SEND_COMMITMENT]),
    (PeerCommitment(PEER_COMMITMENT), Revealed, [SEND_SHARE]),
    (PeerShare(PEER_SHARE, PEER_NONCE), Combined, [Apply(ENTRIES, {}, SHARE, PEER_SHARE)]),
    (Applied(OUTCOME), Concluded, [SEND_CONCLUSION]),
    (PeerConclusion(OUTCOME), Done, []),
]


# ---- a round that goes well


def test_a_verified_round() -> None:
    play(
        TERMS,
        Open(),
        *OPENED,
        (CloseRound(), Closed, [SEND_ROSTER]),
        (PeerRoster(ENTRIES), Rostered, [Evaluate(ENTRIES)]),
        (Evaluated(PROOFS), Proved, [SEND_PROOFS]),
        (PeerProofs(PROOFS), Verified, [Sum(ENTRIES)]),
        *SUMMED,
    )


def test_a_semi_honest_round_has_no_proofs() -> None:
    play(
        SEMI_HONEST,
        Open(),
        *OPENED,
        (CloseRound(), Closed, [SEND_ROSTER]),
        (PeerRoster(ENTRIES), Rostered, [Evaluate(ENTRIES)]),
        (Evaluated({}), Verified, [Sum(ENTRIES)]),
        *SUMMED,
    )


def test_the_peer_may_close_first() -> None:
    play(TERMS, Open(ENTRIES), (PeerRoster(ENTRIES), Rostered, [SEND_ROSTER, Evaluate(ENTRIES)]))


def test_what_the_peer_has_and_we_have_not_is_waited_for() -> None:
    play(
        TERMS,
        Open({"alice": ALICE}),
        (PeerRoster(ENTRIES), Closing, [AwaitGrace()]),
        (Submitted("bob", BOB), Rostered, [SEND_ROSTER, Evaluate(ENTRIES)]),
        (GraceOver(), Rostered, []),
    )


def test_when_the_grace_is_over_the_rest_is_left_out() -> None:
    three = ENTRIES | {"carol": CAROL}
    state = play(
        TERMS,
        Open(ENTRIES),
        (PeerRoster(three), Closing, [AwaitGrace()]),
        (GraceOver(), Rostered, [SEND_ROSTER, Evaluate(ENTRIES)]),
    )
    assert state == Rostered(ENTRIES, ENTRIES, {"carol": "only_s1"}, {"roster": PeerRoster(three).content()})


def test_while_closing_nobody_else_is_let_in() -> None:
    closing = step(Open({"alice": ALICE}), PeerRoster(ENTRIES), TERMS)
    with pytest.raises(UnexpectedEvent):
        step(closing, Submitted("carol", CAROL), TERMS)
    assert step(closing, Submitted("alice", ALICE), TERMS) == closing


# ---- who is on the roster


def test_the_roster_is_what_both_hold_with_equal_digests() -> None:
    ours = {"alice": ALICE, "bob": BOB, "carol": CAROL, "dave": key(13)}
    theirs = {"alice": ALICE, "bob": BOB, "carol": key(99), "erin": key(14)}
    expected = {"carol": "mismatch", "dave": "only_s0", "erin": "only_s1"}
    on_s0 = step(Closed(ours), PeerRoster(theirs), TERMS)
    on_s1 = step(Closed(theirs), PeerRoster(ours), terms_of(server=1))
    for state in (on_s0, on_s1):
        assert isinstance(state, Rostered)
        assert state.roster == ENTRIES
        assert state.excluded == expected


def terms_of(server: int) -> Terms:
    return Terms(ROUND, server, minimum=2, verified=True)


def test_both_servers_write_down_the_roster_alike() -> None:
    """Whatever the order in which clients came."""
    on_s0 = step(Closed(dict(reversed(ENTRIES.items()))), PeerRoster(ENTRIES), TERMS)
    on_s1 = step(Closed(ENTRIES), PeerRoster(dict(reversed(ENTRIES.items()))), terms_of(server=1))
    assert isinstance(on_s0, Rostered)
    assert isinstance(on_s1, Rostered)
    assert list(on_s0.roster.items()) == list(on_s1.roster.items()) == sorted(ENTRIES.items())


def test_a_proof_that_differs_takes_its_client_out() -> None:
    three = ENTRIES | {"carol": CAROL}
    ours = PROOFS | {"carol": key(22)}
    state = play(
        TERMS,
        Closed(three),
        (PeerRoster(three), Rostered, [Evaluate(three)]),
        (Evaluated(ours), Proved, [Send(Proofs(ROUND), pack_digests(ours))]),
        (PeerProofs(ours | {"carol": key(23)}), Verified, [Sum(ENTRIES)]),
    )
    assert isinstance(state, Verified)
    assert state.excluded == {"carol": "proof"}


# ---- giving up


@pytest.mark.parametrize(
    "theirs", [{}, {"alice": ALICE}, {"alice": ALICE, "bob": CAROL}, {"carol": CAROL, "dave": ALICE}]
)
def test_below_the_minimum_nothing_is_revealed(theirs: dict[str, bytes]) -> None:
    agreed = len({client for client in ENTRIES if theirs.get(client) == ENTRIES[client]})
    explanation = f"{count_of(agreed, 'client is', 'clients are')} in with both servers, at least 2 are needed"
    play(TERMS, Closed(ENTRIES), (PeerRoster(theirs), Aborted, [abort(explanation)]))


def test_too_few_after_the_grace() -> None:
    play(
        TERMS,
        Open({"alice": ALICE}),
        (PeerRoster(ENTRIES), Closing, [AwaitGrace()]),
        (GraceOver(), Aborted, [abort("1 client is in with both servers, at least 2 are needed")]),
    )


def test_too_few_after_verification() -> None:
    play(
        TERMS,
        reach(Proved),
        (
            PeerProofs(PROOFS | {"bob": key(99)}),
            Aborted,
            [abort("1 client is left after verification, at least 2 are needed")],
        ),
    )


@pytest.mark.parametrize("kind", [Open, Closed, Rostered, Proved, Verified])
def test_before_committing_a_server_may_give_up(kind: type[Any]) -> None:
    play(TERMS, reach(kind), (GaveUp("no more power"), Aborted, [abort("S0 gave up: no more power")]))


@pytest.mark.parametrize("kind", [Committed, Revealed, Combined, Concluded, Done])
def test_after_committing_it_may_not(kind: type[Any]) -> None:
    state = reach(kind)
    with pytest.raises(UnexpectedEvent, match=f"GaveUp in state {kind.__name__}"):
        step(state, GaveUp("no more power"), TERMS)


@pytest.mark.parametrize("kind", [Revealed, Combined, Concluded, Done])
def test_once_the_peer_has_committed_its_abort_is_not_heard(kind: type[Any]) -> None:
    with pytest.raises(UnexpectedEvent, match=f"PeerAbort in state {kind.__name__}"):
        step(reach(kind), PeerAbort("S1 gave up: no more power"), TERMS)


@pytest.mark.parametrize("kind", [Open, Closed, Rostered, Proved, Verified, Committed])
def test_both_servers_tell_one_reason(kind: type[Any]) -> None:
    """A peer that gave up before it committed is followed, even by a server that has committed: nothing is revealed."""
    gave_up = step(Open(), GaveUp("no more power"), terms_of(server=1))
    (told,) = effects(gave_up, terms_of(server=1))
    assert isinstance(told, Send)
    assert isinstance(told.message, Abort)
    assert step(reach(kind), PeerAbort(told.message.explanation), TERMS) == gave_up


@pytest.mark.parametrize("kind", [Open, Closed, Rostered, Proved, Verified, Committed])
def test_who_gives_up_says_why(kind: type[Any]) -> None:
    """In a round's account an empty reason means that the round is done, and this one never will be."""
    state = reach(kind)
    with pytest.raises(PeerViolationError, match="S1: aborted the round and does not say why"):
        step(state, PeerAbort(""), TERMS)


def test_a_long_reason_is_cut_to_what_a_message_may_carry() -> None:
    state = step(Open(), GaveUp("Strömungsabriss " * 40), TERMS)
    assert isinstance(state, Aborted)
    assert 250 <= len(state.explanation.encode()) <= 256
    assert state.explanation.startswith("S0 gave up: Strömungsabriss Strömungsabriss")


@pytest.mark.parametrize("proofs", [{}, {name: PROOFS[name] for name in [*PROOFS][1:]}, PROOFS | {"mallory": key(1)}])
def test_an_evaluation_is_of_the_roster(proofs: dict[str, bytes]) -> None:
    with pytest.raises(MisuseError, match="clients on the roster expected, and of nobody else"):
        step(reach(Rostered), Evaluated(proofs), TERMS)


def test_results_of_work_that_was_under_way_are_dropped() -> None:
    aborted = Aborted("S1 gave up")
    for event in (Evaluated(PROOFS), Summed(SHARE, NONCE), GraceOver(), *HAPPY_PATH[3:4], PeerCommitment(BOB)):
        assert step(aborted, event, TERMS) == aborted


# ---- a peer, or a client, that breaks the protocol

SECOND: dict[str, tuple[Event, Event, type[Any]]] = {
    "roster": (PeerRoster(ENTRIES), PeerRoster({"alice": ALICE, "carol": CAROL}), Rostered),
    "proof list": (PeerProofs(PROOFS), PeerProofs(PROOFS | {"bob": key(99)}), Verified),
    "commitment": (PeerCommitment(PEER_COMMITMENT), PeerCommitment(key(99)), Revealed),
    "share": (PeerShare(PEER_SHARE, PEER_NONCE), PeerShare(key(99), PEER_NONCE), Combined),
    "conclusion": (PeerConclusion(OUTCOME), PeerConclusion(key(99)), Done),
}
LATER = [Rostered, Proved, Verified, Committed, Revealed, Combined, Concluded, Done]


@in_turn("said, kind", [(said, kind) for said, (_, _, first) in SECOND.items() for kind in LATER[LATER.index(first) :]])
def test_a_second_word_is_a_violation_and_a_repeated_one_harmless(said: str, kind: type[Any]) -> None:
    first, second, _ = SECOND[said]
    state = reach(kind)
    assert step(state, first, TERMS) is state
    with pytest.raises(PeerViolationError, match=f"^S1: sent two different {said}s for one round") as violation:
        step(state, second, TERMS)
    assert violation.value.peer == "S1"


def test_another_roster_while_closing_is_a_violation() -> None:
    closing = step(Open({"alice": ALICE}), PeerRoster(ENTRIES), TERMS)
    with pytest.raises(PeerViolationError, match="two different rosters"):
        step(closing, PeerRoster({"alice": ALICE}), TERMS)


@pytest.mark.parametrize(
    "share",
    [
        PeerShare(key(99), PEER_NONCE),
        PeerShare(PEER_SHARE, key(99)),
        PeerShare(PEER_NONCE, PEER_SHARE),
        PeerShare(SHARE, NONCE),
        PeerShare(b"", b""),
    ],
)
def test_a_share_that_does_not_match_its_commitment_halts(share: PeerShare) -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: revealed a share that does not match its commitment"):
        step(reach(Revealed), share, TERMS)


def test_our_own_commitment_sent_back_opens_nothing() -> None:
    ours = share_commitment(TERMS, 0, ENTRIES, SHARE, NONCE)
    revealed = step(reach(Committed), PeerCommitment(ours), TERMS)
    with pytest.raises(PeerViolationError, match="does not match its commitment"):
        step(revealed, PeerShare(SHARE, NONCE), TERMS)


def test_a_commitment_is_bound_to_round_server_roster_share_and_nonce() -> None:
    other_round = Terms(key(1), 0, 2, verified=True)
    commitments = {
        share_commitment(TERMS, 0, ENTRIES, SHARE, NONCE),
        share_commitment(TERMS, 1, ENTRIES, SHARE, NONCE),
        share_commitment(other_round, 0, ENTRIES, SHARE, NONCE),
        share_commitment(TERMS, 0, ENTRIES, NONCE, SHARE),
        share_commitment(TERMS, 0, ENTRIES, SHARE, SHARE),
        share_commitment(TERMS, 0, {"alice": ALICE}, SHARE, NONCE),
    }
    assert len(commitments) == 6


@pytest.mark.parametrize("proofs", [{}, {"alice": key(20)}, PROOFS | {"carol": key(22)}])
def test_proofs_speak_of_exactly_the_roster(proofs: dict[str, bytes]) -> None:
    with pytest.raises(PeerViolationError, match="sent proofs for other clients than the agreed roster's"):
        step(reach(Proved), PeerProofs(proofs), TERMS)


def test_outcomes_must_agree() -> None:
    with pytest.raises(PeerViolationError, match="arrived at another outcome from the same shares"):
        step(reach(Concluded), PeerConclusion(key(99)), TERMS)


def test_outcomes_of_an_own_rule_may_differ() -> None:
    """Then nothing is applied; the peer may still lack our word, so it stays among the effects."""
    terms = Terms(TERMS.round_id, 0, 2, verified=True, own_rule=True)
    differed = step(reach(Concluded), PeerConclusion(key(99)), terms)
    assert differed == Differed(OUTCOME, key(99), differed.heard)
    assert effects(differed, terms) == (SEND_CONCLUSION,)
    assert step(differed, PeerConclusion(key(99)), terms) is differed
    with pytest.raises(PeerViolationError, match="sent two different conclusions for one round"):
        step(differed, PeerConclusion(OUTCOME), terms)
    assert isinstance(step(reach(Concluded), PeerConclusion(OUTCOME), terms), Done)
    for outcome in (b"", b"x" * 60_000):  # nothing of any length is kept, and shown as a digest
        with pytest.raises(PeerViolationError, match="bytes, which are no digest"):
            step(reach(Concluded), PeerConclusion(outcome), terms)


def test_a_client_submits_once() -> None:
    state = step(Open(), Submitted("alice", ALICE), TERMS)
    assert step(state, Submitted("alice", ALICE), TERMS) == state
    with pytest.raises(PeerViolationError, match=r"^alice: submitted twice, with different content"):
        step(state, Submitted("alice", BOB), TERMS)


# ---- what a restarted server does

RESENT = [
    (Open, []),
    (Closed, [SEND_ROSTER]),
    (Rostered, [SEND_ROSTER, Evaluate(ENTRIES)]),
    (Proved, [SEND_ROSTER, SEND_PROOFS]),
    (Verified, [SEND_ROSTER, SEND_PROOFS, Sum(ENTRIES)]),
    (Committed, [SEND_ROSTER, SEND_PROOFS, SEND_COMMITMENT]),
    (Revealed, [SEND_COMMITMENT, SEND_SHARE]),
    (Combined, [SEND_SHARE, Apply(ENTRIES, {}, SHARE, PEER_SHARE)]),
    (Concluded, [SEND_SHARE, SEND_CONCLUSION]),
    (Done, [SEND_CONCLUSION]),
]


@pytest.mark.parametrize(("kind", "expected"), RESENT)
def test_effects_are_what_a_restarted_server_performs(kind: type[Any], expected: list[Any]) -> None:
    """From the stored state alone."""
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(reach(kind), enc_hook=dict), type=kind)
    assert list(effects(stored, TERMS)) == expected
    assert effects(stored, TERMS) == effects(stored, TERMS)


# ---- lists on the wire


def test_lists_are_canonical() -> None:
    entries = {"bob": BOB, "alice": ALICE, "zoë": CAROL}
    packed = pack_digests(entries)
    assert packed == pack_digests(dict(reversed(entries.items())))
    assert unpack_digests(packed, 3, "S1") == entries
    assert unpack_digests(memoryview(pack_digests({})), 1, "S1") == {}


MALFORMED = {
    "nothing": b"",
    "a map": b"\x80",
    "a number": b"\x01",
    "trailing bytes": pack_digests(ENTRIES) + b"\x00",
    "the wrong order": b"\x92" + pack_digests({"bob": BOB})[1:] + pack_digests({"alice": ALICE})[1:],
    "one client twice": b"\x92" + 2 * pack_digests({"bob": BOB})[1:],
    "a short digest": pack_digests({"alice": ALICE[1:]}),
    "a long digest": pack_digests({"alice": ALICE + b"x"}),
    "text for a digest": pack_digests({"alice": "A" * 44}),  # type: ignore[dict-item]
    "bytes for a name": pack_digests({b"alice": ALICE}),  # type: ignore[dict-item]
    "four clients": pack_digests({str(i): ALICE for i in range(4)}),
    "another encoding of the length": b"\xdc\x00\x01" + pack_digests({"alice": ALICE})[1:],
}


@in_turn("data", MALFORMED.values())
def test_malformed_lists_are_violations(data: bytes) -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: sent a list of clients that"):
        unpack_digests(data, 3, "S1")


def test_every_cut_of_a_list_is_refused() -> None:
    whole = pack_digests(ENTRIES)
    for length in range(len(whole)):
        with pytest.raises(PeerViolationError):
            unpack_digests(whole[:length], 3, "S1")
