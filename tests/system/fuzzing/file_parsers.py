"""Files that people and programs write: configurations, keys, lists, tokens, models; and the operator's port."""

import io
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import trio
from safetensors.numpy import save

from fsl_async.errors import MisuseError, StorageError
from parties.files.models import load_model
from parties.identity.keys import Identity, PublicIdentity, read_private
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook, add_tokens, read_token
from parties.operator import Log
from parties.operator.http import HttpLimits, serve_connection
from parties.operator.resources import Resources
from parties.operator.token import OperatorToken
from parties.settings.host_file import HostFile, load_party
from parties.settings.lists import add_clients, list_clients, revoke_client
from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import write_deployment
from tests.parties.operator.stage import Host, Stage

from .parser import HEAVY, SLOW, Parser
from .samples import ALICE, SERVERS, TASK, Script, workplace

SERVER_TOML = """\
server = 0
identity = "S0.key"
task = "task.toml"
model = "model.npz"
listen = "127.0.0.1:9000"  # where clients connect
store = "memory"
clients = "clients.toml"
[rounds]
seconds = 3600.0
[limits]
connections = 100
[operator]
listen = "[::1]:9464"
[log]
level = "debug"
"""
CLIENT_TOML = 'task = "task.toml"\nidentity = "alice.key"\nstate = "state.db"\npatience = 5\n'
REVOKED = f'\n[[revoked]]\nname = "bob"\nchannel = "{"5b" * 32}"\nrevoked_at = 2026-01-02T03:04:05Z\n'


def from_file(name: str, load: Callable[[Path], object]) -> Callable[[bytes], None]:
    """A parser of bytes from one of a file."""

    def read(data: bytes) -> None:
        path = workplace() / name
        path.write_bytes(data)
        path.chmod(0o600)
        load(path)

    return read


def written(write: Callable[[Path], object], name: str) -> list[bytes]:
    """What the library writes into a file of that name."""
    path = workplace() / f"sample-{name}"
    path.unlink(missing_ok=True)
    write(path)
    return [path.read_bytes()]


def _deployment_files() -> tuple[bytes, bytes]:
    identities = [server.public for server in SERVERS]
    write_deployment(workplace(), TASK, identities, ("127.0.0.1:9000", "[::1]:9001"), [ALICE.public])
    return tuple((workplace() / name).read_bytes() for name in ("task.toml", "clients.toml"))


def _load_deployment(path: Path) -> None:
    deployment = Deployment.load(path)
    assert len(deployment.identities) == 2
    assert deployment.task.parse(deployment.task.canonical(), "the test") == deployment.task


def _load_identity(path: Path) -> None:
    identity = Identity.load(path)
    assert identity.public.name == identity.name


def _edit_clients(path: Path) -> None:
    """What the edits wrote must be readable, with everybody on it who was."""
    before = list_clients(path)
    add_clients(path, [SERVERS[1].public.__class__("newcomer", *(bytes([number]) * 32 for number in (50, 51)))])
    revoke_client(path, "newcomer")
    assert len(list_clients(path)) == len(before) + 1


# ---- models


def _npz() -> list[bytes]:
    arrays = {"items": np.arange(80, dtype=np.float32).reshape(40, 2), "head": np.zeros(3, np.int8)}
    made = []
    for write in (np.savez, np.savez_compressed):
        write(file := io.BytesIO(), **arrays)
        made.append(file.getvalue())
    return made


def _safetensors() -> list[bytes]:
    return [save({"items": np.arange(80, dtype=np.float32).reshape(40, 2), "head": np.zeros(3, np.int8)})]


# ---- the operator's port


class _Visitor(Script, trio.abc.HalfCloseableStream):
    """Somebody who sends what the input says, and then nothing."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return await super().receive_some(max_bytes)

    async def send_eof(self) -> None:
        """The response has been sent."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _Opens(OperatorToken):
    """A token that everybody has."""

    def opens(self, header: bytes) -> bool:
        return True


@cache
def _resources() -> Resources:
    stage = Stage(Log("S0", "json", stream=io.StringIO()))
    stage.meet_peer()
    stage.open_round(3)
    stage.settle(["alice"], {"bob": "proof"})
    return Resources(Host(stage), _Opens())


async def _visit(data: bytes) -> None:
    """Serve one connection to its end; live views, which have none, are not asked for."""

    async def answer(request: Any) -> Any:
        if request.path == "/events":
            raise trio.BrokenResourceError
        return await _resources().answer(request)

    visitor = _Visitor(data)
    await serve_connection(visitor, answer, HttpLimits())
    assert not visitor.heard or visitor.heard.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in visitor.heard[:16]


