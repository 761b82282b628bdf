"""The settings in a party's own file: a server's or a client's.

Each key is described where it is declared; docs/configuration.md is generated from here. `parties.settings.reading`
reads the files and says what is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from fsl_async.errors import MisuseError
from parties.files.toml import About, read_toml
from parties.schedule import (
    DAY,
    ConversationLimits,
    GatherSeconds,
    PatienceSeconds,
    RoundClients,
    RoundSeconds,
    Schedule,
)
from parties.settings.reading import OnDisk, StoreSetting, from_table, overrides, refuse_strange_variables
from parties.settings.server_tables import (
    NO_WEB,
    BlobsTable,
    ComputeTable,
    WebTable,
    check_blobs,
    check_compute,
    check_web,
)
from transport import Limits
from transport.socket_transport import check_address

TransportName: TypeAlias = Annotated[
    str,
    About(
        "what connects this party with the others, as module:name of a class or a function that makes it; empty: "
        "TCP, Unix-domain sockets and WebSockets, by the address; see extending.md"
    ),
]


class RoundsTable(Schedule, frozen=True, forbid_unknown_fields=True):
    """When rounds close, what they wait for and what is stored of them."""

    clients: RoundClients = 0
    seconds: RoundSeconds = 0.0
    gather: GatherSeconds = 60.0
    patience: PatienceSeconds = 600.0
    wind_up: Annotated[
        float,
        About(
            "the time that the running round has to end after SIGTERM; then it is parked until the next start",
            unit="seconds",
            low=0,
            high=DAY,
        ),
    ] = 60.0

    def schedule(self, most: int) -> Schedule:
        """The same for a server of a task with at most so many clients."""
        return msgspec.structs.replace(self, clients=self.clients or most, seconds=self.seconds or float("inf"))


class LimitsTable(ConversationLimits, frozen=True, forbid_unknown_fields=True):
    """Limits for connections, from strangers, clients and the other server."""

    connections: Annotated[
        int,
        About(
            "connections at a time, and at most half of the descriptors that the process may open; further ones wait",
            low=2,
            high=10**6,
        ),
    ] = 10_000
    per_key: Annotated[int, About("connections at a time with one key", low=1, high=1_000)] = 4
    half_open: Annotated[
        int, About("connections at a time that have not finished their handshake", low=1, high=10**6)
    ] = 256
    handshakes_per_second: Annotated[
        float, About("new connections from one address, on average", unit="per second", low=0.01, high=10**6)
    ] = 20.0
    burst: Annotated[int, About("new connections from one address in a burst", low=1, high=10**6)] = 100

    @property
    def strangers(self) -> Limits:
        """What strangers are allowed."""
        return Limits(
            connections=self.connections,
            half_open=self.half_open,
            handshakes_per_second=self.handshakes_per_second,
            burst=self.burst,
            per_key=self.per_key,
        )


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The page and the metrics for this server's operator."""

    listen: Annotated[
        str,
        About(
            "the address of /metrics, /healthz, /readyz and the operator's page; everybody who can reach it can read "
            "them, so use a local one; without it they are not served",
            is_address=True,
        ),
    ] = ""


class LogTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], About("the lowest level that is logged")] = "info"
    format: Annotated[
        Literal["auto", "human", "json"], About("the form of the lines; auto: human on a terminal, otherwise json")
    ] = "auto"
    names: Annotated[
        Literal["debug", "info", "warning", "error"],
        About(
            "the highest `level` at which lines name clients; above it names and texts that may have some are withheld"
        ),
    ] = "error"


class ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server's own file."""

    server: Annotated[int, About("which of the two servers this is", low=0, high=1)]
    identity: Annotated[Path, About("the file of the secret keys, made by `fsl-async keygen`")]
    task: Annotated[Path, About("the task file; all parties have the same")]
    listen: Annotated[
        str,
        About(
            "the address to listen at, for clients, and at S0 also for S1: host:port, [host]:port, unix:/path, "
            "ws://host:port/path or wss://host:port/path; or what the named transport takes"
        ),
    ]
    store: Annotated[
        StoreSetting,
        About(
            'the database of everything that must survive a crash, on a local disk; or "memory", for trials only: a '
            "server that is killed then loses what it has acknowledged"
        ),
    ]
    model: Annotated[
        Path | None,
        About("the model of the first round, .npz or .safetensors; none where the task's protocol is psu"),
    ] = None
    clients: Annotated[Path | None, About("the list of clients; see registration.md")] = None
    enrolment: Annotated[Literal["list", "token", "open"], About("who is admitted; see registration.md")] = "list"
    tokens: Annotated[
        Path | None, About('with enrolment = "token": the file of digests that `fsl-async enrol` writes')
    ] = None
    state: Annotated[
        Path | None,
        About(
            "the state of the task's optimizer, or of its own rule, that belongs to `model`: a checkpoint's, to go on "
            "from there; without it, the optimizer begins anew"
        ),
    ] = None
    apply: Annotated[
        str | None,
        About(
            'the function that the task applies, as "module:function", where it names one; the server imports and runs '
            "it with all its rights, and only if it is named here as well"
        ),
    ] = None
    save_model: Annotated[
        Path | None,
        About(
            "a file into which the current model is written after every round; the optimizer's state, where there is "
            "one, goes beside it, as `model.state.npz` beside `model.npz`"
        ),
    ] = None
    save_update: Annotated[
        Path | None,
        About(
            "a file into which the last round's exact sum is written: `update/BLOCK` for each block, `number` of the "
            "round, `clients` that are counted; the store keeps the sum, too"
        ),
    ] = None
    checkpoints: Annotated[
        Path | None, About("a folder into which the model of every round is written, each in its own file")
    ] = None
    checkpoint_format: Annotated[Literal["npz", "safetensors"], About("the format of the files in checkpoints")] = "npz"
    checkpoints_kept: Annotated[
        int, About("how many of the files in checkpoints are kept, the newest ones; 0: all", low=0, high=10**6)
    ] = 5
    transport: TransportName = ""
    threads: Annotated[int, About("threads to compute with; 0: one for each core", low=0, high=1_024)] = 0
    drain_seconds: Annotated[
        float,
        About(
            "the time that clients have after the last round to ask for its outcome", unit="seconds", low=0, high=DAY
        ),
    ] = 10.0
    rounds: RoundsTable = RoundsTable()
    limits: LimitsTable = LimitsTable()
    web: WebTable = NO_WEB
    blobs: BlobsTable = BlobsTable()
    compute: ComputeTable = ComputeTable()
    operator: OperatorTable = OperatorTable()
    log: LogTable = LogTable()

    @staticmethod
    def load(path: Path, environment: Mapping[str, str] = os.environ) -> ServerFile:
        """Read a server's file; its paths are relative to it.

        Raises:
            MisuseError: it cannot be read, or a key is unknown, missing, out of range, or contradicts another.
        """
        return ServerFile.from_table(read_toml(path), path, environment)

    @staticmethod
    def from_table(table: dict[str, Any], path: Path, environment: Mapping[str, str] = os.environ) -> ServerFile:
        """The same as `load`, for a file that has been read already."""
        refuse_strange_variables(KINDS, environment)
        if "tasks" in table:
            raise MisuseError(f"{path} has tables [[tasks]]; here the file of a server with one task is expected")
        _refuse_client_file(path, table, environment)
        file = from_table(table, path, ServerFile, environment)
        check_listen(file, str(path))
        check_tables(file, str(path))
        return file

    @property
    def blobs_folder(self) -> Path | None:
        """The folder of its bulk; None where that is in memory or in an object store."""
        if self.blobs.url or not isinstance(self.store, OnDisk):
            return None
        return self.blobs.folder or self.store.path.with_suffix(".blobs")


class ClientFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client's own file."""

    task: Annotated[Path, About("the task file, from the servers' operators")]
    identity: Annotated[Path, About("the file of the secret keys, made by `fsl-async keygen`")]
    state: Annotated[
        Path | None,
        About(
            "the file of this client's state, with which it resumes when it is started again and does not count twice; "
            "never copy it or restore it from a copy. By default a file beside the keys, `alice.state` for `alice.key`"
        ),
    ] = None
    patience: Annotated[
        float,
        About(
            "how long a call keeps trying when a server is away or does not answer; 0: it does not try again",
            unit="seconds",
            low=0,
            high=30 * DAY,
        ),
    ] = 60.0
    token: Annotated[
        Path | None, About("the file of the token to enrol with, readable by its owner only; needed once")
    ] = None
    transport: TransportName = ""

    @staticmethod
    def load(path: Path, environment: Mapping[str, str] = os.environ) -> ClientFile:
        """Read a client's file; its paths are relative to it.

        Raises:
            MisuseError: it cannot be read, or a key is unknown, missing or out of range.
        """
        return ClientFile.from_table(read_toml(path), path, environment)

    @staticmethod
    def from_table(table: dict[str, Any], path: Path, environment: Mapping[str, str] = os.environ) -> ClientFile:
        """The same as `load`, for a file that has been read already."""
        refuse_strange_variables(KINDS, environment)
        refuse_task_file(path, table)
        if table.keys() & {"server", "listen", "tasks"}:
            raise MisuseError(
                f"{path} is a server's file, which `fsl-async serve` takes; give the client's own, or the task file "
                "with identity=KEYS"
            )
        return from_table(table, path, ClientFile, environment)


KINDS = (ServerFile, ClientFile)


def check_listen(file: ServerFile, where: str) -> None:
    """Refuse an address that the transports which there are do not take; what another one takes, it says itself.

    Raises:
        MisuseError: there is no transport for the address, or it is malformed.
    """
    check_web(file.web, file.listen, file.transport, where)
    if file.transport:
        return
    try:
        check_address(file.listen)
    except MisuseError as error:
        raise MisuseError(f"{where}: listen = {error}") from error


def check_tables(file: ServerFile, where: str) -> None:
    """Refuse settings of a task of which one is missing without the other, or contradicts it.

    Raises:
        MisuseError: there is such a thing.
    """
    if file.enrolment == "list" and file.clients is None:
        raise MisuseError(f'{where}: enrolment = "list" needs clients = "FILE", the list')
    if (file.enrolment == "token") != (file.tokens is not None):
        raise MisuseError(f'{where}: tokens = "FILE" and enrolment = "token" need each other: add the missing one')
    check_blobs(file.blobs, file.store, where)
    check_compute(file.compute, file.store, where)


def refuse_task_file(
    path: Path, table: Mapping[str, Any], remedy: str = "give the party's own file, or add the keys (identity=KEYS)"
) -> None:
    """Refuse the task file where a party's own file is expected.

    Raises:
        MisuseError: it is the task file.
    """
    if isinstance(table.get("task"), dict) or "servers" in table:
        raise MisuseError(f"{path} is a task file, which all parties share; {remedy}")


def _refuse_client_file(path: Path, table: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Refuse a client's file where a server's is expected: one that says nothing which is a server's alone.

    Raises:
        MisuseError: it is a client's.
    """
    fields = {field.encode_name for field in msgspec.structs.fields(ClientFile)}
    if {"task", "identity"} <= table.keys() <= fields and not overrides(ServerFile, environment):
        raise MisuseError(
            f"{path} is a client's file, which `fsl-async retrieve` and `fsl-async submit` take; give the server's own"
        )
