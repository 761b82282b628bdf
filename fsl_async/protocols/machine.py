"""What all protocol machines share: frozen states, rules that are the table, errors that change nothing.

A machine is a module with states, events, a `MACHINE` and its rules, `step` (state, event → state) and, where the party
acts on its own, `effects` (state → what to do). `TRANSITIONS` (where each event may lead from each state) and `ACCEPTS`
(which events a state takes) follow from the signatures of the rules, and so does docs/machines.md:

    MACHINE = Machine(Toss, TossEvent, initial=(Committing,), final=(Tossed,))

    @MACHINE.transition
    def _learn_commitment(state: Committing, event: PeerTossCommitment, peer: str) -> Revealing: ...

    @MACHINE.repetition
    def _said_before(state: Revealing | Tossed, event: PeerTossCommitment | PeerTossReveal, peer: str) -> bool: ...

    MACHINE.complete()

A machine of your own is built in the same way. A case that its table lacks is refused when its module is imported.

Rules:

- A state holds exactly what its successors need; an event that a state does not accept raises and nothing has changed.
- A peer's event is remembered by the digest of its content: the same again is harmless, another one is a violation.
- Effects are a function of the state alone, so that a party that restarts performs them again.
- Time, randomness and heavy computation are events and arguments, never calls.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from fsl_async.errors import FslError, PeerViolationError
from fsl_async.secrecy import Discreet

__all__ = ["Event", "Machine", "PeerEvent", "State", "UnexpectedEvent", "recall"]


class State(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all states: frozen, compared and stored by its fields.

        class Revealing(State, frozen=True, tag="Revealing"):
            peer_seal: bytes

    A store names it by its `tag`, so that the class can be renamed; without one the class's name is stored.
    A field that is named in `hidden` is not printed.
    """


