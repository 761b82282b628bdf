"""Protocol machines driven by bytes: what must hold of them whatever order things happen in.

A byte chooses what happens next, the byte after it between variants. Local events are those that an honest server of
its own would report in that state; what the peer says is anything, also as encoded messages. A machine may refuse an
event in two ways and in no other, and after a refusal its state is what it was.
"""

from collections.abc import Callable
from typing import Any, Union

import msgspec

from fsl_async.errors import PeerViolationError
from fsl_async.protocols import assembly, epochs, sampling, ssa, toss
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Abort, Commitment, Conclusion, FromPeer, Proofs, RosterList, RowCounts, Share
from fsl_async.wire.peer_lists import pack_digests, unpack_digests

from .parser import SLOW, Parser
from .samples import key

NAMES = ("alice", "bob", "carol")
TERMS = (
    ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True),
    ssa.Terms(round_id=key(0), server=1, minimum=2, verified=False),
    ssa.Terms(round_id=key(0), server=1, minimum=2, verified=True, contributors=True),
)
REFUSALS = (PeerViolationError, UnexpectedEvent)
EVENTS: Any = Union[tuple(dict.fromkeys(event for _, event in ssa.TRANSITIONS))]  # noqa: UP007 - from a table


class Bytes:
    """The input, taken byte by byte; zeros follow it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def __bool__(self) -> bool:
        return self._place < len(self._data)

    def take(self) -> int:
        self._place += 1
        return self._data[self._place - 1] if self._place <= len(self._data) else 0

    def take_many(self, count: int) -> bytes:
        self._place += count
        return self._data[self._place - count : self._place]


# ---- a round


def _entries(variant: int) -> dict[str, bytes]:
    """A list of clients: which of them, and whether their digests are the usual ones."""
    return {
        name: key(100 + place + (variant >> 3 + place & 1) * 10)
        for place, name in enumerate(NAMES)
        if variant >> place & 1
    }


def _counted(state: ssa.Round) -> dict[str, bytes]:
    return dict(getattr(state, "counted", {}))


def _counts(state: ssa.Round) -> tuple[bytes, ...]:
    return state.counts if isinstance(state, ssa.Committed | ssa.Revealed | ssa.Combined) else ()


def _proofs(state: ssa.Round, variant: int) -> dict[str, bytes]:
    """A proof for each client of the roster; of some another one than the usual."""
    roster = sorted(getattr(state, "roster", {}))
    return {name: key(200 + (variant >> place & 1)) for place, name in enumerate(roster)}


def _commitment(state: ssa.Round, terms: ssa.Terms, variant: int) -> bytes:
    if variant % 4 == 3:
        return key(variant)
    return ssa.share_commitment(terms, 1 - terms.server, _counted(state), key(variant % 4), key(1), _counts(state))


def _said(data: bytes, peer: str) -> Event:
    """The event that a message of the peer's stands for, as the server takes it."""
    message, bulk = decode(data, FromPeer, peer)
    match message:
        case RosterList():
            return ssa.PeerRoster(unpack_digests(bulk, 6, peer))
        case Proofs():
            return ssa.PeerProofs(unpack_digests(bulk, 6, peer))
        case RowCounts():
            return ssa.PeerCounts(bytes(bulk))
        case Commitment(commitment=commitment):
            return ssa.PeerCommitment(commitment)
        case Share(nonce=nonce):
            return ssa.PeerShare(bytes(bulk), nonce)
        case Conclusion(outcome=outcome):
            return ssa.PeerConclusion(outcome)
        case Abort(explanation=explanation):
            return ssa.PeerAbort(explanation)
    raise PeerViolationError(peer, "says nothing that belongs to a round")


def _round_event(state: ssa.Round, terms: ssa.Terms, source: Bytes) -> Event:
    kind, variant = source.take() % 16, source.take()
    events: tuple[Callable[[], Event], ...] = (
        lambda: ssa.Submitted(NAMES[variant % 3], key(100 + variant % 3 + (variant >> 7) * 10)),
        ssa.CloseRound,
        ssa.GraceOver,
        lambda: ssa.PeerRoster(_entries(variant)),
        lambda: ssa.Evaluated(_proofs(state, variant) if terms.verified else {}),
        lambda: ssa.PeerProofs(_proofs(state, variant) if variant < 128 else _entries(variant)),
        lambda: ssa.Summed(key(40), key(41)),
        lambda: ssa.PeerCommitment(_commitment(state, terms, variant)),
        lambda: ssa.PeerShare(key(variant % 4), key(1)),
        lambda: ssa.Applied(key(50)),
        lambda: ssa.PeerConclusion(key(50 + (variant & 1))),
        lambda: ssa.GaveUp("tired" * variant),
        lambda: ssa.PeerAbort("é" * variant),
        lambda: _said(source.take_many(variant), terms.peer),
        lambda: ssa.RowsCounted(key(60)),
        lambda: ssa.PeerCounts(key(61 + (variant & 1))),
    )
    return events[kind]()


