"""A client in one round: private retrieval, then secure submission.

Rules:

- A round is entered only when both servers announce the same configuration; the first field that differs is named.
- In a round that is only for those that were drawn of the clients that asked, both servers say whether this one is.
- A query's number is used once. A retrieval that failed, or whose number the servers know with other trees, is tried
  again under the next number, in the same round.
- One submission per round; it is done only with both servers' receipts for its digest, or with its round's outcome.
  Once it is on its way, a server's statement that the round is gone ends nothing.
- Whether an update rides on a retrieval's trees is decided by the task and by whether there was a retrieval, never by
  the rows themselves.
- A client that is done with a round, or whose round is gone before it submitted, is `Outside` again.

Source: paper §"Basic Protocols" (PSR, SSA); design §6, §9.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent
from fsl_async.wire.messages import NO_RETRIEVAL


class OfSession(msgspec.Struct, frozen=True, tag=True):
    """Stands in a query's place where the session's trees are asked, which outlive the round."""


QueryId: TypeAlias = int | OfSession
"""The number of a retrieval in its round, from 1 on; or the session's."""


class Outside(State, frozen=True):
    """In no round; the next one is the first after number `after`."""

    after: int


class HalfEntered(State, frozen=True):
    """One server has announced its configuration."""

    after: int
    server: int
    config: RoundConfig
    drawn: bool = True


class Undrawn(State, frozen=True):
    """Both servers announced the same configuration, and that this client is not drawn for the round."""

    config: RoundConfig


class Inside(State, frozen=True):
    """Both servers announced the same configuration."""

    config: RoundConfig


class Retrieving(State, frozen=True):
    """A retrieval is on its way, or has failed; `answered` names the servers that have answered it."""

    config: RoundConfig
    query: QueryId
    answered: frozenset[int]


class Holding(State, frozen=True):
    """Rows were retrieved, and the servers hold the retrieval's trees."""

    config: RoundConfig
    query: QueryId


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


ClientRound: TypeAlias = Outside | HalfEntered | Undrawn | Inside | Retrieving | Holding | Submitting | Submitted | Over


class Announced(Event, frozen=True):
    """A server's configuration of an open round, and whether this client may take part in it."""

    server: int
    config: RoundConfig
    drawn: bool = True


class Ask(Event, frozen=True):
    """The caller wants rows; they are asked for under the next query's number."""


class Recollect(Event, frozen=True):
    """The caller wants the rows of its session."""


class Answered(Event, frozen=True):
    """A server has answered the retrieval."""

    server: int
    query: QueryId


class Submit(Event, frozen=True):
    """The caller submits an update, known by its digest."""

    digest: bytes


class Receipted(Event, frozen=True):
    """A server has acknowledged a submission; its signature has been checked."""

    server: int
    digest: bytes


class Finish(Event, frozen=True):
    """Both servers have said how the round ended."""


class RoundGone(Event, frozen=True):
    """A server refused a request because the round is over, and nothing was submitted in it."""


class Leave(Event, frozen=True):
    """The client leaves this round for the next one."""


ClientEvent: TypeAlias = Announced | Ask | Recollect | Answered | Submit | Receipted | Finish | RoundGone | Leave

