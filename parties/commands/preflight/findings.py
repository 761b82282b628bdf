"""What a check finds.

A check is a coroutine that gives a line about what is right. Where something is merely doubtful it raises `Doubt`;
where the party would not start, or not work, an error of the family that it would end with, whose message says what to
do.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from fsl_async.errors import FslError
from parties.commands.report import ExitCode, exit_code

__all__ = ["Check", "Doubt", "Finding", "Verdict", "found", "passed"]

Check: TypeAlias = Callable[[], Awaitable[str]]


class Doubt(Exception):  # noqa: N818 - it is no error
    """Something that works, and that somebody should look at."""


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
        words: what was found, and where it is not good, what to do.
        code: with which exit code the party would end for this.
    """

    check: str
    verdict: Verdict
    words: str
    code: ExitCode


async def found(name: str, check: Check) -> Finding:
    """Carry out a check."""
    try:
        return Finding(name, Verdict.GOOD, await check(), ExitCode.OK)
    except Doubt as doubt:
        return Finding(name, Verdict.DOUBTFUL, str(doubt), ExitCode.OK)
    except FslError as error:
        return Finding(name, Verdict.BAD, str(error), exit_code(error))


def passed(findings: Iterable[Finding]) -> bool:
    """Whether nothing stands in the way."""
    return all(finding.verdict is not Verdict.BAD for finding in findings)
