"""`demo`: what the system does, shown on real text."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

__all__ = ["demo"]


def demo(
    *,
    clients: int = 8,
    rounds: int = 8,
    seed: int = 7,
    transport: Annotated[
        Literal["memory", "tcp"], Parameter(help="memory: one process; tcp: S0, S1 and every client a process.")
    ] = "memory",
    form: FormatFlag = "text",
) -> int:
    """Learn from real text on two servers and several clients, and compare with learning in the clear.

    Parameters
    ----------
    clients:
        How many clients, 2 to 64.
    rounds:
        How many rounds.
    seed:
        Decides the division of the text, and in memory all randomness.
    """
    from parties.commands.demo.run import run_demo

    report = Report("demo", form)
    return run(report, partial(run_demo, clients=clients, rounds=rounds, seed=seed, transport=transport, report=report))
