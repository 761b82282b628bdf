"""The files that a deployment is made of, and the parties made from them.

    task.toml       what all parties share: the task, and both servers' addresses and public keys
    server.toml     one server's own: its number, keys, listening address, clients, model, when rounds close
    *.key, *.pub    a party's secret and public keys (see `parties.identity`)
    clients.toml    the public keys of the clients a server lets in
    tokens.toml     where clients enrol with tokens: their digests (see `parties.tokens`)

Rules: an unknown key is refused with the nearest known one; paths are relative to the file that names them; secrets
stand in key files only.
"""

from __future__ import annotations

import difflib
import json
import os
import socket
import tomllib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.client import Client, ClientSetup
from parties.compute import ThreadLane
from parties.enrolment import Anyone, ListOnly, Policy, WithToken
from parties.identity import Identity, PublicIdentity, Registry
from parties.model_files import load_model
from parties.server import Schedule, ServerSetup, Watch, silent
from parties.store import MemoryStore
from parties.tokens import TokenBook, read_token
from transport import Kind, Limits, TcpTransport

__all__ = [
    "Deployment",
    "RoundsTable",
    "ServerFile",
    "connect",
    "free_addresses",
    "server_setup",
    "to_toml",
    "write_deployment",
]

StructT = TypeVar("StructT", bound=msgspec.Struct)


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server as everybody knows it."""

    address: str
    channel: str
    statement: str


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task file."""

    task: Task
    servers: tuple[ServerEntry, ServerEntry]

    @staticmethod
    def load(path: Path) -> Deployment:
        """Read a task file.

        Raises:
            MisuseError: it is missing, not TOML, or a field is unknown, missing or out of range.
        """
        return _load(path, Deployment)

    def identity(self, index: int) -> PublicIdentity:
        """A server's public keys."""
        entry = self.servers[index]
        table = {"name": f"S{index}", "channel": entry.channel, "statement": entry.statement}
        return PublicIdentity.from_table(table, f"servers[{index}]")

    @property
    def identities(self) -> tuple[PublicIdentity, PublicIdentity]:
        """Both servers' public keys."""
        return self.identity(0), self.identity(1)

    @property
    def addresses(self) -> tuple[str, str]:
        """Where the servers listen."""
        return self.servers[0].address, self.servers[1].address


class RoundsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When rounds close: after so many clients or seconds (0: no limit), with a grace period; how many (0: no end)."""

    clients: int = 0
    seconds: float = 0.0
    grace: float = 5.0
    count: int = 0


class ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's own file."""

    server: int
    identity: str
    task: str
    model: str
    listen: str
    clients: str = ""
    enrolment: Literal["list", "token", "open"] = "list"
    tokens: str = ""
    save_model: str = ""
    threads: int = 0
    handshakes_per_second: float = 20.0
    handshake_burst: int = 5
    drain_seconds: float = 10.0
    rounds: RoundsTable = RoundsTable()

    @staticmethod
    def load(path: Path) -> ServerFile:
        """Read a server's file.

        Raises:
            MisuseError: it is missing, not TOML, or a field is unknown, missing or out of range.
        """
        file = _load(path, ServerFile)
        if file.server not in (0, 1):
            raise MisuseError(f"{path}: server must be 0 or 1, not {file.server}")
        if file.enrolment == "list" and not file.clients:
            raise MisuseError(f'{path}: enrolment = "list" needs clients = "FILE", the list')
        if (file.enrolment == "token") != bool(file.tokens):
            raise MisuseError(
                f'{path}: tokens = "FILE" belongs to enrolment = "token", and neither goes without the other'
            )
        return file

    def policy(self, near: Path) -> Policy:
        """Who may enrol; `near` is the folder of this file.

        Raises:
            MisuseError: the file of tokens is missing or malformed.
        """
        match self.enrolment:
            case "list":
                return ListOnly()
            case "token":
                return WithToken(TokenBook.load(near / self.tokens, self.server))
            case "open":
                return Anyone()


