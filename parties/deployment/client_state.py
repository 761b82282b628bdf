"""The file of a client's state: beside its keys, unless the caller names another one or wants none.

    alice.key    alice.state

Without a state, a client that is started again cannot finish what it has begun, is refused if it submits to the same
round again, repeats retrievals (a round allows only so many), and begins a new session. With a state it resumes. The
file belongs to one identity in one task, and one process at a time has it. It must not be copied, nor restored from a
copy: what a client with a restored state submits again stays hidden from the servers, but may count twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from fsl_async.errors import MisuseError, StorageError
from fsl_async.task import Task
from parties.client.state import check_owner
from parties.files.disk import InUseError
from parties.identity.keys import Identity, PublicIdentity
from parties.settings.party_file import ClientFile
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import MemoryStore, Store

__all__ = ["StateFile", "open_state", "state_beside", "state_file"]

StateFile = str | Path | None
"""A file; empty: the one beside the client's keys; None: the client keeps no state."""

REMEDY = "name another file (state=FILE), or go without one (state=None)"


def state_beside(keys: Path) -> Path:
    """The state's file for a client with this file of keys."""
    return keys.with_suffix(".state")


def state_file(wanted: StateFile, file: ClientFile, identity: str | Path | Identity) -> Path | None:
    """The file of a client's state; None where it keeps none, for instance if its keys come from no file."""
    if wanted is None:
        return None
    if str(wanted):
        return Path(wanted)
    if file.state is not None:
        return file.state
    return None if isinstance(identity, Identity) else state_beside(file.identity)


@asynccontextmanager
async def open_state(place: Path | None, client: PublicIdentity, task: Task) -> AsyncIterator[Store]:
    """A client's state, open; in memory where it keeps none.

    Raises:
        MisuseError: the state is another client's or another task's.
        StorageError: its file cannot be used; `InUseError` where another process of this client has it.
    """
    if place is None:
        yield MemoryStore()
        return
    try:
        store = await SqliteStore.open(place)
    except InUseError as error:
        raise InUseError(
            f"{place}, the state of client {client.name!r}, is in use: a client runs once at a time; wait until the "
            "other one has ended, or stop it"
        ) from error
    except StorageError as error:
        raise type(error)(f"{error}; it is to be the state of client {client.name!r}: {REMEDY}") from error
    async with aclosing(store):
        try:
            await check_owner(store, client, task)
        except MisuseError as error:
            raise MisuseError(f"{place}: {error}; {REMEDY}") from error
        yield store
