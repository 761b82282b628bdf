"""A client's side of private submodel retrieval in one round: each query is asked of both servers.

Rules:

- A query's number is used once. A query that failed, was interrupted, or whose number the servers know with other trees
  is followed by one under the next number, in the same round.
- A client holds rows, and trees for its submission, once both servers have answered the query that it has asked.
- The trees of a session are asked for without a number, and as often as the caller likes: the servers have them.
- Nothing is retrieved outside a round, in a round that serves no retrievals, or after a submission.

A restarted client is `Interrupted`: the trees of its last query were its process's alone.

Source: paper §"Basic Protocols" (PSR); design §6, §7.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent
from fsl_async.task import ProtocolName
from fsl_async.wire.messages import NO_RETRIEVAL


class OfSession(msgspec.Struct, frozen=True, tag="OfSession"):
    """Stands in a query's place where the session's trees are asked, which outlive the round."""


QueryId: TypeAlias = int | OfSession
"""The number of a retrieval in its round, from 1 on; or the session's."""


class ClientTerms(msgspec.Struct, frozen=True):
    """What a round allows: its number, how many retrievals a client has in it, and what else it runs."""

    number: int
    retrievals: int
    protocol: ProtocolName = "ssa"

    @staticmethod
    def of(config: RoundConfig) -> ClientTerms:
        """A round's."""
        return ClientTerms(config.number, config.task.retrievals, config.protocol)


class Away(State, frozen=True, tag="Away"):
    """In no round that serves this client's retrievals."""


class Ready(State, frozen=True, tag="Ready"):
    """In a round, and nothing was asked."""

    terms: ClientTerms


class Asked(State, frozen=True, tag="Asked"):
    """A query is on its way."""

    terms: ClientTerms
    query: QueryId


class HalfAnswered(State, frozen=True, tag="HalfAnswered"):
    """One server has answered the query."""

    terms: ClientTerms
    query: QueryId
    server: int


class Interrupted(State, frozen=True, tag="Interrupted"):
    """The last query failed, or was cancelled, or its process ended; its number is used up."""

    terms: ClientTerms
    query: QueryId


class Holding(State, frozen=True, tag="Holding"):
    """Rows were retrieved, and the servers hold the query's trees."""

    terms: ClientTerms
    query: QueryId


Retrieval: TypeAlias = Away | Ready | Asked | HalfAnswered | Interrupted | Holding


class Entered(Event, frozen=True, tag="Entered"):
    """The client has entered a round that serves retrievals."""

    terms: ClientTerms


class Ask(Event, frozen=True, tag="Ask"):
    """The caller wants rows; they are asked for under the next query's number."""


class Recollect(Event, frozen=True, tag="Recollect"):
    """The caller wants the rows of its session."""


class Answered(Event, frozen=True, tag="Answered"):
    """A server has answered the query."""

    server: int
    query: QueryId


class Interrupt(Event, frozen=True, tag="Interrupt"):
    """The query failed, or the caller does not wait for it any more."""


class End(Event, frozen=True, tag="End"):
    """Nothing more is retrieved in this round: it is left, or a submission was made in it."""


RetrievalEvent: TypeAlias = Entered | Ask | Recollect | Answered | Interrupt | End


class Query(msgspec.Struct, frozen=True):
    """Ask a server."""

    server: int
    query: QueryId


MACHINE: Machine[Retrieval] = Machine(Retrieval, RetrievalEvent, initial=(Away,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Retrieval, event: Event) -> Retrieval:
    """Take one event.

    Raises:
        MisuseError: the caller asks for more than the round allows.
        PeerViolationError: a server answers what was not asked.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _enter(state: Away, event: Entered) -> Ready:
    return Ready(event.terms)


@MACHINE.transition
def _ask(state: Ready | Interrupted | Holding, event: Ask) -> Asked:
    last, terms = _last_number(state), state.terms
    if last == terms.retrievals:
        instead = "submit, or ask again" if terms.protocol == "ssa" else "ask again"
        raise MisuseError(
            f"{last} retrievals in one round are the most in this task; {instead} in the next round, which opens when "
            f"round {terms.number} is over"
        )
    return Asked(terms, last + 1)


@MACHINE.transition
def _recollect(state: Ready | Interrupted | Holding, event: Recollect) -> Asked:
    if not isinstance(state, Ready) and state.query != OfSession():
        raise UnexpectedEvent(state, event, ACCEPTS)
    return Asked(state.terms, OfSession())


@MACHINE.transition
def _answer(state: Asked, event: Answered) -> HalfAnswered:
    _check_asked(state, event)
    return HalfAnswered(state.terms, state.query, event.server)


@MACHINE.transition
def _answer_too(state: HalfAnswered, event: Answered) -> Holding:
    _check_asked(state, event)
    if event.server == state.server:
        raise UnexpectedEvent(state, event, ACCEPTS)
    return Holding(state.terms, state.query)


@MACHINE.transition
def _interrupt(state: Asked | HalfAnswered, event: Interrupt) -> Interrupted:
    return Interrupted(state.terms, state.query)


@MACHINE.transition
def _end(state: Ready | Interrupted | Holding, event: End) -> Away:
    return Away()


MACHINE.complete()


def effects(state: Retrieval) -> tuple[Query, ...]:
    """What is still to be asked of which server; a connection that was lost is made anew, and asked again."""
    match state:
        case Asked(query=query):
            return Query(0, query), Query(1, query)
        case HalfAnswered(query=query, server=server):
            return (Query(1 - server, query),)
        case Away() | Ready() | Interrupted() | Holding():
            return ()
        case _:
            assert_never(state)


def may_ask(state: Retrieval) -> bool:
    """Whether the round allows this client another query; false where there is no round."""
    match state:
        case Ready() | Interrupted() | Holding():
            return _last_number(state) < state.terms.retrievals
        case Away() | Asked() | HalfAnswered():
            return False
        case _:
            assert_never(state)


def query_named(number: int) -> QueryId:
    """The query that an answer names: the session's, where it names no retrieval."""
    return OfSession() if number == NO_RETRIEVAL else number


def number_asked(state: Retrieval) -> int:
    """The number of the query that is on its way.

    Raises:
        MisuseError: none is, or it is the session's.
    """
    match state:
        case Asked(query=int(number)):
            return number
    raise MisuseError(f"no retrieval with a number is on its way in state {type(state).__name__}")


def _last_number(state: Ready | Interrupted | Holding) -> int:
    """The number of the round's last query; 0 before the first."""
    match state:
        case Interrupted(query=int(number)) | Holding(query=int(number)):
            return number
        case _:
            return 0


def _check_asked(state: Asked | HalfAnswered, event: Answered) -> None:
    if event.query != state.query:
        asked, answered = (_named(query) for query in (state.query, event.query))
        raise PeerViolationError(f"S{event.server}", f"answered {answered}; {asked} was asked")


def _named(query: QueryId) -> str:
    return f"query {query}" if isinstance(query, int) else "the session's query"