def server_setup(path: Path, watch: Watch = silent) -> ServerSetup:
    """Everything a server needs, from its file.

    Raises:
        MisuseError: a file is missing or wrong, or the keys are not those of the task file.
    """
    file = ServerFile.load(path)
    near = path.parent
    deployment = Deployment.load(near / file.task)
    identity = Identity.load(near / file.identity)
    if identity.public.keys != deployment.identity(file.server).keys:
        raise MisuseError(
            f"{path}: {file.identity} does not hold the keys that {file.task} gives for server {file.server}"
        )
    peer = deployment.identity(1 - file.server)
    return ServerSetup(
        task=deployment.task,
        index=file.server,
        identity=identity,
        peer=peer,
        peer_address=deployment.addresses[0],
        registry=Registry.load(near / file.clients) if file.clients else Registry(),
        policy=file.policy(near),
        model=load_model(near / file.model),
        address=file.listen,
        transport=TcpTransport(),
        store=MemoryStore(),
        lane=ThreadLane(file.threads or None),
        randomness=os.urandom,
        kind=Kind.LIVE,
        schedule=_schedule(file, deployment.task),
        limits=Limits(handshakes_per_second=file.handshakes_per_second, burst=file.handshake_burst),
        watch=watch,
    )


@asynccontextmanager
async def connect(
    task_file: str | Path, identity: str | Path | Identity, watch: Watch = silent, *, token: str = ""
) -> AsyncIterator[Client]:
    """A client of deployed servers, connected over TCP.

    Args:
        task_file: the task file that the servers' operators gave out.
        identity: the client's keys, or the file they are in.
        watch: hears of every message the client sends.
        token: to enrol with, as `fsl-async enrol` printed it; needed once, harmless later, empty where there is none.

    Raises:
        MisuseError: a file or the token is missing or wrong, or a server runs another task.
        ChannelError: a server cannot be reached, or does not know this client; the class says which.
    """
    deployment = Deployment.load(Path(task_file))
    keys = identity if isinstance(identity, Identity) else Identity.load(Path(identity))
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
        token=read_token(token) if token else b"",
    )
    async with Client(setup) as client:
        yield client


def write_deployment(
    folder: Path,
    task: Task,
    servers: Sequence[PublicIdentity],
    addresses: Sequence[str],
    clients: Iterable[PublicIdentity],
) -> None:
    """Write `task.toml`, for everybody, and `clients.toml`, for the servers, into a folder."""
    entries = [
        {"address": address, "channel": server.channel.hex(), "statement": server.statement.hex()}
        for server, address in zip(servers, addresses, strict=True)
    ]
    plain = {"task": {key: value for key, value in msgspec.to_builtins(task).items() if value is not None}}
    (folder / "task.toml").write_text(to_toml({**plain, "servers": entries}), encoding="utf-8")
    listed = [{"name": c.name, "channel": c.channel.hex(), "statement": c.statement.hex()} for c in clients]
    (folder / "clients.toml").write_text(to_toml({"clients": listed}), encoding="utf-8")


def free_addresses(count: int) -> list[str]:
    """Addresses on this host that nobody listens at now: for demos and tests."""
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


def _schedule(file: ServerFile, task: Task) -> Schedule:
    rounds = file.rounds
    if not 0 <= rounds.clients <= task.max_clients or min(rounds.seconds, rounds.count, rounds.grace) < 0:
        raise MisuseError(
            f"rounds: clients from 0 to {task.max_clients}, seconds and count from 0 expected, got {rounds}"
        )
    return Schedule(rounds.clients or task.max_clients, rounds.seconds or float("inf"), rounds.count, rounds.grace)


def _load(path: Path, kind: type[StructT]) -> StructT:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MisuseError(f"{path} is not TOML: {error}") from error
    _refuse_unknown(table, kind, str(path))
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise MisuseError(f"{path}: {error}") from error


def _refuse_unknown(value: Any, kind: Any, where: str) -> None:
    """Refuse keys that no struct at this place has, here and in everything below."""
    if isinstance(value, list):
        for number, item in enumerate(value, start=1):
            _refuse_unknown(item, kind, f"{where} {number}")
    if not isinstance(value, dict):
        return
    known = [field for struct in _structs(kind, value) for field in msgspec.structs.fields(struct)]
    fields = {field.encode_name: field.type for field in known}
    for key, inner in value.items():
        if fields and key not in fields and key != "type":
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            raise MisuseError(f"{where}: unknown key {key!r}; {hint}")
        _refuse_unknown(inner, fields.get(key), f"{where}, {key}")


def _structs(kind: Any, value: Mapping[str, Any]) -> list[type[msgspec.Struct]]:
    """The structs that a type may be at a place; of a tagged union, the one that the value names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    found = [struct for inner in get_args(kind) for struct in _structs(inner, value)]
    return [struct for struct in found if struct.__struct_config__.tag == value.get("type")] or found
