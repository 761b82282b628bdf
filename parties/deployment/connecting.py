"""A client of deployed servers, made from its own file, or from the task file and its keys.

Its state is in a file beside its keys, unless the caller names another one or wants none.

    alice.key    alice.state

Without a state, a client that is started again cannot finish what it has begun, is refused if it submits to the same
round again, repeats retrievals (a round allows only so many), and begins a new session. With a state it resumes. The
file belongs to one identity in one task, and one process at a time has it. It must not be copied, nor restored from a
copy: what a client with a restored state submits again stays hidden from the servers, but may count twice.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

from fsl_async.errors import MisuseError, StorageError
from fsl_async.task import Task
from parties.client.blocking import BlockingClient
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.client.state import check_owner
from parties.compute import ThreadLane
from parties.deployment.transports import chosen_transport
from parties.files.disk import InUseError
from parties.identity.keys import Identity, PublicIdentity, read_private
from parties.identity.tokens import read_token
from parties.settings.party_file import ClientFile
from parties.settings.task_file import Deployment
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import MemoryStore, Store
from parties.threads import LoopThread, Opening, Prompt
from parties.watch import Watch, silent
from transport import Kind, Transport
from transport.needs_trio import NeedsTrio, trio_context

CLOSED = "the client is closed; connect again"


@trio_context(
    NeedsTrio(
        "parties.connect",
        asyncio="use `async with parties.aio.connect(...)`, or `with parties.connect_blocking(...)`",
        blocking="use `with parties.connect_blocking(...)`, or start trio with `trio.run(main)`",
    )
)
async def connect(
    config: str | Path,
    identity: str | Path | Identity = "",
    watch: Watch = silent,
    *,
    token: str = "",
    state: StateFile = "",
    patience: float | None = None,
    transport: Transport | None = None,
) -> AsyncIterator[Client]:
    """A client of deployed servers, connected over TCP or whatever else its servers' addresses name.

        async with connect("task.toml", "alice.key") as client:
            rows = await client.retrieve({"items": [3, 14]})

    Args:
        config: the client's own file; or, with an identity, the task file from the servers' operators.
        identity: the client's keys, or the file they are in; left out, what the client's own file says.
        watch: hears of every message the client sends.
        token: to enrol with, as `fsl-async enrol` printed it; needed once, harmless later, empty where there is none.
        state: the file of what this client must not forget, made where there is none; a client that was killed, and
            the next one with these keys, resumes from it. Left out: what the client's own file says, else a file beside
            its keys (`alice.key`: `alice.state`). None, and keys that come from no file: nothing is kept, and a client
            that is started again begins anew. Never copy it, nor put it back from a copy.
        patience: seconds to keep trying when a server is away or does not answer; infinity: until the caller cancels.
            Left out, a minute, or what the client's own file says.
        transport: what connects the client with the servers. Left out: TCP, Unix-domain sockets and WebSockets,
            by the servers' addresses, or what the client's own file says.

    Raises:
        MisuseError: a file or the token is missing or wrong, a server runs another task, or the state is another
            client's or another task's.
        ChannelError: a server cannot be reached, or does not know this client; the class says which.
        StorageError: the state's file cannot be used: another process of this client has it, for instance.
    """
    given = _given(Path(config), identity)
    deployment = Deployment.load(given.task)
    keys = identity if isinstance(identity, Identity) else Identity.load(given.identity)
    shown = read_token(token) if token else _token_in(given)
    async with open_state(state_file(state, given, identity), keys.public, deployment.task) as store:
        setup = ClientSetup(
            task=deployment.task,
            identity=keys,
            servers=deployment.identities,
            addresses=deployment.addresses,
            transport=chosen_transport(transport, given.transport),
            lane=ThreadLane(),
            randomness=os.urandom,
            kind=Kind.LIVE,
            watch=watch,
            token=shown,
            store=store,
            patience=given.patience if patience is None else patience,
        )
        async with Client(setup) as client:
            yield client


def connect_blocking(
    config: str | Path,
    identity: str | Path | Identity = "",
    watch: Watch = silent,
    *,
    token: str = "",
    state: StateFile = "",
    patience: float | None = None,
    transport: Transport | None = None,
) -> BlockingClient:
    """The same client for code that is not async: see `connect` for what it takes, and `BlockingClient` for its calls.

        with connect_blocking("alice.toml") as client:
            rows = client.retrieve({"items": ids})

    `watch` is called in the client's own thread.

    Raises:
        FslError: as for `connect`; no thread is left then.
    """
    connecting = partial(connect, token=token, state=state, patience=patience, transport=transport)
    opening = partial(connecting, config, identity, watch)
    thread = client_thread(opening)
    thread.start()
    client = BlockingClient(thread)
    weakref.finalize(client, thread.close)
    return client


def client_thread(opening: Opening[Client]) -> LoopThread[Client]:
    """The thread in which a client lives whose callers are not on trio."""
    return LoopThread("fsl-async client", opening, Prompt(CLOSED), CLOSED)


def _given(config: Path, identity: str | Path | Identity) -> ClientFile:
    """The client's own file; or one that says the same as the task file and the keys that were given."""
    if identity == "":
        return ClientFile.load(config)
    return ClientFile(task=config, identity=Path() if isinstance(identity, Identity) else Path(identity))


def _token_in(file: ClientFile) -> bytes:
    if file.token is None:
        return b""
    return read_token(read_private(file.token, "ask the servers' operators for a token"))


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
