"""A client on an asyncio loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task
from parties.client import client as under_trio
from parties.client.abstaining import taking_part
from parties.client.blocking import ClientAttributes
from parties.client.submission import LastSubmission
from parties.docstrings import documented_by
from parties.outcome import PrivacySpent
from parties.threads import Work

P = ParamSpec("P")
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


def _called(
    method: Callable[Concatenate[under_trio.Client, P], Awaitable[ResultT]],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, ResultT]]:
    """A call of the client that lives in the other thread, awaited here."""

    async def called(self: Client, /, *arguments: P.args, **options: P.kwargs) -> ResultT:
        return await self._call(lambda client: method(client, *arguments, **options))

    return update_wrapper(called, method)


def _looked(
    method: Callable[Concatenate[under_trio.Client, P], ResultT],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, ResultT]]:
    """The same of what that client does at once."""

    async def at_once(client: under_trio.Client, /, *arguments: P.args, **options: P.kwargs) -> ResultT:
        return method(client, *arguments, **options)

    return _called(update_wrapper(at_once, method))


@documented_by(under_trio.Client)
class Client(ClientAttributes):
    """A client whose calls are awaited on an asyncio loop; see `parties.Client` for what they do and raise.

    They are `retrieve`, `submit`, `taking_part`, `abstain`, `unite`, `union`, `resume`, `outcome`, `mark`,
    `mark_of_rows`, `mark_reported`, `forget_rounds` and `forget_session`, with the same arguments; all but
    `taking_part` are awaited.

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

    retrieve = _called(under_trio.Client.retrieve)
    submit = _called(under_trio.Client.submit)
    abstain = _called(under_trio.Client.abstain)
    unite = _called(under_trio.Client.unite)
    union = _called(under_trio.Client.union)
    resume = _called(under_trio.Client.resume)
    outcome = _called(under_trio.Client.outcome)
    mark = _looked(under_trio.Client.mark)
    mark_of_rows = _looked(under_trio.Client.mark_of_rows)
    mark_reported = note_told = _called(under_trio.Client.mark_reported)
    forget_rounds = _called(under_trio.Client.forget_rounds)
    forget_session = _looked(under_trio.Client.forget_session)

    def taking_part(self) -> AbstractAsyncContextManager[None]:
        """See `parties.Client.taking_part`."""
        return taking_part(self.abstain)

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

    async def _noted(self, work: Work[under_trio.Client, ResultT], client: under_trio.Client) -> ResultT:
        """Do something in the client's thread, and note how the client stands after it."""
        try:
            return await work(client)
        finally:
            self._standing = Standing.of(client)
