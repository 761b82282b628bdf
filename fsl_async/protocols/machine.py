"""What all protocol machines share: frozen states, rules that are the table, errors that change nothing.

A machine is a module with states, events, a `MACHINE` and its rules, `step` (state, event → state) and, where the party
acts on its own, `effects` (state → what to do). `TRANSITIONS` (where each event may lead from each state) and `ACCEPTS`
(which events a state takes) follow from the signatures of the rules, and so does docs/machines.md:

    MACHINE = Machine(Toss, initial=(Committing,))

    @MACHINE.transition
    def _learn_commitment(state: Committing, event: PeerTossCommitment, peer: str) -> Revealing: ...

    @MACHINE.repetition
    def _said_before(state: Revealing | Tossed, event: PeerTossCommitment | PeerTossReveal, peer: str) -> bool: ...

Rules:

- A state holds exactly what its successors need; an event that a state does not accept raises and nothing has changed.
- A peer's event is remembered by the digest of its content: the same again is harmless, another one is a violation.
- Effects are a function of the state alone, so that a party that restarts performs them again.
- Time, randomness and heavy computation are events and arguments, never calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from fsl_async.errors import FslError, PeerViolationError
from fsl_async.secrecy import Discreet


class State(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all states."""


class Event(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all events; one that is not a `PeerEvent` is local and never decoded from a channel."""


class PeerEvent(Event, frozen=True):
    """An event caused by the peer's message; at most one content of each kind is accepted in a round."""

    said: ClassVar[str]

    def content(self) -> bytes:
        """A digest of what the peer said."""
        raise NotImplementedError


Pair: TypeAlias = tuple[type[State], type[Event]]

Table: TypeAlias = dict[type[State], frozenset[type[Event]]]
"""By state, in the order in which the machine's union names them, the events that it accepts."""

Transitions: TypeAlias = dict[Pair, frozenset[type[State]]]
"""By state and accepted event, the states it may lead to."""

Observe: TypeAlias = Callable[[Any, Event, Any], None]
"""Called with a state, an event, and the state to which it has led."""

StateT = TypeVar("StateT", bound=State)
Rule = TypeVar("Rule", bound=Callable[..., Any])


class Machine(Generic[StateT]):
    """The rules of one machine, by state and event.

    Attributes:
        initial: the states in which it begins.
        transitions: its table, in the order in which the rules are written.
        accepts: the same by state.
    """

    def __init__(self, states: Any, initial: Sequence[type[StateT]]) -> None:
        """Start without rules.

        Args:
            states: the union of the machine's states.
            initial: those in which it begins.
        """
        self.initial = tuple(initial)
        self.transitions: Transitions = {}
        self.accepts: Table = dict.fromkeys(get_args(states), frozenset())
        self._rules: dict[Pair, Callable[..., StateT]] = {}
        self._repetitions: dict[Pair, Callable[..., bool]] = {}
        self._observers: list[Observe] = []

    def transition(self, rule: Rule) -> Rule:
        """Take a rule for the states and events that its first two parameters name; it returns the next state.

        The rule's return annotation is what the table says of it, and the type checker holds the rule to it.
        """
        targets = frozenset(_members(get_type_hints(rule)["return"]))
        for state, event in _register(rule, self._rules):
            self.transitions[state, event] = targets
            self.accepts[state] |= {event}
        return rule

    def repetition(self, rule: Rule) -> Rule:
        """Take a rule that tells whether an event, which is no transition, repeats what the state knows already.

        Such an event changes nothing; where the rule returns false, the event is unexpected.
        """
        _register(rule, self._repetitions)
        return rule

    def step(self, state: StateT, event: Event, *context: Any) -> StateT:
        """Take one event; the context is handed to the rule.

        Raises:
            UnexpectedEvent: the state does not accept the event.
        """
        pair = type(state), type(event)
        if pair in self._rules:
            after = self._rules[pair](state, event, *context)
            for observe in self._observers:
                observe(state, event, after)
            return after
        if pair in self._repetitions and self._repetitions[pair](state, event, *context):
            return state
        raise UnexpectedEvent(state, event, self.accepts)

    @contextmanager
    def observed(self, observe: Observe) -> Iterator[None]:
        """Within this context `observe` is called with every transition: the state, the event, and the next state."""
        self._observers.append(observe)
        try:
            yield
        finally:
            self._observers.remove(observe)


def _register(rule: Callable[..., Any], rules: dict[Pair, Any]) -> list[Pair]:
    """Add a rule for the states and events that its first two parameters name, and return these."""
    states, events, *_ = get_type_hints(rule).values()
    pairs = list(itertools.product(_members(states), _members(events)))
    for state, event in pairs:
        if (state, event) in rules:
            raise TypeError(f"two rules for {event.__name__} in state {state.__name__}")
        rules[state, event] = rule
    return pairs


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


class UnexpectedEvent(FslError):  # noqa: N818 - an event is what it is about, as in the state machines' prose
    """An event that the current state does not accept; nothing has changed."""

    def __init__(self, state: State, event: Event, table: Table) -> None:
        expected = sorted(kind.__name__ for kind in table[type(state)]) or ["nothing more"]
        super().__init__(f"{type(event).__name__} in state {type(state).__name__}, which accepts {', '.join(expected)}")


def recall(heard: Mapping[str, bytes], event: PeerEvent, peer: str) -> bool:
    """Whether the peer has said exactly this before.

    Raises:
        PeerViolationError: it said something else of this kind before.
    """
    before = heard.get(event.said)
    if before is not None and before != event.content():
        raise PeerViolationError(
            peer,
            f"sent two different {event.said}s for one round ({before.hex()[:16]} and {event.content().hex()[:16]})",
        )
    return before is not None


def held_back(waiting: Sequence[Event], event: Event, peer: str) -> list[Event]:
    """The events that are held back, with one more that came too early: one of each kind, so that memory is bounded.

    Raises:
        PeerViolationError: the peer has said something else of this kind before.
    """
    for other in waiting:
        if type(other) is type(event) and other != event:
            said = event.said if isinstance(event, PeerEvent) else type(event).__name__
            raise PeerViolationError(peer, f"sent two different {said}s for one round, and too early")
    return [*waiting, event] if event not in waiting else list(waiting)


def accepted_later(table: Table, state: State, event: Event) -> bool:
    """Whether a state after this one, in the machine's order, accepts the event, so that it can be held back."""
    order = list(table)
    later: list[Any] = order[order.index(type(state)) + 1 :]
    return any(type(event) in table[successor] for successor in later)