RANK = {kind: place for place, kind in enumerate(ssa.ACCEPTS)}


class _Witness:
    """What one server lets the other one see of a round, and what may never be seen."""

    def __init__(self, terms: ssa.Terms) -> None:
        self._terms = terms
        self._sent: dict[str, bytes] = {}

    def look(self, before: ssa.Round, after: ssa.Round) -> None:
        assert RANK[type(after)] >= RANK[type(before)] or isinstance(before, ssa.Closing)
        if isinstance(after, ssa.Aborted):
            assert not isinstance(before, ssa.Revealed | ssa.Combined | ssa.Concluded | ssa.Done)
        if isinstance(after, ssa.Revealed | ssa.Combined):
            assert len(after.counted) >= self._terms.minimum
        for effect in ssa.effects(after, self._terms):
            match effect:
                case ssa.Send(message=message, bulk=bytes(bulk)):
                    self._once(b"".join(encode(message, bulk)), type(message).__name__)
                case ssa.Send(message=RowCounts(), bulk=ssa.Stored(name=counts)):
                    assert not isinstance(after, ssa.BEFORE_VERIFIED)
                    self._once(counts, "share of the counts")
                case ssa.Sum(counts=counts):
                    assert len(counts) == 2 * self._terms.contributors
                case ssa.Send(message=Share() as message, bulk=ssa.Stored(name=share)):
                    assert not isinstance(after, ssa.BEFORE_REVEALED)
                    self._once(message.nonce + share, "share")
                case _:
                    pass

    def _once(self, said: bytes, kind: str) -> None:
        assert self._sent.setdefault(kind, said) == said, f"two different {kind}s"


def _run_round(data: bytes) -> None:
    source = Bytes(data)
    terms = TERMS[source.take() % 3]
    state: ssa.Round = ssa.Open()
    witness, journal = _Witness(terms), []
    while source:
        try:
            event = _round_event(state, terms, source)
            after = ssa.step(state, event, terms)
        except REFUSALS:
            continue
        if after != state:
            journal.append(msgspec.msgpack.encode(event))
        witness.look(state, after)
        state = after
    _replay(journal, state, terms)


def _replay(journal: list[bytes], reached: ssa.Round, terms: ssa.Terms) -> None:
    """A server that restarts comes to the state where it was."""
    state: ssa.Round = ssa.Open()
    for entry in journal:
        state = ssa.step(state, msgspec.msgpack.decode(entry, type=EVENTS), terms)
    assert state == reached


def _whole_rounds() -> list[bytes]:
    """A round that is done, verified and not, with counts, and one that is aborted."""
    submitted = bytes([0, 0, 0, 1])
    done = bytes([1, 0, 3, 3, 4, 0, 5, 0, 6, 0, 7, 2, 8, 2, 9, 0, 10, 0])
    roster = b"".join(encode(RosterList(key(0)), pack_digests({"alice": key(100)})))
    return [
        bytes([0]) + submitted + done,
        bytes([1]) + submitted + done.replace(bytes([5, 0]), b""),
        bytes([2]) + submitted + done.replace(bytes([6, 0]), bytes([14, 0, 15, 0, 6, 0])),
        bytes([0]) + submitted + bytes([3, 7, 2, 0, 11, 1]),
        bytes([0]) + submitted + bytes([13, len(roster)]) + roster,
    ]


# ---- the smaller machines


def _run(begin: Callable[[], Any], step: Callable[[Any, Event], Any], events: Callable[[Bytes], Event]) -> Any:
    """A parser of bytes into events of a machine; a refusal must leave the state as it was."""

    def run(data: bytes) -> None:
        source, state = Bytes(data), begin()
        while source:
            event, before = events(source), msgspec.msgpack.encode(state, enc_hook=dict)
            try:
                state = step(state, event)
            except REFUSALS:
                assert msgspec.msgpack.encode(state, enc_hook=dict) == before

    return run


