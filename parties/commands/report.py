"""What a command says: data on stdout, everything else on stderr, an exit code that scripts can rely on.

With `--format json` stdout carries exactly one JSON object, {"version": 1, "command": …, "result": …}, or instead of
the result {"error": {"code", "kind", "message"}}. The exit codes are stable; docs/exit-codes.md has a section for each.
Every subcommand is run here: its work ends in a report, an error in one line on stderr and an exit code.
"""

from __future__ import annotations

import inspect
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property, partial, wraps
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from cyclopts import Parameter

from fsl_async.errors import (
    ChannelError,
    FslError,
    MisuseError,
    PeerViolationError,
    StorageError,
    WrongAnswerError,
    leaves,
    sole,
)
from fsl_async.foreign_text import printable

if TYPE_CHECKING:
    from rich.console import Console


Format: TypeAlias = Literal["text", "json"]

VERSION = 1


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    MISUSE = 3
    CHANNEL = 4
    PEER = 5
    STORAGE = 6
    ROUND = 7
    SENT = 8
    MEMORY = 9
    INTERRUPTED = 130


class OutOfMemoryError(FslError):
    """The system gave this process no more memory."""

    @staticmethod
    def of(error: BaseException) -> OutOfMemoryError:
        """The error for a failed allocation."""
        error = leaves(error)[0]
        return OutOfMemoryError(
            f"there is not enough memory ({error or 'an allocation failed'}): `fsl-async preflight` tells how much a "
            "server of this task needs; give it more, or take a smaller task. What a server has acknowledged is in its "
            "store, and it resumes from there when it is started again"
        )


def exit_code(error: BaseException) -> ExitCode:
    """The exit code that an error stands for."""
    match error:
        case FslError() if error.in_doubt:
            return ExitCode.SENT
        case MisuseError():
            return ExitCode.MISUSE
        case ChannelError():
            return ExitCode.CHANNEL
        case PeerViolationError() | WrongAnswerError():
            return ExitCode.PEER
        case StorageError():
            return ExitCode.STORAGE
        case OutOfMemoryError():
            return ExitCode.MEMORY
        case FslError():
            return _of_a_round(error)
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
    return ExitCode.INTERNAL


def _of_a_round(error: FslError) -> ExitCode:
    from parties.errors import AlreadyCountedError

    return ExitCode.SENT if isinstance(error, AlreadyCountedError) else ExitCode.ROUND


FLAGS: Final[Mapping[str, str]] = {
    "wait=True": "--wait-next",
    "again=True": "--again",
    "state=FILE": "--state FILE",
    "another state file": "--state FILE",
    "state=None": "--no-state",
    "identity=KEYS": "--identity KEYS",
    "token_file=FILE": "--token-file FILE",
}
"""What errors tell a program to do, and the option that does it on the command line."""


def _as_plain(answer: object) -> Any:
    from msgspec import to_builtins

    return to_builtins(answer)


class Report:
    """Where one command writes."""

    def __init__(self, command: str, form: Format) -> None:
        self.command = command
        self.form = form
        self._failed: BaseException | None = None
        self._written = False

    @cached_property
    def console(self) -> Console:
        """Where progress and errors go: stderr."""
        from rich.console import Console

        return Console(stderr=True)

    def result(self, text: str, result: object) -> None:
        """Write the command's data: the text, or the object that says the same."""
        if self.form == "json":
            self._write({"version": VERSION, "command": self.command, "result": result})
        else:
            sys.stdout.write(text.rstrip("\n") + "\n")
            sys.stdout.flush()

    def progress(self, line: str) -> None:
        """Write a line about what is going on, never broken however long it is."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def usage_error(self, message: str) -> None:
        """Write a usage error as JSON."""
        self._write_error(ExitCode.USAGE, "UsageError", message)

    def failure(self, error: BaseException) -> ExitCode:
        """Write why the command failed, once, and return its exit code."""
        code = exit_code(error)
        if error is self._failed:
            return code
        self._failed = error
        message = str(error) or type(error).__name__
        if named := [flag for words, flag in FLAGS.items() if words in message]:
            message += f" (here: {', '.join(named)})"
        if self.form == "json":
            self._write_error(code, type(error).__name__, message)
        line = f"fsl-async {self.command}: " + printable(" ".join(message.split()))
        self.console.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
        return code

    def _write_error(self, code: ExitCode, kind: str, message: str) -> None:
        told = {"code": code, "kind": kind, "message": message}
        self._write({"version": VERSION, "command": self.command, "error": told})

    def _write(self, envelope: Mapping[str, Any]) -> None:
        if self._written:  # of an error after the result, the exit code and stderr tell
            return
        self._written = True
        json.dump(envelope, sys.stdout, default=_as_plain)
        sys.stdout.write("\n")
        sys.stdout.flush()


FormatFlag = Annotated[Format, Parameter(name="--format", help="What is written to stdout: text, or one JSON object.")]


Work: TypeAlias = Callable[..., Coroutine[Any, Any, ExitCode | None]] | Callable[..., ExitCode | None]


def reported(command: str) -> Callable[[Work], Callable[..., int]]:
    """Make a subcommand of its work, a function or a coroutine that takes a report before the subcommand's arguments.

    The subcommand has the option `--format` besides, and returns an exit code: the work's own, or that of its error.
    """

    def subcommand_of(work: Work) -> Callable[..., int]:
        @wraps(work)
        def subcommand(*arguments: Any, form: Format = "text", **options: Any) -> int:
            report = Report(command, form)
            return run(report, partial(work, report, *arguments, **options))

        signature = inspect.signature(work, eval_str=True)
        own = list(signature.parameters.values())[1:]
        form = inspect.Parameter("form", inspect.Parameter.KEYWORD_ONLY, default="text", annotation=FormatFlag)
        subcommand.__annotations__ = {each.name: each.annotation for each in (*own, form)}
        subcommand.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, form], return_annotation=int
        )
        return subcommand

    return subcommand_of


def run(report: Report, work: Work) -> int:
    """Do the work; one line and an exit code for every foreseen error."""
    try:
        if inspect.iscoroutinefunction(work):
            import trio

            work = partial(trio.run, work, strict_exception_groups=True)
        code: Any = work()
        return code or ExitCode.OK
    except BaseException as error:
        reason = sole(error)
        if all(isinstance(leaf, MemoryError) for leaf in leaves(reason)):
            reason = OutOfMemoryError.of(reason)
        if not isinstance(reason, FslError | KeyboardInterrupt):
            raise
        return report.failure(reason)


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
