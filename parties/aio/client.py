"""A client on an asyncio loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task
from parties.client import client as under_trio
from parties.client.abstaining import taking_part
from parties.client.arguments import Rows
from parties.client.blocking import ClientAttributes
from parties.client.submission import LastSubmission
from parties.docstrings import documented_by
from parties.outcome import ClientOutcome, PrivacySpent, Retrieved, SubmissionReceipt
from parties.threads import Work

ResultT = TypeVar("ResultT")


class Calls(Protocol):
    """Has a client that lives in another thread do things."""

    async def call(self, work: Work[under_trio.Client, ResultT]) -> ResultT:
        """Have something done, and wait for the result."""

    async def aclose(self) -> None:
        """End the client; a second time does nothing."""

    def forsake(self) -> None:
        """End it without a loop to wait on."""


@dataclass(frozen=True)
class Standing:
    """How a client stands, as its thread saw it when a call had ended."""

    name: str
    task: Task
    pending: int
    undecided: int
    privacy_spent: PrivacySpent | None
    round_number: int
    deferred: Mapping[str, npt.NDArray[np.uint32]]
    left_out: Mapping[str, Sequence[int]]
    unreported: LastSubmission | None
    bytes_sent: int
    bytes_received: int

    @classmethod
    def of(cls, client: under_trio.Client) -> Self:
        """As it is now."""
        now = {each.name: getattr(client, each.name) for each in fields(cls)}
        return cls(**now | {"deferred": dict(client.deferred), "left_out": dict(client.left_out)})


@documented_by(under_trio.Client)
class Client(ClientAttributes):
    """A client whose calls are awaited on an asyncio loop; see `parties.Client` for what they do and raise.

    A call that is cancelled has been cancelled in the client's thread when `CancelledError` comes out; a submission
    that was on its way is then `pending`, and `resume` finishes it. Calls of several tasks take turns. What the
    attributes say was so when the last call ended.

    Args:
        calls: reaches the client where it lives.
        standing: how it stands.
    """

    def __init__(self, calls: Calls, standing: Standing) -> None:
        self._calls = calls
        self._standing = standing

    async def retrieve(self, rows: Rows, *, wait: bool = False) -> Retrieved:
        """See `parties.Client.retrieve`."""
        return await self._call(lambda client: client.retrieve(rows, wait=wait))

    async def submit(
        self,
        updates: Mapping[str, Any],
        *,
        wait: bool = False,
        again: bool = False,
        late: Literal["next"] | None = None,
    ) -> SubmissionReceipt:
        """See `parties.Client.submit`."""
        return await self._call(lambda client: client.submit(updates, wait=wait, again=again, late=late))

    def taking_part(self) -> AbstractAsyncContextManager[None]:
        """See `parties.Client.taking_part`."""
        return taking_part(self.abstain)

    async def abstain(self) -> bool:
        """See `parties.Client.abstain`."""
        return await self._call(lambda client: client.abstain())

    async def unite(self, rows: Mapping[str, npt.ArrayLike], *, wait: bool = False) -> SubmissionReceipt:
        """See `parties.Client.unite`."""
        return await self._call(lambda client: client.unite(rows, wait=wait))

    async def union(self, *, wait: bool = False) -> dict[str, npt.NDArray[np.uint32]]:
        """See `parties.Client.union`."""
        return await self._call(lambda client: client.union(wait=wait))

    async def resume(self) -> SubmissionReceipt:
        """See `parties.Client.resume`."""
        return await self._call(lambda client: client.resume())

    async def outcome(self) -> ClientOutcome:
        """See `parties.Client.outcome`."""
        return await self._call(lambda client: client.outcome())

    async def mark(self, updates: Mapping[str, Any]) -> bytes:
        """See `parties.Client.mark`."""
        return await self._look(lambda client: client.mark(updates))

    async def mark_of_rows(self, rows: Mapping[str, npt.ArrayLike]) -> bytes:
        """See `parties.Client.mark_of_rows`."""
        return await self._look(lambda client: client.mark_of_rows(rows))

    async def mark_reported(self) -> None:
        """See `parties.Client.mark_reported`."""
        await self._call(lambda client: client.mark_reported())

    note_told = mark_reported
    """The earlier name of `mark_reported`."""

    async def forget_rounds(self) -> None:
        """See `parties.Client.forget_rounds`."""
        await self._call(lambda client: client.forget_rounds())

    async def forget_session(self) -> None:
        """See `parties.Client.forget_session`."""
        await self._look(lambda client: client.forget_session())

    async def aclose(self) -> None:
        """Cancel what is under way, and close the connections; a second time does nothing."""
        await self._calls.aclose()

    def forsake(self) -> None:
        """Close it in a task that was dropped with its loop; everywhere else, `aclose`."""
        self._calls.forsake()

    def _read(self, look: Callable[[under_trio.Client], ResultT]) -> ResultT:
        return look(cast(under_trio.Client, self._standing))  # which has the same attributes

    async def _call(self, work: Work[under_trio.Client, ResultT]) -> ResultT:
        return await self._calls.call(partial(self._noted, work))

    async def _look(self, look: Callable[[under_trio.Client], ResultT]) -> ResultT:
        async def work(client: under_trio.Client) -> ResultT:
            return look(client)

        return await self._call(work)

    async def _noted(self, work: Work[under_trio.Client, ResultT], client: under_trio.Client) -> ResultT:
        """Do something in the client's thread, and note how the client stands after it."""
        try:
            return await work(client)
        finally:
            self._standing = Standing.of(client)
