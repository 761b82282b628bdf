"""Write docs/machines.md: every protocol machine's rules, table and diagram, taken from the code itself.

Run it with the environment's python (`make docs`). The machines are those of `parties.testing.machines`, so a new
one appears on the page by itself; tests/test_docs.py fails while the page is out of date.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from fsl_async import protocols
from fsl_async.protocols.machine import Event, PeerEvent, State
from parties.testing.machines import machines

PAGE = Path(__file__).with_name("machines.md")

OPENING = f"""\
# The protocol machines

<!-- Written by docs/generate_machines.py from the code; `make docs` writes it again. -->

{inspect.getdoc(protocols)}

How to read a table: an event that a state does not list raises `UnexpectedEvent` and changes nothing. It is ignored
where it repeats what the state has heard, or comes too late to matter, as in a round that is aborted. An event may lead
to several states; which one depends on what the state holds and what the event says. Events marked ✉ come from the
other server, and at most one content of each is accepted in a round.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([OPENING, *(section(name, module) for name, module in machines().items())])


def _file(module: ModuleType) -> str:
    """Where a machine's table stands, from the checkout's folder."""
    table = importlib.import_module(f"{module.__name__}.transitions") if hasattr(module, "__path__") else module
    return table.__name__.replace(".", "/") + ".py"


def section(name: str, module: ModuleType) -> str:
    """One machine: its prose, its diagram, its states and its events."""
    path = _file(module)
    parts = [
        f"## {name}",
        inspect.getdoc(module),
        diagram(module),
        states(module),
        events(module),
        f"[{path}](../{path})",
    ]
    return "\n\n".join(str(part) for part in parts) + "\n"


def diagram(module: ModuleType) -> str:
    """The transitions as a Mermaid state diagram; events with one source and one target share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), targets in module.TRANSITIONS.items():
        for target in in_order(module, targets):
            arrows.setdefault((state.__name__, target), []).append(event.__name__)
    lines = [f"    [*] --> {state.__name__}" for state in module.MACHINE.initial]
    lines += [f"    {source} --> {target}: {', '.join(causes)}" for (source, target), causes in arrows.items()]
    lines += [f"    {state.__name__} --> [*]" for state, accepted in module.ACCEPTS.items() if not accepted]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def states(module: ModuleType) -> str:
    """The table: every state, what it means, what it accepts and where that leads."""
    rows = [f"| `{state.__name__}` | {summary(state)} | {accepted(module, state)} |" for state in module.ACCEPTS]
    return "\n".join(["| State | | Accepts, and may lead to |", "|---|---|---|", *rows])


def accepted(module: ModuleType, state: type[State]) -> str:
    """One state's events with their successors, in the order of the declaration."""
    lines = [
        f"`{event.__name__}` → {' or '.join(f'`{target}`' for target in in_order(module, targets))}"
        for (source, event), targets in module.TRANSITIONS.items()
        if source is state
    ]
    return "<br>".join(lines) or "nothing more"


def events(module: ModuleType) -> str:
    """Every event and what it means, in the order in which the transitions name them."""
    kinds = dict.fromkeys(event for _, event in module.TRANSITIONS)
    rows = [
        f"| `{event.__name__}`{' ✉' if issubclass(event, PeerEvent) else ''} | {summary(event)} |" for event in kinds
    ]
    return "\n".join(["| Event | |", "|---|---|", *rows])


def in_order(module: ModuleType, targets: frozenset[Any]) -> list[str]:
    """Names of some states in the order in which the machine declares them."""
    return [state.__name__ for state in module.ACCEPTS if state in targets]


def summary(kind: type[State] | type[Event]) -> str:
    """The first line of a docstring, fit for a table."""
    return (inspect.getdoc(kind) or "").partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
