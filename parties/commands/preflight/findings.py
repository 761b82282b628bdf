"""The result of a check.

A check is a coroutine that returns a line about what is right. Where something is only doubtful it raises `Doubt`;
where the party would not start or work, it raises the kind of error with which the party would end. Each message says
what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import trio

from fsl_async.errors import FslError
from parties.commands.report import ExitCode, exit_code

ValueT = TypeVar("ValueT")

Check: TypeAlias = Callable[[], Awaitable[str]]


class Doubt(Exception):  # noqa: N818 - it is no error
    """Something that works, but should be looked at."""


class Verdict(enum.Enum):
    """How a check ended; the value is its mark."""

    GOOD = "✓"
    DOUBTFUL = "!"
    BAD = "✗"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was checked.
        verdict: how it ended.
        text: what was found, and what to do about it.
        code: the exit code with which the party would end because of this.
    """

    check: str
    verdict: Verdict
    text: str
    code: ExitCode


def in_thread(check: Callable[..., str], *arguments: object) -> Check:
    """A check that is not async, in a thread."""
    return partial(trio.to_thread.run_sync, check, *arguments)


async def found(name: str, check: Check) -> Finding:
    """Carry out a check."""
    try:
        return Finding(name, Verdict.GOOD, await check(), ExitCode.OK)
    except Doubt as doubt:
        return Finding(name, Verdict.DOUBTFUL, str(doubt), ExitCode.OK)
    except FslError as error:
        return Finding(name, Verdict.BAD, str(error), exit_code(error))


def loaded(name: str, load: Callable[[], ValueT], told: Callable[[ValueT], str]) -> tuple[Finding, ValueT | None]:
    """Load what further checks need; `told` says what is right about it. None where it cannot be loaded."""
    value = None
    try:
        value = load()
        return Finding(name, Verdict.GOOD, told(value), ExitCode.OK), value
    except FslError as error:
        return Finding(name, Verdict.BAD, str(error), exit_code(error)), value
