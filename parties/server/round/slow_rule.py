"""Word to the operator while a task's own rule takes long: nothing else says why the round does not go on.

A rule has no limit of time. Its thread cannot be stopped, so a server that went on without it would leave it at work on
arrays of the round; and a limit by the clock would pass on one server and not on the other, which are to do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from fsl_async.config import RoundConfig
from fsl_async.error_groups import sole_error
from parties.events import Observer, Warned

ResultT = TypeVar("ResultT")

PATIENCE = 60.0
"""Seconds until the first warning; each further one comes after twice as long a time."""


async def watched(work: Callable[[], Awaitable[ResultT]], config: RoundConfig, observe: Observer) -> ResultT:
    """Do what applies a round's sum by the task's own rule, and warn while it is not done.

    Args:
        work: what is done.
        config: the round's.
        observe: hears the warnings.
    """
    with sole_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_warn, config, observe)
            result = await work()
            nursery.cancel_scope.cancel()
    return result


async def _warn(config: RoundConfig, observe: Observer) -> None:
    pause = waited = PATIENCE
    while True:
        await trio.sleep(pause)
        explanation = (
            f"{config.task.apply} has been at work on the sum of round {config.number} for {waited:,.0f} s; the round "
            "waits until it returns. If it never will, kill this process: that loses nothing, and the rule is called "
            "again when the server is started again"
        )
        observe(Warned(about="apply", explanation=explanation))
        pause, waited = waited, 2 * waited
