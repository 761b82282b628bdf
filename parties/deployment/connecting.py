"""The files that a deployment is made of, and the parties made from them.

task.toml       what all parties share: the task, and both servers' addresses and public keys
server.toml     one server's own, client.toml one client's (see `parties.settings.party_file`)
*.key, *.pub    a party's secret and public keys (see `parties.identity.keys`)
clients.toml    the public keys of the clients a server lets in (see `parties.settings.lists`)
tokens.toml     where clients enrol with tokens: their digests (see `parties.identity.tokens`)
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.client.blocking import BlockingClient
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import ThreadLane
from parties.deployment.client_place import StatePlace, kept_state, place_of
from parties.files.models import load_model
from parties.identity.keys import Identity, PublicIdentity, Registry, read_private
from parties.identity.tokens import read_token
from parties.server.clients.connection import ConversationLimits
from parties.server.server import Schedule, ServerSetup
from parties.server.waiting_store import PAUSE
from parties.settings.party_file import ClientFile, LimitsTable, RoundsTable, ServerFile
from parties.settings.reading import OnDisk, StoreSetting, load
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import DiskFullError, MemoryStore, Store
from parties.watch import Watch, silent
from transport import Kind, Limits, TcpTransport

__all__ = [
    "Deployment",
    "ServerFile",
    "connect",
    "connect_blocking",
    "free_addresses",
    "open_store",
    "own_identity",
    "server_setup",
    "to_toml",
    "write_deployment",
]

_log = logging.getLogger("parties.deployment")


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server as everybody knows it; the operator's name is for people."""

    address: str
    channel: str
    statement: str
    operator: str = ""


class RevokedKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys that are no server's any more."""

    name: str
    channel: str
    statement: str
    revoked_at: datetime


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task file."""

    task: Task
    servers: tuple[ServerEntry, ServerEntry]
    revoked: tuple[RevokedKeys, ...] = ()

    @staticmethod
    def load(path: Path) -> Deployment:
        """Read a task file.

        Raises:
            MisuseError: it is missing, not TOML, a field is unknown, missing or out of range, or a server's keys are
                revoked.
        """
        deployment = load(path, Deployment, {})
        for index, server in enumerate(deployment.servers):
            if server.channel.lower() in {keys.channel.lower() for keys in deployment.revoked} or not server.channel:
                raise MisuseError(
                    f"{path}: the keys of S{index} have been revoked; get the new ones from its operator, and "
                    f"`fsl-async peers add {path} S{index}.pub --server {index}`"
                )
        return deployment

    def identity(self, index: int) -> PublicIdentity:
        """A server's public keys."""
        entry = self.servers[index]
        table = {"name": f"S{index}", "channel": entry.channel, "statement": entry.statement}
        return PublicIdentity.from_table(table, f"the task file, servers[{index}]")

    @property
    def identities(self) -> tuple[PublicIdentity, PublicIdentity]:
        """Both servers' public keys."""
        return self.identity(0), self.identity(1)

    @property
    def addresses(self) -> tuple[str, str]:
        """Where the servers listen."""
        return self.servers[0].address, self.servers[1].address


async def server_setup(path: Path, watch: Watch = silent) -> ServerSetup:
    """Everything a server needs, from its file; the store is open, and it is for the caller to close it.

    Raises:
        MisuseError: a file is missing or wrong, or the keys are not those of the task file.
        StorageError: the store cannot be used.
    """
    file = ServerFile.load(path)
    deployment = Deployment.load(file.task)
    model = await trio.to_thread.run_sync(load_model, file.model)
    return ServerSetup(
        task=deployment.task,
        index=file.server,
        identity=own_identity(file, deployment),
        peer=deployment.identity(1 - file.server),
        peer_address=deployment.addresses[0],
        registry=Registry.load(file.clients) if file.clients else Registry(),
        policy=file.policy(),
        model=model,
        address=file.listen,
        transport=TcpTransport(),
        lane=ThreadLane(file.threads or None),
        randomness=os.urandom,
        kind=Kind.LIVE,
        schedule=_schedule(path, file.rounds, deployment.task),
        limits=_limits(file.limits),
        conversations=_conversations(file.limits),
        watch=watch,
        store=await open_store(file.store),
    )


async def open_store(place: StoreSetting) -> Store:
    """Open a server's store; where the disk is full, wait until there is room.

    Raises:
        StorageError: it cannot be used; the message says what to do.
    """
    if not isinstance(place, OnDisk):
        return MemoryStore()
    while True:
        try:
            return await SqliteStore.open(place.path, marked=True)
        except DiskFullError as error:
            _log.warning("%s; the server waits, and then starts", error)
            await trio.sleep(PAUSE)


def own_identity(file: ServerFile, deployment: Deployment) -> Identity:
    """A server's keys, which must be those that the task file gives it.

    Raises:
        MisuseError: they are others, or cannot be read.
    """
    identity = Identity.load(file.identity)
    if identity.public.keys != deployment.identity(file.server).keys:
        raise MisuseError(
            f"{file.identity} does not hold the keys that {file.task} gives for server {file.server}; correct the "
            f"number or the file name, or `fsl-async peers` the keys in"
        )
    return identity