def _requests() -> list[bytes]:
    def body(method: bytes, path: bytes, content: bytes) -> bytes:
        length = str(len(content)).encode()
        return b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n%s" % (method, path, length, content)

    asked = [b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n\r\n" % path for path in PATHS]
    bare = [body(b"POST", b"/rounds/3/%s" % change, b"") for change in (b"close", b"draw")]
    chunked = (
        b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n"
        + LEVEL
        + b"\r\n0\r\n\r\n"
    )
    return [*asked, body(b"PUT", b"/log-level", LEVEL), body(b"POST", b"/rounds/3/abort", BECAUSE), *bare, chunked]


PATHS = (
    b"/status.json",
    b"/clients.json?show=missing&search=B&page=2",
    b"/rounds.json?last=3&before=9",
    b"/rounds/3.json",
    b"/tasks",
    b"/rounds.json?task=shop",
    b"/metrics",
    b"/healthz",
    b"/readyz",
    b"/",
)
LEVEL, BECAUSE = json.dumps({"level": "warning"}).encode(), json.dumps({"because": "a trial"}).encode()

HOST_TOML = """\
server = 0
identity = "S0.key"
listen = "127.0.0.1:0"
[limits]
burst = 9
[[tasks]]
task = "shop.toml"
model = "model.npz"
store = "memory"
clients = "clients.toml"
[[tasks]]
task = "town.toml"
model = "model.npz"
store = "town.sqlite"
enrolment = "open"
memory_bytes = 1000000
[tasks.rounds]
seconds = 5.0
"""

MISUSE = (MisuseError,)
TOML_WORDS = (b"[[", b"]]", b"'''", b'"""', b"\\u0000", b"0x", b"1e999", b"inf", b"nan", b"1979-05-27T07:32:00Z", b"{}")


def _toml(name: str, load: Callable[[Path], object], make: Callable[[], list[bytes]], **more: Any) -> Parser:
    file = f"{name}.toml"
    options = {"errors": MISUSE, "source": file, "share": SLOW, "longest": 8_192, "tokens": TOML_WORDS, **more}
    return Parser(name, from_file(file, load), make, **options)


PARSERS = (
    _toml("task-file", _load_deployment, lambda: [_deployment_files()[0]], source="task", share=HEAVY),
    _toml("host-file", partial(HostFile.load, environment={}), lambda: [HOST_TOML.encode()], share=HEAVY),
    _toml("server-file", partial(ServerFile.load, environment={}), lambda: [SERVER_TOML.encode()], share=HEAVY),
    _toml("client-file", partial(ClientFile.load, environment={}), lambda: [CLIENT_TOML.encode()], share=HEAVY),
    _toml(
        "party-file",
        partial(load_party, environment={}),
        lambda: [SERVER_TOML.encode(), CLIENT_TOML.encode()],
        share=HEAVY,
    ),
    _toml("client-list", Registry.load, lambda: [_deployment_files()[1] + REVOKED.encode()]),
    _toml(
        "client-list-edited",
        _edit_clients,
        lambda: [_deployment_files()[1] + REVOKED.encode()],
        errors=(MisuseError, StorageError),
    ),
    _toml("public-key", PublicIdentity.load, lambda: [ALICE.public.to_toml().encode()]),
    _toml("secret-key", _load_identity, lambda: written(ALICE.save, "alice.key")),
    _toml(
        "token-digests",
        lambda path: TokenBook.load(path, TASK.digest(), 1),
        lambda: written(lambda path: add_tokens(path, TASK.digest(), ["00" * 16, "ab" * 16]), "tokens.toml"),
    ),
    Parser(
        "token-file",
        from_file("token.txt", lambda path: read_token(read_private(path, "ask for one"))),
        lambda: [b"0123456789abcdef0123456789abcdef\n"],
        MISUSE,
        share=SLOW,
        longest=200,
    ),
    Parser(
        "model-npz", from_file("model.npz", load_model), _npz, MISUSE, "model.npz", share=SLOW, memory_per_byte=2_048
    ),
    Parser(
        "model-safetensors",
        from_file("model.safetensors", load_model),
        _safetensors,
        MISUSE,
        "model.safetensors",
        share=SLOW,
        tokens=(b'"dtype":"F32"', b'"shape":[', b'"data_offsets":[', b"18446744073709551615", b"__metadata__"),
    ),
    Parser("operator-port", lambda data: trio.run(_visit, data), _requests, MISUSE, share=SLOW, longest=12_000),
)