MACHINE: Machine[ClientRound] = Machine(ClientRound, ClientEvent, initial=(Outside,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: ClientRound, event: Event) -> ClientRound:
    """Take one event.

    Raises:
        MisuseError: the caller asks for more than a round allows.
        PeerViolationError: the servers contradict each other.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _half_enter(state: Outside, event: Announced) -> HalfEntered:
    return HalfEntered(state.after, event.server, event.config, event.drawn)


@MACHINE.transition
def _enter(state: HalfEntered, event: Announced) -> HalfEntered | Undrawn | Inside:
    if event.server == state.server:
        raise UnexpectedEvent(state, event, ACCEPTS)
    if event.config.number > state.config.number:
        return HalfEntered(state.after, event.server, event.config, event.drawn)
    if event.config.number < state.config.number:
        return state  # the other server was a round ahead: this announcement is stale
    difference = first_difference(state.config, event.config)
    if difference is not None:
        field, first, second = difference
        names = (f"S{state.server}", f"S{event.server}")
        raise PeerViolationError(
            " and ".join(sorted(names)),
            f"announce different rounds: {field} is {first} at {names[0]}, {second} at {names[1]}",
        )
    if state.drawn != event.drawn:
        drawn, other = (state.server, event.server) if state.drawn else (event.server, state.server)
        raise PeerViolationError(
            " and ".join(sorted((f"S{drawn}", f"S{other}"))),
            f"contradict each other: S{drawn} says that this client is drawn for round {state.config.number}, S{other} "
            "that it is not",
        )
    return Inside(state.config) if state.drawn else Undrawn(state.config)


@MACHINE.transition
def _ask(state: Inside | Retrieving | Holding, event: Ask) -> Retrieving:
    last = _last_number(state)
    if last == state.config.task.retrievals:
        raise MisuseError(
            f"{last} retrievals in one round are the most in this task; submit, or ask again in the next round, which "
            f"opens when round {state.config.number} is over"
        )
    return Retrieving(state.config, last + 1, frozenset())


@MACHINE.transition
def _recollect(state: Inside | Retrieving | Holding, event: Recollect) -> Retrieving:
    if not isinstance(state, Inside) and state.query != OfSession():
        raise UnexpectedEvent(state, event, ACCEPTS)
    return Retrieving(state.config, OfSession(), frozenset())


@MACHINE.transition
def _answer(state: Retrieving, event: Answered) -> Retrieving | Holding:
    if event.query != state.query:
        asked, answered = (_named(query) for query in (state.query, event.query))
        raise PeerViolationError(f"S{event.server}", f"answered {answered}; {asked} was asked")
    both = state.answered | {event.server}
    return Holding(state.config, state.query) if len(both) == 2 else Retrieving(state.config, state.query, both)


@MACHINE.transition
def _submit(state: Inside | Retrieving | Holding, event: Submit) -> Submitting:
    return Submitting(state.config, event.digest, frozenset())


@MACHINE.transition
def _acknowledge(state: Submitting, event: Receipted) -> Submitting | Submitted:
    if event.digest != state.digest:
        raise PeerViolationError(f"S{event.server}", "acknowledged another submission than the one sent")
    both = state.receipts | {event.server}
    return Submitted(state.config, state.digest) if len(both) == 2 else Submitting(state.config, state.digest, both)


@MACHINE.transition
def _finish(state: Submitting | Submitted, event: Finish) -> Over:
    return Over(state.config.number)


@MACHINE.transition
def _step_back(state: HalfEntered, event: Leave) -> Outside:
    return Outside(state.after)


@MACHINE.transition
def _lose(state: Inside | Retrieving | Holding, event: RoundGone) -> Outside:
    return Outside(state.config.number)


@MACHINE.transition
def _leave(state: Undrawn | Inside | Retrieving | Holding | Submitting | Submitted, event: Leave) -> Outside:
    return Outside(state.config.number)


@MACHINE.transition
def _leave_over(state: Over, event: Leave) -> Outside:
    return Outside(state.number)


def may_ask(state: ClientRound) -> bool:
    """Whether the task allows another retrieval in the round; false where there is no round."""
    match state:
        case Inside() | Retrieving() | Holding():
            return _last_number(state) < state.config.task.retrievals
        case _:
            return False


def query_named(number: int) -> QueryId:
    """The query that an answer names: the session's, where it names no retrieval."""
    return OfSession() if number == NO_RETRIEVAL else number


def number_asked(state: ClientRound) -> int:
    """The number of the retrieval that is on its way.

    Raises:
        MisuseError: none is, or it is the session's.
    """
    match state:
        case Retrieving(query=int(number)):
            return number
    raise MisuseError(f"no retrieval with a number is on its way in state {type(state).__name__}")


def _last_number(state: Inside | Retrieving | Holding) -> int:
    """The number of the round's last retrieval; 0 before the first."""
    match state:
        case Retrieving(query=int(number)) | Holding(query=int(number)):
            return number
        case _:
            return 0


def _named(query: QueryId) -> str:
    return f"query {query}" if isinstance(query, int) else "the session's query"


MACHINE.complete()
