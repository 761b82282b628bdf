"""Every state and event of every protocol machine, reached the way parties reach them, for the tests of the tables."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import bins_of_round
from fsl_async.config import BlockModel, RoundConfig, ServerKeys
from fsl_async.protocols import assembly, entry, epochs, partials, psr, psu, sampling, ssa, toss
from fsl_async.protocols.machine import Event, State, Transitions
from fsl_async.protocols.psr import client as psr_client
from fsl_async.protocols.psu import client as psu_client
from fsl_async.protocols.ssa import client as ssa_client
from fsl_async.union import UnionBlock


def key(number: int) -> bytes:
    """Something of 32 bytes."""
    return bytes([number]) * 32


@dataclass(frozen=True)
class Scene:
    """One machine: an example of each state and event.

    Attributes:
        name: the machine.
        table: its table of accepted events.
        transitions: where each of them may lead.
        step: its step with everything else bound.
        states: one example of every state.
        events: one example of every event; a peer's event says what the states have heard.
        harmless: pairs outside the table that change nothing, as a resend.
    """

    name: str
    table: Mapping[type[State], frozenset[type[Event]]]
    transitions: Transitions
    step: Callable[[Any, Event], State]
    states: Mapping[type[State], State]
    events: Mapping[type[Event], Event]
    harmless: frozenset[tuple[type[State], type[Event]]] = frozenset()


def _scene(
    name: str,
    machine: Any,
    step: Callable[[Any, Event], State],
    states: Iterable[State],
    events: Iterable[Event],
    harmless: Iterable[tuple[type[State], type[Event]]] = (),
) -> Scene:
    """That of a machine's module, which has its tables."""
    by_type = ({type(item): item for item in items} for items in (states, events))
    return Scene(name, machine.ACCEPTS, machine.TRANSITIONS, step, *by_type, frozenset(harmless))


# ---- toss


def toss_halves() -> tuple[toss.Committing, toss.Committing]:
    """Both servers' beginnings of round 3."""
    ours, theirs = toss.Half(0, 3, key(9), key(1), key(2)), toss.Half(1, 3, key(9), key(3), key(4))
    return toss.Committing(ours), toss.Committing(theirs)


def _toss_scene() -> Scene:
    ours, theirs = toss_halves()
    commitment, reveal = toss.PeerTossCommitment(theirs.half.commitment(), key(9)), toss.PeerTossReveal(key(3), key(4))
    revealing = toss.step(ours, commitment, "S1")
    tossed = toss.step(revealing, reveal, "S1")
    return _scene(
        name="toss",
        machine=toss,
        step=lambda state, event: toss.step(state, event, "S1"),
        states=(ours, revealing, tossed),
        events=(commitment, reveal),
        harmless={
            (toss.Revealing, toss.PeerTossCommitment),
            (toss.Tossed, toss.PeerTossCommitment),
            (toss.Tossed, toss.PeerTossReveal),
        },
    )


# ---- sampling


def sampling_terms(server: int = 0, **changes: Any) -> sampling.DrawTerms:
    """A sample of two, both of whom are needed."""
    fields: dict[str, Any] = {"number": 3, "server": server, "sample": 2, "minimum": 2, "most": 9, "secret": key(1)}
    return sampling.DrawTerms(**(fields | changes))


def _sampling_scene() -> Scene:
    s, terms = sampling, sampling_terms()
    asked, heard = ("alice", "bob", "carol"), {s.PeerAsked.said: s.PeerAsked(("alice", "bob")).content()}
    answering = s.Answering(("alice", "bob"), heard)
    return _scene(
        name="sampling",
        machine=s,
        step=lambda state, event: s.step(state, event, terms),
        states=(
            s.Gathering(),
            answering,
            s.Listed(asked),
            s.Drawn(asked, 2, ("alice", "bob"), heard),
            s.TooFew(("alice",), 1, heard),
        ),
        events=(s.Frozen(asked), s.PeerAsked(("alice", "bob"))),
        harmless={(state, s.PeerAsked) for state in (s.Answering, s.Drawn, s.TooFew)},
    )


# ---- partials


def _partials_scene() -> Scene:
    p = partials
    adding = p.step(p.step(p.begin(seal=2), p.Joined("a", 2)), p.Put(("alice", "bob")))
    give = next(effect for effect in p.effects(adding) if isinstance(effect, p.Give))
    events = [
        p.Put(("carol",)),
        p.Joined("b", 2),
        p.Lost("a"),
        p.Doubted("a"),
        p.Leaving("a"),
        p.Added("a", give.order.number, ("alice", "bob"), 2),
        p.Sealed("a", give.partial, 1, frozenset({"alice", "bob"})),
        p.Wanted(frozenset({"alice"})),
    ]
    settling = p.step(adding, p.Wanted(frozenset({"alice", "bob"})))
    return _scene(
        name="partials",
        machine=p,
        step=p.step,
        states=[adding, settling, p.step(p.begin(seal=2), p.Wanted(frozenset()))],
        events=events,
    )


