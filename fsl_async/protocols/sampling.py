"""Drawing who takes part in a round: gather who asks, agree on the list, and draw some of it by the toss.

Between the toss and the opening of a round, in tasks that let only some clients take part. Each server gathers the
clients that ask it, freezes its list once and sends it; those on both lists have asked both servers, and the round's
secret says which of them are drawn. Where so few have asked both that those drawn would be fewer than the task's
minimum, the round is opened for nobody, and aborted.

Rules:

- One list per round: a peer's second, different list is a violation. Nobody's list depends on who is drawn.
- A server sends no list of its own accord before enough have asked it, or patience is over; it answers the other's in
  any case.
- The peer's list can take clients out of the draw, and cannot bring one in. A server knows the ranks before it freezes
  its list, so a malicious one takes out whom it does not want: with clients of its own on both lists it has drawn whom
  it likes of those that ask (docs/security.md, §8).

Source: paper §"Federated Submodel Learning" (in each round the parties select n clients);
`fsl_async.options.taking_part`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias, assert_never

from fsl_async.digests import Domain, digest
from fsl_async.options.taking_part import drawn_of, size_of
from fsl_async.protocols.machine import Event, Machine, PeerEvent, State, recall
from fsl_async.wire.messages import AskedList
from fsl_async.wire.peer_lists import pack_names


@dataclass(frozen=True)
class DrawTerms:
    """What is fixed for the whole draw.

    Attributes:
        number: the round's.
        server: 0 or 1.
        sample: how many are drawn, as the task has it.
        minimum: how many the round needs.
        most: how many the task admits.
        secret: ranks the clients.
    """

    number: int
    server: int
    sample: int | float
    minimum: int
    most: int
    secret: bytes = field(repr=False)

    @property
    def peer(self) -> str:
        """The other server's name."""
        return f"S{1 - self.server}"

    def are_enough(self, asked: int) -> bool:
        """Whether so many clients that asked give a sample that can be summed."""
        return size_of(self.sample, asked, self.most) >= max(1, self.minimum)


class Gathering(State, frozen=True, tag="Gathering"):
    """Clients ask."""


class Answering(State, frozen=True, tag="Answering"):
    """The peer has frozen its list; some of its clients may still be on their way to us."""

    theirs: tuple[str, ...]
    heard: dict[str, bytes]


class Listed(State, frozen=True, tag="Listed"):
    """Our list is frozen and sent; the peer's is awaited."""

    ours: tuple[str, ...]


class Drawn(State, frozen=True, tag="Drawn"):
    """Both lists are known, and who is drawn of the `asked` clients on both."""

    ours: tuple[str, ...]
    asked: int
    drawn: tuple[str, ...]
    heard: dict[str, bytes]


class TooFew(State, frozen=True, tag="TooFew"):
    """Both lists are known, and those on both are too few."""

    ours: tuple[str, ...]
    asked: int
    heard: dict[str, bytes]


Sampling: TypeAlias = Gathering | Answering | Listed | Drawn | TooFew


class Frozen(Event, frozen=True, tag="Frozen"):
    """Who has asked this server, sorted: its list, from now on."""

    asked: tuple[str, ...]


class PeerAsked(PeerEvent, frozen=True, tag="PeerAsked"):
    """Who has asked the peer."""

    said: ClassVar[str] = "asker list"
    asked: tuple[str, ...]

    def content(self) -> bytes:
        """The digest of the packed list."""
        return list_digest(self.asked)


SamplingEvent: TypeAlias = Frozen | PeerAsked

MACHINE: Machine[Sampling] = Machine(Sampling, SamplingEvent, initial=(Gathering,), final=(Drawn, TooFew))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


@dataclass(frozen=True)
class Send:
    """Send a message to the peer."""

    message: AskedList
    bulk: bytes


def step(state: Sampling, event: Event, terms: DrawTerms) -> Sampling:
    """Take one event.

    Raises:
        PeerViolationError: the peer sends another list than before.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event, terms)


@MACHINE.transition
def _freeze(state: Gathering, event: Frozen, terms: DrawTerms) -> Listed:
    return Listed(event.asked)


@MACHINE.transition
def _hear_first(state: Gathering, event: PeerAsked, terms: DrawTerms) -> Answering:
    return Answering(event.asked, {event.said: event.content()})


@MACHINE.transition
def _answer(state: Answering, event: Frozen, terms: DrawTerms) -> Drawn | TooFew:
    return _draw(event.asked, state.theirs, state.heard, terms)


@MACHINE.transition
def _hear(state: Listed, event: PeerAsked, terms: DrawTerms) -> Drawn | TooFew:
    return _draw(state.ours, event.asked, {event.said: event.content()}, terms)


@MACHINE.repetition
def _said_before(state: Answering | Drawn | TooFew, event: PeerAsked, terms: DrawTerms) -> bool:
    return recall(state.heard, event, terms.peer)


MACHINE.complete()


def effects(state: Sampling, terms: DrawTerms) -> tuple[Send, ...]:
    """What to send, and after a restart to send again: our list, as long as the peer may lack it."""
    match state:
        case Gathering() | Answering():
            return ()
        case Listed(ours=ours) | Drawn(ours=ours) | TooFew(ours=ours):
            return (Send(AskedList(number=terms.number), pack_names(ours)),)
        case _:
            assert_never(state)


def heard_in(state: Sampling) -> dict[str, bytes]:
    """By what it was, the digest of what the peer has said."""
    return {} if isinstance(state, Gathering | Listed) else state.heard


def sent_in(state: Sampling) -> bytes:
    """The digest of the list that was sent; empty before."""
    return b"" if isinstance(state, Gathering | Answering) else list_digest(state.ours)


def list_digest(names: tuple[str, ...]) -> bytes:
    """The digest of a list of who asked."""
    return digest(Domain.ASKED, pack_names(names))


def _draw(ours: tuple[str, ...], theirs: tuple[str, ...], heard: dict[str, bytes], terms: DrawTerms) -> Drawn | TooFew:
    both = set(ours) & set(theirs)
    if not terms.are_enough(len(both)):
        return TooFew(ours, len(both), heard)
    size = size_of(terms.sample, len(both), terms.most)
    return Drawn(ours, len(both), drawn_of(both, size, terms.secret), heard)