class Event(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all events: frozen, compared and stored by its fields, as states are.

    One that is not a `PeerEvent` is local and never decoded from a channel.
    """


class PeerEvent(Event, frozen=True):
    """An event caused by the peer's message; at most one content of each kind is accepted in a round.

    `said` names it in error messages, and `content` is what `recall` compares.
    """

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

        MACHINE = Machine(Toss, TossEvent, initial=(Committing,), final=(Tossed,))

        @MACHINE.transition
        def _take_half(state: Revealing, event: PeerTossReveal, peer: str) -> Tossed: ...

        MACHINE.complete()      # the last line of the module

    Mistakes in a table are refused where they are written, when the module is imported: with its decorator a rule whose
    annotations are missing, or name what is not in the unions; by `complete` a case that is lacking.

    Attributes:
        initial: the states in which it begins.
        final: the states in which it ends: they accept nothing more.
        transitions: its table, in the order in which the rules are written.
        accepts: the same by state.
        states: all states, in the order of their union.
        events: all events, in the order of their union.
    """

    def __init__(
        self, states: Any, events: Any, initial: Sequence[type[StateT]], final: Sequence[type[StateT]] = ()
    ) -> None:
        """Start without rules.

        Args:
            states: the union of the machine's states.
            events: the union of its events.
            initial: the states in which it begins, one at least.
            final: those in which it ends.

        Raises:
            TypeError: a member of the unions is no state or no event, or the machine begins or ends in none of them.
        """
        self.states: tuple[type[StateT], ...] = _members(states)
        self.events: tuple[type[Event], ...] = _members(events)
        self.initial, self.final = tuple(initial), tuple(final)
        _require(self.states, State, "a state", "derive it from `State`, frozen=True")
        _require(self.events, Event, "an event", "derive it from `Event` or `PeerEvent`, frozen=True")
        if not initial:
            raise TypeError("a machine begins somewhere: name at least one state in initial=(…,)")
        for state in (*initial, *final):
            self._require_known(state, self.states, "state")
        self.transitions: Transitions = {}
        self.accepts: Table = dict.fromkeys(self.states, frozenset())
        self._rules: dict[Pair, Callable[..., StateT]] = {}
        self._repetitions: dict[Pair, Callable[..., bool]] = {}
        self._observers: list[Observe] = []
        self._complete = False

    def transition(self, rule: Rule) -> Rule:
        """Take a rule for the states and events that its first two parameters name; it returns the next state.

        The rule's return annotation is what the table says of it, and the type checker holds the rule to it.

        Raises:
            TypeError: an annotation is missing or names what is not of this machine, or there is such a rule already.
        """
        pairs, returned = self._read(rule)
        for state in returned:
            self._require_known(state, self.states, "state", rule)
        _register(rule, pairs, self._rules)
        for pair in pairs:
            self.transitions[pair] = frozenset(returned)
            self.accepts[pair[0]] |= {pair[1]}
        self._complete = False
        return rule

    def repetition(self, rule: Rule) -> Rule:
        """Take a rule that tells whether an event, which is no transition, repeats what the state knows already.

        Such an event changes nothing; where the rule returns false, the event is unexpected.

        Raises:
            TypeError: as for `transition`, or the rule is not declared to return a bool.
        """
        pairs, returned = self._read(rule)
        if returned != (bool,):
            raise TypeError(f"{_place(rule)}: a repetition tells whether the event is one; declare `-> bool`")
        _register(rule, pairs, self._repetitions)
        return rule

    def complete(self) -> None:
        """Declare that all rules are written, and check that no case is lacking: the last line of a machine's module.

        Raises:
            TypeError: a state accepts nothing and is not final, a final one accepts something, no rules lead from
                where the machine begins to a state, or no state accepts an event; the message names all of them.
        """
        reached = self._reached()
        taken = {event for _, event in self.transitions}
        lacking = [
            *(
                f"{state.__name__} accepts no event: write a rule, or name it in final=(…,)"
                for state in self.states
                if not self.accepts[state] and state not in self.final
            ),
            *(f"{state.__name__} is final and has rules" for state in self.final if self.accepts[state]),
            *(f"no rule leads to {state.__name__}" for state in self.states if state not in reached),
            *(f"no state accepts {event.__name__}" for event in self.events if event not in taken),
        ]
        if lacking:
            raise TypeError(f"the machine in {self.states[0].__module__} lacks cases: {'; '.join(lacking)}")
        self._complete = True

    def step(self, state: StateT, event: Event, *context: Any) -> StateT:
        """Take one event; the context is handed to the rule.

        Raises:
            UnexpectedEvent: the state does not accept the event.
            TypeError: the machine was not declared complete.
        """
        pair = type(state), type(event)
        if not self._complete:
            raise TypeError(f"end {self.states[0].__module__} with a call of the machine's `complete()`")
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

    def _reached(self) -> set[type[State]]:
        """The states to which rules lead from the initial ones."""
        reached: set[type[State]] = set(self.initial)
        while True:
            further = reached.union(*(after for pair, after in self.transitions.items() if pair[0] in reached))
            if further == reached:
                return reached
            reached = further

    def _read(self, rule: Callable[..., Any]) -> tuple[list[Pair], tuple[Any, ...]]:
        """The states and events that a rule is for, and the types that it returns."""
        parameters, hints = list(inspect.signature(rule).parameters), get_type_hints(rule)
        if len(parameters) < 2:
            raise TypeError(f"{_place(rule)}: a rule takes a state, an event, and after them its context")
        for name in (*parameters[:2], "return"):
            if name not in hints:
                what = "what it returns" if name == "return" else f"the parameter {name!r}"
                raise TypeError(f"{_place(rule)}: annotate {what}; the machine's table is made from annotations")
        states, events, returned = (_members(hints[name]) for name in (*parameters[:2], "return"))
        for state in states:
            self._require_known(state, self.states, "state", rule)
        for event in events:
            self._require_known(event, self.events, "event", rule)
        return list(itertools.product(states, events)), returned

    @staticmethod
    def _require_known(kind: Any, known: Sequence[type], word: str, rule: Callable[..., Any] | None = None) -> None:
        if kind not in known:
            name, names = getattr(kind, "__name__", repr(kind)), " | ".join(each.__name__ for each in known)
            where = f"{_place(rule)}: " if rule else ""
            raise TypeError(f"{where}{name} is no {word} of this machine, whose {word}s are {names}")


def _register(rule: Callable[..., Any], pairs: Sequence[Pair], rules: dict[Pair, Any]) -> None:
    for state, event in pairs:
        if (state, event) in rules:
            raise TypeError(
                f"{_place(rule)}: two rules for {event.__name__} in state {state.__name__}; "
                f"the other is {rules[state, event].__name__}"
            )
        rules[state, event] = rule


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _require(kinds: Sequence[Any], base: type, word: str, remedy: str) -> None:
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise TypeError(f"{getattr(kind, '__name__', kind)} is not {word}; {remedy}")


def _place(rule: Callable[..., Any]) -> str:
    return f"{rule.__module__}.{rule.__qualname__}"


class UnexpectedEvent(FslError):  # noqa: N818 - an event is what it is about, as in the state machines' prose
    """An event that the current state does not accept; nothing has changed.

    The message names the event, the state, and what the state accepts.
    """

    def __init__(self, state: State, event: Event, table: Table) -> None:
        expected = sorted(kind.__name__ for kind in table[type(state)]) or ["nothing more"]
        super().__init__(f"{type(event).__name__} in state {type(state).__name__}, which accepts {', '.join(expected)}")


def recall(heard: Mapping[str, bytes], event: PeerEvent, peer: str) -> bool:
    """Whether the peer has said exactly this before.

    Args:
        heard: by `said`, the contents of what it has said so far; the state keeps it.
        event: what it says now.
        peer: whom to name if it says something else.

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
