"""A request with bulk between its client's connection and what decides about it: bulk stays here, digests go on.

What decides may be in the same process or in another: `CoreCalls` is all that is asked of it. So a server of one
process and a door take bulk by the same code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from fsl_async.errors import StorageError
from fsl_async.wire.messages import FromClient
from parties.events import Observer, Warned
from parties.server.clients.answerer import Begun, BulkRequest, Reply, Room
from parties.server.clients.deposits import Deposit, Depositor, Wanted
from parties.server.refusals import RequestRefusedError
from parties.storage.store import StoreLostError

__all__ = ["CoreCalls", "Depositing", "Granted", "told_of_no_room"]

RETRY_AFTER = 30
"""Seconds after which to ask a server again that cannot store anything: an operator has to make room."""


class Granted(Protocol):
    """A request whose bulk may come.

    Attributes:
        wanted: what its bulk has to be.
    """

    wanted: Wanted

    async def prepare(self, room: Room) -> None:
        """Take what the request needs besides, before its bulk is put: what has no room must leave nothing behind.

        Raises:
            RequestRefusedError: there is no room for its answer.
        """

    async def complete(self, deposit: Deposit, room: Room) -> Reply:
        """Carry the request out, now that its bulk is put; the answer to a request that is refused is the reason.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """

    async def refuse(self, refusal: RequestRefusedError) -> Reply:
        """Give the request up, because its bulk has come and is not taken; the answer is the reason."""


class CoreCalls(Protocol):
    """Decides about clients' requests, and never sees their bulk."""

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, if it has any."""

    def begin(self, client: str, message: BulkRequest, size: int) -> AbstractAsyncContextManager[Granted]:
        """Decide whether a request's bulk may come, before it is read; see `Answerer.begin`."""

    async def ask(self, client: str, message: FromClient, room: Room) -> Reply:
        """Carry out a request that brings no bulk; see `Answerer.ask`."""


class Depositing:
    """Answers clients: takes their bulk, and has all else decided.

    Args:
        core: decides.
        depositor: takes bulk in.
        observe: hears when there is no room for it.
    """

    def __init__(self, core: CoreCalls, depositor: Depositor, observe: Observer) -> None:
        self._core = core
        self._depositor = depositor
        self._observe = observe

    def bulk_sizes(self) -> frozenset[int]:
        """See `Answerer.bulk_sizes`."""
        return self._core.bulk_sizes()

    @asynccontextmanager
    async def begin(self, client: str, message: BulkRequest, size: int) -> AsyncIterator[Begun]:
        """See `Answerer.begin`."""
        async with self._core.begin(client, message, size) as granted:
            yield _Begun(granted, self._depositor, self._observe)

    async def ask(self, client: str, message: FromClient, room: Room) -> Reply:
        """See `Answerer.ask`."""
        return await self._core.ask(client, message, room)


@dataclass(frozen=True)
class _Begun:
    """A request whose bulk may come."""

    granted: Granted
    depositor: Depositor
    observe: Observer

    async def complete(self, bulk: memoryview, room: Room) -> Reply:
        """See `Begun.complete`."""
        try:
            await self.granted.prepare(room)
            deposit = await self.depositor.take(self.granted.wanted, bulk)
        except RequestRefusedError as refusal:
            return await self.granted.refuse(refusal)
        except StoreLostError:
            raise  # whoever cannot store what is acknowledged must end
        except StorageError as error:
            return await self.granted.refuse(told_of_no_room(error, self.observe))
        return await self.granted.complete(deposit, room)


def told_of_no_room(error: StorageError, observe: Observer) -> RequestRefusedError:
    """What a client is told of a server that cannot store, whose operator is told why."""
    observe(Warned(about="store", explanation=str(error)))
    return RequestRefusedError.because("busy", "the server cannot store anything at present", RETRY_AFTER)
