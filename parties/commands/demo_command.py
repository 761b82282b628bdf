"""`demo`: what the system does, shown on real text."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from parties.commands.report import Report, reported


@reported("demo")
async def demo(
    report: Report,
    *,
    clients: int = 8,
    rounds: int = 8,
    seed: int = 7,
    transport: Annotated[
        Literal["memory", "tcp", "unix"],
        Parameter(
            help="memory: all parties in one process; tcp, unix: a process for each server and client, connected over "
            "TCP or over Unix-domain sockets."
        ),
    ] = "memory",
    compute: Annotated[
        Literal["threads", "dask"],
        Parameter(
            help="With --transport tcp, what computes S0's sums: threads of its process; or dask, a scheduler and two "
            "workers of a cluster on this machine."
        ),
    ] = "threads",
) -> None:
    """Train on real text with two servers and several clients, and compare with training in the clear.

    Parameters
    ----------
    clients:
        The number of clients, 2 to 64.
    rounds:
        The number of rounds.
    seed:
        Seed of the division of the text among the clients; with --transport memory, of all randomness.
    """
    from parties.commands.demo.run import run_demo

    sizes = {"clients": clients, "rounds": rounds, "seed": seed}
    await run_demo(**sizes, transport=transport, compute=compute, report=report)