# ---- assembly


def _assembly_scene() -> Scene:
    a = assembly
    return _scene(
        name="assembly",
        machine=a,
        step=a.step,
        states=(
            a.Expecting(),
            a.DirectOnly(key(1)),
            a.PublicOnly(key(1)),
            a.Assembled(key(1)),
            a.Mismatched(key(2), key(3)),
        ),
        events=(a.Direct(key(1)), a.Public(key(1))),
        harmless={(a.DirectOnly, a.Direct), (a.PublicOnly, a.Public), (a.Assembled, a.Direct), (a.Assembled, a.Public)},
    )


# ---- round

ALICE, BOB, CAROL = key(10), key(11), key(12)
TERMS = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True)
OWN_RULE = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True, own_rule=True)
COUNTING = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True, contributors=True)
SEMI_HONEST = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=False)
ENTRIES = {"alice": ALICE, "bob": BOB}
PROOFS = {"alice": key(20), "bob": key(21)}
SHARE, NONCE, PEER_SHARE, PEER_NONCE, OUTCOME = (key(number) for number in range(30, 35))
COUNTS, PEER_COUNTS = key(40), key(41)
PEER_COMMITMENT = ssa.share_commitment(TERMS, 1, ENTRIES, PEER_SHARE, PEER_NONCE)

SUBMITTED = ssa.Submitted("bob", BOB)
PEER_ROSTER = ssa.PeerRoster(ENTRIES)
HAPPY_PATH: tuple[Event, ...] = (
    ssa.Submitted("alice", ALICE),
    SUBMITTED,
    ssa.CloseRound(),
    PEER_ROSTER,
    ssa.Evaluated(PROOFS),
    ssa.PeerProofs(PROOFS),
    ssa.Summed(SHARE, NONCE),
    ssa.PeerCommitment(PEER_COMMITMENT),
    ssa.PeerShare(PEER_SHARE, PEER_NONCE),
    ssa.Applied(OUTCOME),
    ssa.PeerConclusion(OUTCOME),
)


COUNTED = (ssa.RowsCounted(COUNTS), ssa.PeerCounts(PEER_COUNTS))
"""What comes after the proofs where contributors are counted."""


def states_of_a_round() -> list[Any]:
    """Every state of a verified round on S0."""
    states: list[Any] = [ssa.Open()]
    for event in HAPPY_PATH:
        states.append(ssa.step(states[-1], event, TERMS))
    verified = next(state for state in states if isinstance(state, ssa.Verified))
    tallied = ssa.step(verified, COUNTED[0], COUNTING)
    counting = [tallied, ssa.step(tallied, COUNTED[1], COUNTING)]
    closing = ssa.step(ssa.Open({"alice": ALICE}), PEER_ROSTER, TERMS)
    differed = ssa.step(ssa.step(states[-3], ssa.Applied(key(99)), OWN_RULE), HAPPY_PATH[-1], OWN_RULE)
    return [*states, *counting, closing, differed, ssa.step(states[3], ssa.GaveUp("tired"), TERMS)]


def _ssa_scene() -> Scene:
    r = ssa
    after_closing = (r.Rostered, r.Proved, r.Verified, r.Committed, r.Revealed, r.Combined, r.Concluded, r.Done)
    counting = (r.Tallied, r.Chosen)
    heard_in = {
        r.PeerRoster: (r.Closing, *after_closing, *counting),
        r.PeerProofs: (*after_closing[2:], *counting),
        r.PeerCommitment: after_closing[4:],
        r.PeerShare: after_closing[5:],
        r.PeerConclusion: after_closing[7:],
    }
    late = {(r.Differed, event) for event in heard_in}
    late |= {
        (state, event)
        for event in (r.PeerRoster, r.PeerProofs, r.PeerCommitment, r.PeerShare, r.PeerConclusion)
        for state in (*heard_in[event], r.Aborted)
    }

    def step(state: Any, event: Any) -> Any:
        counts = isinstance(state, r.Verified | r.Tallied) and isinstance(event, r.RowsCounted | r.PeerCounts)
        return r.step(state, event, COUNTING if counts else TERMS)

    return _scene(
        name="ssa",
        machine=r,
        step=step,
        states=states_of_a_round(),
        events=(*HAPPY_PATH, *COUNTED, r.GraceOver(), r.GaveUp("tired"), r.PeerAbort("S1 gave up: tired")),
        harmless=late
        | {(state, r.GraceOver) for state in (*after_closing, *counting, r.Differed, r.Aborted)}
        | {(r.Aborted, event) for event in (r.PeerAbort, r.Evaluated, r.RowsCounted, r.PeerCounts, r.Summed)}
        | {(r.Chosen, r.PeerCounts)},
    )


RETRIEVALS = psr.Terms(round_id=key(0), server=0, outcome=OUTCOME)


