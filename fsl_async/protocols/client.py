"""A client in one round: private retrieval, then secure submission.

    OUTSIDE ──Announced──> HALF_ENTERED ──Announced──> INSIDE ──Ask──> RETRIEVING ──Answered×2──> HOLDING
                                                         │  (in a session: Recollect)               │ (Ask again)
                                                         └──Submit──> SUBMITTING <──────Submit──────┘
                                          SUBMITTING ──Receipted×2──> SUBMITTED ──Finish──> OVER

Whoever has done with a round leaves it, and so does who has lost it before a submission: Leave and RoundGone lead to
OUTSIDE.

Rules:

- A round is entered only when both servers announce the same configuration; the first field that differs is named.
- A query's number is used once. A retrieval that failed, or whose number the servers know with other trees, goes on
  under the next number, in the same round.
- One submission per round; it is done only with both servers' receipts for its digest, or with its round's outcome.
  Once it is on its way, a server's word that the round is gone ends nothing.
- Whether an update rides on a retrieval's trees is decided by the task and by whether there was a retrieval, never by
  the rows themselves.

Source: paper §"Basic Protocols" (PSR, SSA); design §6, §9.
"""

from __future__ import annotations

from typing import TypeAlias

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols.machine import Event, State, Transitions, UnexpectedEvent, accepts

__all__ = [
    "ACCEPTS",
    "INITIAL",
    "TRANSITIONS",
    "Announced",
    "Answered",
    "Ask",
    "ClientRound",
    "Finish",
    "HalfEntered",
    "Holding",
    "Inside",
    "Leave",
    "Outside",
    "Over",
    "Receipted",
    "Recollect",
    "Retrieving",
    "RoundGone",
    "Submit",
    "Submitted",
    "Submitting",
    "may_ask",
    "step",
]

SESSION = 0
"""Stands for the query whose trees outlive the round."""


class Outside(State, frozen=True):
    """In no round; the next one is the first after number `after`."""

    after: int


class HalfEntered(State, frozen=True):
    """One server has announced its configuration."""

    after: int
    server: int
    config: RoundConfig


class Inside(State, frozen=True):
    """Both servers announced the same configuration."""

    config: RoundConfig


class Retrieving(State, frozen=True):
    """A retrieval is on its way, or has failed; `answered` tells by which servers it has been answered."""

    config: RoundConfig
    query: int
    answered: frozenset[int]


class Holding(State, frozen=True):
    """Rows were retrieved, and the servers hold the retrieval's trees."""

    config: RoundConfig
    query: int


class Submitting(State, frozen=True):
    """A submission is on its way; `receipts` holds the servers that have acknowledged it."""

    config: RoundConfig
    digest: bytes
    receipts: frozenset[int]


class Submitted(State, frozen=True):
    """Both servers have acknowledged the submission."""

    config: RoundConfig
    digest: bytes


class Over(State, frozen=True):
    """The round has ended, and this client knows how."""

    number: int


ClientRound: TypeAlias = Outside | HalfEntered | Inside | Retrieving | Holding | Submitting | Submitted | Over


class Announced(Event, frozen=True):
    """A server's configuration of an open round."""

    server: int
    config: RoundConfig


class Ask(Event, frozen=True):
    """The caller wants rows; the next query's number is taken for it."""


class Recollect(Event, frozen=True):
    """The caller wants the rows of its session."""


class Answered(Event, frozen=True):
    """A server has answered the retrieval."""

    server: int
    query: int


class Submit(Event, frozen=True):
    """The caller submits an update, known by its digest."""

    digest: bytes


class Receipted(Event, frozen=True):
    """A server has acknowledged a submission; its signature has been checked."""

    server: int
    digest: bytes


class Finish(Event, frozen=True):
    """Both servers have told how the round ended."""


class RoundGone(Event, frozen=True):
    """A server refused a request because the round is not open any more, and nothing has been submitted in it."""


class Leave(Event, frozen=True):
    """The client turns to the next round."""


INITIAL: tuple[type[State], ...] = (Outside,)

