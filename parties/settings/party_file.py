"""What stands in a party's own file: a server's, a client's.

Each key is described where it is declared; docs/configuration.md is written from here. How a file is read, and what is
refused, is in `parties.settings.reading`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import LARGEST_CLIENTS
from parties.files.toml import read_toml
from parties.settings.reading import About, StoreSetting, from_table, refuse_strange_variables

__all__ = [
    "KINDS",
    "ClientFile",
    "LimitsTable",
    "LogTable",
    "OperatorTable",
    "PartyFile",
    "RoundsTable",
    "ServerFile",
    "load_party",
]

HOUR, DAY, YEAR = 3_600, 86_400, 31_536_000
TIB = 2**40


class RoundsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When rounds close, what they wait for and what is kept of them."""

    clients: Annotated[
        int,
        About("a round closes with so many submissions; 0: with the task's max_clients", low=0, high=LARGEST_CLIENTS),
    ] = 0
    seconds: Annotated[
        float, About("a round closes so long after it opened; 0: when enough are in", unit="seconds", low=0, high=YEAR)
    ] = 0.0
    grace: Annotated[
        float,
        About(
            "when the other server has closed, wait so long for submissions that it has and this one has not",
            unit="seconds",
            low=0,
            high=HOUR,
        ),
    ] = 5.0
    patience: Annotated[
        float,
        About(
            "wait so long for the other server while a round can still be given up; after that, for as long as it "
            "takes",
            unit="seconds",
            low=1,
            high=30 * DAY,
        ),
    ] = 600.0
    retention: Annotated[
        int,
        About("of so many settled rounds the clients' shares and seeds are kept, then erased", low=0, high=10_000),
    ] = 0
    count: Annotated[int, About("the server ends after the round of this number; 0: never", low=0, high=10**9)] = 0
    wind_up: Annotated[
        float,
        About("after SIGTERM the running round has so long to end; then it is parked", unit="seconds", low=0, high=DAY),
    ] = 60.0


class LimitsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What strangers, clients and the other server are allowed."""

    connections: Annotated[
        int,
        About(
            "connections at a time, at most half of the descriptors the process may open; more wait outside",
            low=2,
            high=10**6,
        ),
    ] = 10_000
    per_key: Annotated[int, About("of them with one key", low=1, high=1_000)] = 4
    half_open: Annotated[int, About("of them still shaking hands", low=1, high=10**6)] = 256
    handshakes_per_second: Annotated[
        float, About("new connections from one address, in the long run", unit="per second", low=0.01, high=10**6)
    ] = 20.0
    burst: Annotated[int, About("new connections from one address at once", low=1, high=10**6)] = 100
    memory_bytes: Annotated[
        int,
        About(
            "memory for requests while they come and are carried out, and for answers until their clients have them; "
            "0: 256 MiB, or room for the task's two longest requests and answers, whichever is more",
            unit="bytes",
            low=0,
            high=TIB,
        ),
    ] = 0
    queue_seconds: Annotated[
        float,
        About(
            "a request or an answer waits so long for that memory, then its client is told to come back",
            unit="seconds",
            low=1,
            high=HOUR,
        ),
    ] = 30.0
    minimum_rate: Annotated[
        float,
        About(
            "a message that moves more slowly is cut off, in either direction", unit="bytes per second", low=1, high=TIB
        ),
    ] = 8_192.0
    message_seconds: Annotated[
        float, About("a message that has begun must be over within this", unit="seconds", low=1, high=DAY)
    ] = 1_800.0
    idle_seconds: Annotated[
        float,
        About(
            "a client that asks for nothing for so long is let go, and may come back", unit="seconds", low=1, high=DAY
        ),
    ] = 60.0
    requests_per_second: Annotated[
        float, About("requests of one client, in the long run; more wait", unit="per second", low=0.01, high=10**6)
    ] = 50.0
    request_burst: Annotated[int, About("requests of one client at once", low=1, high=10**6)] = 200


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the operator of this server looks."""

    listen: Annotated[
        str,
        About(
            "where /metrics, /healthz, /readyz and the operator's page are served, to whoever can reach it: keep it "
            "local; without it there is none",
            is_address=True,
        ),
    ] = ""


class LogTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], About("the least serious that is written")] = "info"
    format: Annotated[
        Literal["auto", "human", "json"], About("how lines look; auto: for people on a terminal, else JSON")
    ] = "auto"


class ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server's own file."""

    server: Annotated[int, About("which of the two this is", low=0, high=1)]
    identity: Annotated[Path, About("the secret keys, a file that `fsl-async keygen` made")]
    task: Annotated[Path, About("the task file, the same for all parties")]
    model: Annotated[Path, About("the model that the first round starts from, .npz or .safetensors")]
    listen: Annotated[str, About("where clients, and S1 at S0, connect", is_address=True)]
    store: Annotated[
        StoreSetting,
        About(
            'the database of all that must outlive a crash, on a local disk; or "memory", with which a killed server '
            "loses what it has acknowledged: for trials alone"
        ),
    ]
    clients: Annotated[Path | None, About("the list of clients, see registration.md")] = None
    enrolment: Annotated[Literal["list", "token", "open"], About("who is let in, see registration.md")] = "list"
    tokens: Annotated[Path | None, About('with enrolment = "token": the digests that `fsl-async enrol` keeps')] = None
    save_model: Annotated[Path | None, About("a file that has the present model after every round")] = None
    checkpoints: Annotated[Path | None, About("a folder that gets the model of every round, in a file of its own")] = (
        None
    )
    checkpoint_format: Annotated[Literal["npz", "safetensors"], About("of those files")] = "npz"
    checkpoints_kept: Annotated[int, About("of those files, the newest so many; 0: all", low=0, high=10**6)] = 5
    threads: Annotated[int, About("to compute with; 0: as many as there are cores", low=0, high=1_024)] = 0
    drain_seconds: Annotated[
        float,
        About("after the last round, clients have so long to ask what became of it", unit="seconds", low=0, high=DAY),
    ] = 10.0
    rounds: RoundsTable = RoundsTable()
    limits: LimitsTable = LimitsTable()
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
        """The same of what has been read of the file already."""
        refuse_strange_variables(KINDS, environment)
        file = from_table(table, path, ServerFile, environment)
        if file.enrolment == "list" and file.clients is None:
            raise MisuseError(f'{path}: enrolment = "list" needs clients = "FILE", the list')
        if (file.enrolment == "token") != (file.tokens is not None):
            raise MisuseError(
                f'{path}: tokens = "FILE" belongs to enrolment = "token", and neither goes without the other'
            )
        return file


class ClientFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client's own file."""

    task: Annotated[Path, About("the task file that the servers' operators gave out")]
    identity: Annotated[Path, About("the secret keys, a file that `fsl-async keygen` made")]
    state: Annotated[
        Path | None,
        About(
            "what this client must remember, so that it goes on where it stood when it is started again, and does not "
            "count twice; never copy it or put it back. Left out: a file beside its keys, `alice.state` of `alice.key`"
        ),
    ] = None
    patience: Annotated[
        float,
        About(
            "a call goes on for so long when a server is away or does not answer; 0: no second try",
            unit="seconds",
            low=0,
            high=30 * DAY,
        ),
    ] = 60.0
    token: Annotated[
        Path | None, About("a file with the token to enrol with, which only its owner can read; needed once")
    ] = None

    @staticmethod
    def load(path: Path, environment: Mapping[str, str] = os.environ) -> ClientFile:
        """Read a client's file; its paths are relative to it.

        Raises:
            MisuseError: it cannot be read, or a key is unknown, missing or out of range.
        """
        return ClientFile.from_table(read_toml(path), path, environment)

    @staticmethod
    def from_table(table: dict[str, Any], path: Path, environment: Mapping[str, str] = os.environ) -> ClientFile:
        """The same of what has been read of the file already."""
        refuse_strange_variables(KINDS, environment)
        _refuse_task_file(path, table)
        return from_table(table, path, ClientFile, environment)


PartyFile: TypeAlias = ServerFile | ClientFile

KINDS = (ServerFile, ClientFile)


def load_party(path: Path, environment: Mapping[str, str] = os.environ) -> PartyFile:
    """Read a party's file, whichever party's it is.

    Raises:
        MisuseError: it cannot be read, is neither's, or has a mistake in it.
    """
    table = read_toml(path)
    _refuse_task_file(path, table)
    kind = ServerFile if table.keys() & {"server", "listen", "store", "model"} else ClientFile
    return kind.from_table(table, path, environment)


def _refuse_task_file(path: Path, table: Mapping[str, Any]) -> None:
    if isinstance(table.get("task"), dict) or "servers" in table:
        raise MisuseError(
            f"{path} is a task file, which all parties share; give the party's own file, or --identity and its keys "
            "besides"
        )