def _psr_scene() -> Scene:
    r = psr
    closed = r.step(r.Open(), r.CloseRound(), RETRIEVALS)
    concluded = r.step(closed, r.PeerClosed(), RETRIEVALS)
    done = r.step(concluded, r.PeerConclusion(OUTCOME), RETRIEVALS)
    aborted = r.step(closed, r.GaveUp("tired"), RETRIEVALS)
    return _scene(
        name="psr",
        machine=r,
        step=lambda state, event: r.step(state, event, RETRIEVALS),
        states=(r.Open(), closed, concluded, done, aborted),
        events=(
            r.CloseRound(),
            r.PeerClosed(),
            r.PeerConclusion(OUTCOME),
            r.GaveUp("tired"),
            r.PeerAbort("S1 gave up: tired"),
        ),
        harmless={
            (r.Concluded, r.PeerClosed),
            (r.Done, r.PeerClosed),
            (r.Done, r.PeerConclusion),
            (r.Aborted, r.PeerClosed),
            (r.Aborted, r.PeerConclusion),
            (r.Aborted, r.PeerAbort),
        },
    )


# ---- client


def config_of(number: int = 4, **changes: Any) -> RoundConfig:
    """A small round."""
    fields: dict[str, Any] = {
        "task": Task(
            name="t", blocks=(Sparse("a", rows=8, select=2), Dense("d", size=3)), ring=Ring(64), alignment="union"
        ),
        "number": number,
        "session": number,
        "hash_seed": key(1),
        "toss": (key(2), key(3)),
        "servers": (ServerKeys(key(4), key(5)), ServerKeys(key(6), key(7))),
        "model": (BlockModel("a", "f4", key(8)), BlockModel("d", "f8", key(9))),
    }
    fields |= changes
    if "bins" not in fields:
        fields["bins"] = bins_of_round(fields["task"], fields.get("union", ()), fields["model"])
    return RoundConfig(**fields)


def _entry_scene() -> Scene:
    e, config = entry, config_of()
    return _scene(
        name="entry",
        machine=e,
        step=e.step,
        states=(e.Outside(3), e.HalfEntered(3, 0, config), e.Undrawn(config), e.Inside(config)),
        events=(e.Announced(1, config), e.RoundGone(), e.Leave()),
    )


ALLOWED = psr_client.ClientTerms(number=4, retrievals=8)


def _psr_client_scene() -> Scene:
    c, session = psr_client, psr_client.OfSession()
    return _scene(
        name="psr.client",
        machine=c,
        step=c.step,
        states=(
            c.Away(),
            c.Ready(ALLOWED),
            c.Asked(ALLOWED, session),
            c.HalfAnswered(ALLOWED, session, 0),
            c.Interrupted(ALLOWED, session),
            c.Holding(ALLOWED, session),
        ),
        events=(c.Entered(ALLOWED), c.Ask(), c.Recollect(), c.Answered(1, session), c.Interrupt(), c.End()),
    )


def _ssa_client_scene() -> Scene:
    c = ssa_client
    return _scene(
        name="ssa.client",
        machine=c,
        step=c.step,
        states=(c.Away(), c.Ready(), c.Drafted(ALICE), c.HalfReceipted(ALICE, 0), c.Submitted(ALICE), c.Over(ALICE)),
        events=(c.Entered(), c.Submit(ALICE), c.Receipted(1, ALICE), c.Finish(), entry.RoundGone(), entry.Leave()),
    )


def _psu_client_scene() -> Scene:
    c, union = psu_client, (UnionBlock("a", 3, key(1)), UnionBlock("b", 2, key(2)))
    return _scene(
        name="psu.client",
        machine=c,
        step=c.step,
        states=(c.Unknown(), c.Told(union, frozenset({"b"})), c.Known(union)),
        events=(c.Described((union, union)), c.Downloaded(0, "a", key(1))),
    )


# ---- session and alignment


def _epochs_scene() -> Scene:
    s = epochs
    return _scene(
        name="epochs",
        machine=s,
        step=lambda state, event: s.step(state, event, "alice"),
        states=(s.Absent(), s.Planted(5, ALICE), s.Established(3, 4, BOB)),
        events=(s.Brought(5, ALICE), s.Hinted(5, ALICE), s.Counted(5), s.Dropped(5)),
    )


def _psu_scene() -> Scene:
    a = psu
    union = (UnionBlock("a", 3, key(1)),)
    return _scene(
        name="psu",
        machine=a,
        step=a.step,
        states=(a.Everything(), a.Seeking(), a.Aligned(union, stays=False), a.Found(key(2))),
        events=(a.UnionFound(union, stays=False), a.UnionPublished(key(2)), a.UnionLost(), a.MainSettled()),
    )


SCENES = (
    _toss_scene(),
    _sampling_scene(),
    _partials_scene(),
    _assembly_scene(),
    _ssa_scene(),
    _psr_scene(),
    _psu_scene(),
    _entry_scene(),
    _psr_client_scene(),
    _ssa_client_scene(),
    _psu_client_scene(),
    _epochs_scene(),
)
