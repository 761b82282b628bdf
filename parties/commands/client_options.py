"""How a client's commands reach the servers: the words that they all take, and the client that comes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from fsl_async.errors import FslError, MisuseError
from parties.commands.report import Report

if TYPE_CHECKING:
    from parties.client.client import Client

__all__ = ["AS_ITS_FILE_SAYS", "Connecting", "TookTooLongError", "WaitNextFlag", "told_what_it_waits_for"]

PATIENT_SECONDS = 5.0


class TookTooLongError(FslError):
    """A command was not done within the time that it was given; the same command again goes on."""


@Parameter(name="*")
@dataclass(frozen=True)
class Connecting:
    """The words that every command of a client takes."""

    identity: Annotated[
        Path | None,
        Parameter(
            help="The client's secret key file; by default what its own file says, and so for the following.",
        ),
    ] = None
    token: Annotated[
        str,
        Parameter(
            help="To enrol with, where the servers ask for one; or @FILE, which other users of this machine cannot "
            "read."
        ),
    ] = field(default="", repr=False)
    state: Annotated[
        Path | None,
        Parameter(
            help="The file of what this client must remember; by default it lies beside the keys, alice.state beside "
            "alice.key. Never copy it, nor put it back from a copy."
        ),
    ] = None
    no_state: Annotated[
        bool,
        Parameter(
            negative="",
            help="Remember nothing: what a killed command has begun is not finished, and whoever submits to the same "
            "round again is refused.",
        ),
    ] = False
    patience: Annotated[float | None, Parameter(help="Seconds to go on when a server is away or does not answer.")] = (
        None
    )
    timeout: Annotated[
        float | None,
        Parameter(
            help="Seconds for the whole command, whatever it waits for; the same command again goes on where it was."
        ),
    ] = None

    @asynccontextmanager
    async def client(self, config: Path) -> AsyncIterator[Client]:
        """The client, connected, for as long as the command may take.

        Raises:
            MisuseError: the words contradict each other, or a token cannot be read.
            TookTooLongError: the time is over.
            FslError: as `connect`.
        """
        import trio

        from parties.deployment.connecting import connect

        if self.no_state and self.state is not None:
            raise MisuseError("--state and --no-state contradict each other; give one of them")
        if self.timeout is not None and not self.timeout >= 0:
            raise MisuseError(f"timeout: a number of seconds expected, 0 or more, got {self.timeout}")
        state = None if self.no_state else self.state or ""
        undecided = 0
        try:
            with trio.fail_after(float("inf") if self.timeout is None else self.timeout):
                async with connect(
                    config, self.identity or "", token=_token(self.token), state=state, patience=self.patience
                ) as client:
                    try:
                        yield client
                    finally:
                        undecided = client.undecided
        except trio.TooSlowError as error:
            again = "" if self.no_state else "; the same command again goes on where this one was"
            late = TookTooLongError(f"not done within {self.timeout:g} s{again}")
            late.in_doubt = undecided
            raise late from error


AS_ITS_FILE_SAYS = Connecting()

WaitNextFlag = Annotated[
    bool,
    Parameter(
        negative="",
        help="Where this client has submitted to the open round, wait for the next one; without it, say so.",
    ),
]


@asynccontextmanager
async def told_what_it_waits_for(report: Report) -> AsyncIterator[None]:
    """Whoever looks on hears why it takes so long, if it does."""
    import trio

    async def tell() -> None:
        await trio.sleep(PATIENT_SECONDS)
        report.progress(
            f"fsl-async {report.command}: still waiting, for a server that is away or busy, or for the next round: a "
            "client submits once in a round. --patience limits the first, --timeout and Ctrl-C both: nothing is lost"
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        yield
        nursery.cancel_scope.cancel()


def _token(words: str) -> str:
    """A token from the command line."""
    try:
        return Path(words[1:]).read_text(encoding="ascii") if words.startswith("@") else words
    except (OSError, ValueError) as error:
        raise MisuseError(f"token: {words[1:]} cannot be read as the file of a token") from error