@asynccontextmanager
async def connect(
    config: str | Path,
    identity: str | Path | Identity = "",
    watch: Watch = silent,
    *,
    token: str = "",
    state: StatePlace = "",
    patience: float | None = None,
) -> AsyncIterator[Client]:
    """A client of deployed servers, connected over TCP.

    Args:
        config: the client's own file; or, with an identity, the task file that the servers' operators gave out.
        identity: the client's keys, or the file they are in; left out, what the client's own file says.
        watch: hears of every message the client sends.
        token: to enrol with, as `fsl-async enrol` printed it; needed once, harmless later, empty where there is none.
        state: the file of what this client must not forget, made where there is none; a client that was killed, and
            the next one with these keys, goes on from it. Left out: what the client's own file says, else a file beside
            its keys (`alice.key`: `alice.state`). None, and keys that come from no file: nothing is kept, and a client
            that is started again begins anew. Never copy it, nor put it back from a copy.
        patience: seconds to go on when a server is away or does not answer; infinity goes on until the caller cancels.
            Left out, a minute, or what the client's own file says.

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
    async with kept_state(place_of(state, given, identity), keys.public, deployment.task) as store:
        setup = ClientSetup(
            task=deployment.task,
            identity=keys,
            servers=deployment.identities,
            addresses=deployment.addresses,
            transport=TcpTransport(),
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
    state: StatePlace = "",
    patience: float | None = None,
) -> BlockingClient:
    """The same client for code that is not async: see `connect` for what it takes, and `BlockingClient` for its calls.

        with connect_blocking("alice.toml") as client:
            rows = client.retrieve({"items": ids})

    `watch` is called in the client's own thread.

    Raises:
        FslError: as for `connect`; no thread is left then.
    """
    return BlockingClient(partial(connect, config, identity, watch, token=token, state=state, patience=patience))


def _given(config: Path, identity: str | Path | Identity) -> ClientFile:
    """The client's own file; or what would stand there, if it had one besides the task file and its keys."""
    if identity == "":
        return ClientFile.load(config)
    return ClientFile(task=config, identity=Path() if isinstance(identity, Identity) else Path(identity))


def _token_in(file: ClientFile) -> bytes:
    if file.token is None:
        return b""
    return read_token(read_private(file.token, "ask the servers' operators for a token"))


def write_deployment(
    folder: Path,
    task: Task,
    servers: Sequence[PublicIdentity],
    addresses: Sequence[str],
    clients: Iterable[PublicIdentity],
) -> None:
    """Write `task.toml`, for everybody, and `clients.toml`, for the servers, into a folder.

    Args:
        folder: where; the two files are replaced.
        task: what is learnt.
        servers: S0's and S1's public keys.
        addresses: where the two listen, each "host:port".
        clients: who is let in.
    """
    entries = [
        {"address": address, "channel": server.channel.hex(), "statement": server.statement.hex()}
        for server, address in zip(servers, addresses, strict=True)
    ]
    plain = {"task": {key: value for key, value in msgspec.to_builtins(task).items() if value is not None}}
    (folder / "task.toml").write_text(to_toml({**plain, "servers": entries}), encoding="utf-8")
    listed = [{"name": c.name, "channel": c.channel.hex(), "statement": c.statement.hex()} for c in clients]
    (folder / "clients.toml").write_text(to_toml({"clients": listed}), encoding="utf-8")


def free_addresses(count: int) -> list[str]:
    """Addresses on this host that nobody listens at now: for demos and tests.

    Returns:
        Addresses "127.0.0.1:port". Another process may take one before the caller does.
    """
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses


def to_toml(table: Mapping[str, Any]) -> str:
    """A table of plain values, tables, and lists of tables, as TOML with every value on a line of its own."""
    lines: list[str] = []
    _write_table(lines, table, ())
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], table: Mapping[str, Any], path: tuple[str, ...]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict | list | tuple)}
    lines.extend(f"{key} = {json.dumps(value)}" for key, value in plain.items())
    for key, value in table.items():
        inner = ".".join((*path, key))
        if isinstance(value, dict):
            lines.append(f"\n[{inner}]")
            _write_table(lines, value, (*path, key))
        elif key not in plain:
            for item in value:
                lines.append(f"\n[[{inner}]]")
                _write_table(lines, item, (*path, key))


def _schedule(path: Path, rounds: RoundsTable, task: Task) -> Schedule:
    if rounds.clients > task.max_clients:
        raise MisuseError(
            f"{path}: rounds.clients must be at most {task.max_clients}, the task's max_clients, not {rounds.clients}"
        )
    return Schedule(
        clients=rounds.clients or task.max_clients,
        seconds=rounds.seconds or float("inf"),
        rounds=rounds.count,
        grace=rounds.grace,
        patience=rounds.patience,
        retention=rounds.retention,
    )


def _limits(table: LimitsTable) -> Limits:
    return Limits(
        connections=table.connections,
        half_open=table.half_open,
        handshakes_per_second=table.handshakes_per_second,
        burst=table.burst,
        per_key=table.per_key,
    )


def _conversations(table: LimitsTable) -> ConversationLimits:
    return ConversationLimits(
        memory_bytes=table.memory_bytes or None,
        minimum_rate=table.minimum_rate,
        message_seconds=table.message_seconds,
        idle_seconds=table.idle_seconds,
        queue_seconds=table.queue_seconds,
        requests_per_second=table.requests_per_second,
        request_burst=table.request_burst,
    )