TRANSITIONS: Transitions = {
    (Outside, Announced): frozenset({HalfEntered}),
    (HalfEntered, Announced): frozenset({HalfEntered, Inside}),
    (HalfEntered, Leave): frozenset({Outside}),
    (Inside, Ask): frozenset({Retrieving}),
    (Inside, Recollect): frozenset({Retrieving}),
    (Inside, Submit): frozenset({Submitting}),
    (Inside, RoundGone): frozenset({Outside}),
    (Inside, Leave): frozenset({Outside}),
    (Retrieving, Answered): frozenset({Retrieving, Holding}),
    (Retrieving, Ask): frozenset({Retrieving}),
    (Retrieving, Recollect): frozenset({Retrieving}),
    (Retrieving, Submit): frozenset({Submitting}),
    (Retrieving, RoundGone): frozenset({Outside}),
    (Retrieving, Leave): frozenset({Outside}),
    (Holding, Ask): frozenset({Retrieving}),
    (Holding, Recollect): frozenset({Retrieving}),
    (Holding, Submit): frozenset({Submitting}),
    (Holding, RoundGone): frozenset({Outside}),
    (Holding, Leave): frozenset({Outside}),
    (Submitting, Receipted): frozenset({Submitting, Submitted}),
    (Submitting, Finish): frozenset({Over}),
    (Submitting, Leave): frozenset({Outside}),
    (Submitted, Finish): frozenset({Over}),
    (Submitted, Leave): frozenset({Outside}),
    (Over, Leave): frozenset({Outside}),
}

ACCEPTS = accepts(ClientRound, TRANSITIONS)


def step(state: ClientRound, event: Event) -> ClientRound:
    """Take one event.

    Raises:
        MisuseError: the caller asks for more than a round allows.
        PeerViolationError: the servers contradict each other.
        UnexpectedEvent: the state does not accept the event.
    """
    match state, event:
        case Outside(after=after), Announced(server=server, config=config):
            return HalfEntered(after, server, config)
        case HalfEntered(server=first), Announced(server=second) if first != second:
            return _enter(state, event)
        case Inside(config=config), Ask():
            return Retrieving(config, 1, frozenset())
        case Retrieving(config=config, query=query) | Holding(config=config, query=query), Ask():
            if not may_ask(state):
                raise MisuseError(
                    f"{query} retrievals in one round are the most in this task; submit, or ask again in the next "
                    f"round, which opens when round {config.number} is over"
                )
            return Retrieving(config, query + 1, frozenset())
        case Inside(config=config) | Retrieving(config=config, query=0) | Holding(config=config, query=0), Recollect():
            return Retrieving(config, SESSION, frozenset())
        case Retrieving(config=config, query=query), Answered(server=server, query=answered):
            if answered != query:
                raise PeerViolationError(f"S{server}", f"answered query {answered}, {query} was asked")
            both = state.answered | {server}
            return Holding(config, query) if len(both) == 2 else Retrieving(config, query, both)
        case Inside(config=config) | Retrieving(config=config) | Holding(config=config), Submit(digest=submission):
            return Submitting(config, submission, frozenset())
        case Submitting(config=config, digest=submission), Receipted(server=server, digest=receipted):
            if receipted != submission:
                raise PeerViolationError(f"S{server}", "acknowledged another submission than the one sent")
            both = state.receipts | {server}
            return Submitted(config, submission) if len(both) == 2 else Submitting(config, submission, both)
        case Submitting(config=config) | Submitted(config=config), Finish():
            return Over(config.number)
        case HalfEntered(after=after), Leave():
            return Outside(after)
        case Inside() | Retrieving() | Holding(), RoundGone() | Leave():
            return Outside(state.config.number)
        case Submitting(config=config) | Submitted(config=config), Leave():
            return Outside(config.number)
        case Over(number=number), Leave():
            return Outside(number)
    raise UnexpectedEvent(state, event, ACCEPTS)


def may_ask(state: ClientRound) -> bool:
    """Whether the round's next retrieval is one of those that the task allows; false where there is no round."""
    match state:
        case Inside():
            return True
        case Retrieving(config=config, query=query) | Holding(config=config, query=query):
            return query < config.task.retrievals
        case _:
            return False


def _enter(state: HalfEntered, event: Event) -> Inside | HalfEntered:
    assert isinstance(event, Announced)  # noqa: S101 - narrowed by the caller's pattern
    if event.config.number != state.config.number:
        # One server was a round ahead; the other's announcement is stale.
        return (
            HalfEntered(state.after, event.server, event.config) if event.config.number > state.config.number else state
        )
    difference = first_difference(state.config, event.config)
    if difference is not None:
        field, first, second = difference
        names = (f"S{state.server}", f"S{event.server}")
        raise PeerViolationError(
            " and ".join(sorted(names)),
            f"announce different rounds: {field} is {first} at {names[0]}, {second} at {names[1]}",
        )
    return Inside(state.config)
