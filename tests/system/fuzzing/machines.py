"""Protocol machines driven by bytes: what must hold of them whatever order things happen in.

The first byte chooses a walk of those in `tests.support.machine_walks`, which says what must hold, and each further
byte an event. One that is refused, in one of the ways in which a machine may refuse it, leaves the state as it was.
"""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from types import ModuleType

import msgspec

from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event, PeerEvent, State, UnexpectedEvent
from parties.testing.machines import machines
from tests.support.machine_walks import WALKS

from .parser import FAST, SLOW, Parser

LONGEST = 128
TRIES = 200
"""Inputs that are tried as examples, of which those are taken that lead somewhere new."""


def _steps(machine: ModuleType, data: bytes) -> Iterator[tuple[State, Event, State]]:
    """The steps that bytes lead through, each of them watched."""
    walks = list(WALKS[machine]())
    walk = walks[data[0] % len(walks)] if data else walks[0]
    state, watch = walk.start, walk.watch()
    for byte in data[1:]:
        event, before = walk.events[byte % len(walk.events)], _frozen(state)
        try:
            after = walk.step(state, event)
        except (PeerViolationError, UnexpectedEvent):
            assert _frozen(state) == before
            continue
        except MisuseError:
            assert not isinstance(event, PeerEvent), "what a peer says is no mistake of ours"
            assert _frozen(state) == before
            continue
        if after != state:
            watch(state, event, after)
            yield state, event, after
        state = after


def _frozen(state: State) -> bytes:
    return msgspec.msgpack.encode(state, enc_hook=dict)  # `Entries` are a mapping


def _run(machine: ModuleType, data: bytes) -> None:
    for _ in _steps(machine, data):
        pass


def _examples(machine: ModuleType) -> list[bytes]:
    rng, reached, made = Random(1), set[tuple[type, type, type]](), list[bytes]()
    for _ in range(TRIES):
        data = rng.randbytes(LONGEST)
        kinds = {(type(state), type(event), type(after)) for state, event, after in _steps(machine, data)}
        made += [] if kinds <= reached else [data]
        reached |= kinds
    return made


def _parser(name: str, machine: ModuleType) -> Parser:
    make: Callable[[], list[bytes]] = partial(_examples, machine)
    share = 10 * SLOW if machine is ssa else FAST
    return Parser(f"{name}-machine", partial(_run, machine), make, (), share=share, longest=LONGEST)


PARSERS = tuple(_parser(name, machine) for name, machine in machines().items())
