"""How every subcommand is run: its work ends in a report, an error in one line on stderr and a stable exit code."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

from cyclopts import Parameter

from fsl_async.errors import FslError, leaves, sole
from parties.commands.report import ExitCode, Format, OutOfMemoryError, Report

__all__ = ["FormatFlag", "leaving_nothing_behind", "run", "run_plainly"]

FormatFlag = Annotated[Format, Parameter(name="--format", help="What is written to stdout: text, or one JSON object.")]


def run(report: Report, work: Callable[[], Awaitable[None]]) -> int:
    """Run a subcommand's coroutine; one line and an exit code for every foreseen error."""
    import trio

    return run_plainly(report, lambda: trio.run(work, strict_exception_groups=True))


def run_plainly(report: Report, work: Callable[[], None]) -> int:
    """Run a subcommand's function; one line and an exit code for every foreseen error."""
    try:
        work()
    except BaseException as error:
        reason = sole(error)
        if _is_shortage(reason):
            reason = OutOfMemoryError.of(reason)
        if not isinstance(reason, FslError | KeyboardInterrupt):
            raise
        return report.failure(reason)
    return ExitCode.OK


@contextmanager
def leaving_nothing_behind() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP end the work as Ctrl-C does, so that no unfinished file stays."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_shortage(error: BaseException) -> bool:
    """Whether nothing but a lack of memory is behind an error."""
    return all(isinstance(leaf, MemoryError) for leaf in leaves(error))
