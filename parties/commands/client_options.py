"""The options that all commands of a client share, the connected client that they describe, and what they read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fsl_async.errors import FslError, MisuseError
from parties.commands.report import Report

if TYPE_CHECKING:
    from fsl_async.task import Task
    from parties.client.client import Client


PATIENT_SECONDS = 5.0


class TookTooLongError(FslError):
    """A command did not end within its --timeout; the same command again resumes it."""


@Parameter(name="*")
@dataclass(frozen=True)
class Connecting:
    """The options that every command of a client takes."""

    identity: Annotated[
        Path | None,
        Parameter(
            help="The client's secret key file; by default the one that its TOML file names.",
        ),
    ] = None
    token: Annotated[
        str,
        Parameter(
            help="The token to enrol with, if the servers require one; or @FILE, so that other users of this machine "
            "do not see it. By default the one that the TOML file names."
        ),
    ] = field(default="", repr=False)
    state: Annotated[
        Path | None,
        Parameter(
            help="The file in which this client keeps its state; by default it is beside the keys, alice.state for "
            "alice.key. Never copy it or restore it from a copy."
        ),
    ] = None
    no_state: Annotated[
        bool,
        Parameter(
            negative="",
            help="Keep no state: a killed command cannot be resumed, and a second submission to the same round is "
            "refused.",
        ),
    ] = False
    patience: Annotated[
        float | None, Parameter(help="Seconds to keep trying when a server is away or does not answer.")
    ] = None
    timeout: Annotated[
        float | None,
        Parameter(help="Seconds that the whole command may take; the same command again resumes it."),
    ] = None

    @asynccontextmanager
    async def client(self, config: Path) -> AsyncIterator[Client]:
        """The client, connected, for as long as the command may take.

        Raises:
            MisuseError: the options contradict each other, or a token cannot be read.
            TookTooLongError: the time is over.
            FslError: as `connect`.
        """
        import trio

        from fsl_async import kernels
        from parties.deployment.connecting import connect

        if self.no_state and self.state is not None:
            raise MisuseError("--state and --no-state contradict each other; give one of them")
        if self.timeout is not None and not self.timeout >= 0:
            raise MisuseError(f"timeout: a number of seconds expected, 0 or more, got {self.timeout}")
        state = None if self.no_state else self.state or ""
        undecided = 0
        try:
            deadline = trio.fail_after(float("inf") if self.timeout is None else self.timeout)
            # Kernels plant some hundred thousand rows before they have made up for the second that they take to load.
            with deadline, kernels.plain_unless_chosen():
                async with connect(
                    config, self.identity or "", token=_token(self.token), state=state, patience=self.patience
                ) as client:
                    try:
                        yield client
                    finally:
                        undecided = client.undecided
        except trio.TooSlowError as error:
            again = "" if self.no_state else "; the same command again resumes it"
            late = TookTooLongError(f"not done within {self.timeout:g} s{again}")
            late.in_doubt = undecided
            raise late from error


AS_ITS_FILE_SAYS = Connecting()

ClientFlag = Annotated[Path, Parameter(help="The client's TOML file; or, with --identity, the task file.")]

WaitNextFlag = Annotated[
    bool,
    Parameter(
        negative="",
        help="If this client has already submitted to the open round, wait for the next one; without this option, that "
        "is an error.",
    ),
]


@asynccontextmanager
async def told_what_it_waits_for(report: Report) -> AsyncIterator[None]:
    """Report after some seconds what the command is waiting for."""
    import trio

    async def tell() -> None:
        await trio.sleep(PATIENT_SECONDS)
        report.progress(
            f"fsl-async {report.command}: still waiting for a server that is away or busy (--patience limits that), or "
            "for the next round, as a client submits once in a round. --timeout or Ctrl-C end it, and nothing is lost"
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        yield
        nursery.cancel_scope.cancel()


def _token(option: str) -> str:
    """A token from the command line."""
    try:
        return Path(option[1:]).read_text(encoding="ascii") if option.startswith("@") else option
    except (OSError, ValueError) as error:
        raise MisuseError(f"token: {option[1:]} cannot be read as the file of a token") from error


def rows_from(option: str) -> Any:
    """Rows from the command line."""
    import msgspec
    import numpy as np

    try:
        text = Path(option[1:]).read_bytes() if option.startswith("@") else f"[{option}]"
    except (OSError, ValueError) as error:
        raise MisuseError(f"rows: {option[1:]} cannot be read: {getattr(error, 'strerror', error)}") from error
    try:
        return np.array(msgspec.json.decode(text, type=list[int]), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise MisuseError(f"rows: a list as in 3,17,99 or @FILE with a JSON list expected, got {option!r}") from error


def updates_from(task: Task, arrays: dict[str, Any]) -> dict[str, Any]:
    """A client's updates from the arrays of a file."""
    from fsl_async.ring import RingIntegers
    from fsl_async.task import Dense

    if task.protocol != "ssa":
        does = "only serve retrievals" if task.protocol == "psr" else "only find a union"
        raise MisuseError(
            f"the rounds of task {task.name!r} {does}: nothing is submitted in them (protocol={task.protocol!r})"
        )

    def values(name: str, numbers: str) -> Any:
        elements = f"{name}.elements"
        if numbers in arrays and elements in arrays:
            raise MisuseError(f"update: block {name!r} has both {numbers} and {elements}; one of them expected")
        return arrays[numbers] if numbers in arrays else RingIntegers(arrays[elements])

    updates: dict[str, Any] = {}
    blocks = {key: _block_of(task, key) for key in arrays}
    for name in dict.fromkeys(blocks.values()):
        given = {key for key in arrays if blocks[key] == name}
        if isinstance(task.block(name), Dense):
            if not given <= {name, f"{name}.elements"}:
                raise MisuseError(f"update: block {name!r} is dense and needs {name} alone, without rows")
            updates[name] = values(name, name)
        elif f"{name}.rows" in given and len(given) > 1 and name not in given:
            updates[name] = (arrays[f"{name}.rows"], values(name, f"{name}.values"))
        else:
            raise MisuseError(f"update: block {name!r} is sparse and needs both {name}.rows and {name}.values")
    return updates


def _block_of(task: Task, key: str) -> str:
    """Whose values an array of an update's file holds."""
    if any(block.name == key for block in task.blocks):
        return key
    for ending in (".rows", ".values", ".elements"):
        if key.endswith(ending):
            return key.removesuffix(ending)
    return key