HALVES = tuple(toss.Committing(toss.Half(server, 3, key(9), key(server + 1), key(2))) for server in (0, 1))


def _toss_event(source: Bytes) -> Event:
    kind, variant = source.take() % 2, source.take()
    theirs = HALVES[1].half
    if kind:
        return toss.PeerTossReveal(key(2 + variant % 3), source.take_many(variant) if variant > 9 else theirs.nonce)
    commitment = theirs.commitment() if variant % 3 else key(variant)
    return toss.PeerTossCommitment(commitment, key(9) if variant % 5 else key(variant))


def _step_toss(state: toss.Toss, event: Event) -> toss.Toss:
    after = toss.step(state, event, "S1")
    said = toss.effects(after)
    assert len(said) in (1, 2)
    if isinstance(after, toss.Committing):
        assert all(not hasattr(message, "seed") for message in said)
    return after


def _sampling_event(source: Bytes) -> Event:
    kind, variant = source.take() % 2, source.take()
    names = tuple(name for bit, name in enumerate(("alice", "bob", "carol", "dora")) if variant >> bit & 1)
    return (sampling.PeerAsked if kind else sampling.Frozen)(names)


DRAWING = sampling.DrawTerms(number=3, server=0, sample=0.7, minimum=2, most=6, secret=key(1))


def _step_sampling(state: sampling.Sampling, event: Event) -> sampling.Sampling:
    after = sampling.step(state, event, DRAWING)
    assert len(sampling.effects(after, DRAWING)) == bool(sampling.sent_in(after))
    if isinstance(after, sampling.Drawn):
        assert 2 <= len(after.drawn) <= after.asked <= len(after.ours)
        assert set(after.drawn) <= set(after.ours)
    return after


def _assembly_event(source: Bytes) -> Event:
    kind, variant = source.take() % 2, source.take()
    return (assembly.Direct if kind else assembly.Public)(key(variant % 3))


def _step_assembly(state: assembly.Assembly, event: Event) -> assembly.Assembly:
    after = assembly.step(state, event)
    assert (assembly.known_digest(after) == b"") == isinstance(after, assembly.Expecting)
    return after


def _session_event(source: Bytes) -> Event:
    kind, epoch = source.take() % 4, source.take() % 6
    match kind:
        case 0:
            return epochs.Brought(epoch, key(source.take() % 3))
        case 1:
            return epochs.Hinted(epoch, key(source.take() % 3))
        case 2:
            return epochs.Counted(epoch)
        case _:
            return epochs.Dropped(epoch)


def _step_session(state: epochs.Session, event: Event) -> epochs.Session:
    after = epochs.step(state, event, "alice")
    for epoch in _epochs(state):
        assert all(later >= epoch for later in _epochs(after))
    if _epochs(after) == _epochs(state) != []:
        assert getattr(after, "hint", None) == getattr(state, "hint", None), "two hints for one epoch"
    return after


def _epochs(state: epochs.Session) -> list[int]:
    return [state.epoch] if isinstance(state, epochs.Planted | epochs.Established) else []


def _pairs(*pairs: tuple[int, ...]) -> bytes:
    return bytes(number for pair in pairs for number in pair)


PARSERS = (
    Parser("round-machine", _run_round, _whole_rounds, (), share=10 * SLOW, longest=128),
    Parser(
        "toss-machine",
        _run(lambda: HALVES[0], _step_toss, _toss_event),
        lambda: [_pairs((0, 1), (1, 0), (0, 1))],
        (),
        longest=128,
    ),
    Parser(
        "sampling-machine",
        _run(sampling.Gathering, _step_sampling, _sampling_event),
        lambda: [_pairs((0, 7), (1, 6), (1, 6)), _pairs((1, 3), (0, 1))],
        (),
        longest=64,
    ),
    Parser(
        "assembly-machine",
        _run(assembly.Expecting, _step_assembly, _assembly_event),
        lambda: [_pairs((0, 1), (1, 1), (1, 2))],
        (),
        longest=64,
    ),
    Parser(
        "session-machine",
        _run(epochs.Absent, _step_session, _session_event),
        lambda: [_pairs((0, 1, 1), (2, 1), (1, 2, 2), (2, 2))],
        (),
        longest=128,
    ),
)
