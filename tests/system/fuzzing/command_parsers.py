"""What commands read besides files of their own: the command line, the environment, and a running server's answers."""

import io
import re
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

from fsl_async.costs.scaling import ANOTHER_MACHINE
from fsl_async.errors import FslError, MisuseError
from parties.client.arguments import encoded_updates, wanted_rows
from parties.commands.client_options import rows_from, updates_from
from parties.commands.plan.calibration import load_constants, save_constants
from parties.deployment.operator_port import operator_port
from parties.events import Warned
from parties.files.models import load_model
from parties.operator import Log
from parties.operator.answers import (
    VERSION,
    Aborting,
    Drawing,
    LogLevel,
    RoundAnswer,
    RoundsAnswer,
    StatusAnswer,
    read_answer,
    round_answer,
    rounds_answer,
    status_answer,
)
from parties.operator.http import as_json, json_response
from parties.operator.queries import OperatorPort
from parties.operator.terminal import as_text, round_screen, rounds_table, status_screen
from parties.operator.token import OperatorToken, read_operator_token
from parties.settings.party_file import ServerFile
from tests.parties.operator.stage import Stage

from .file_parsers import SERVER_TOML, from_file, written
from .parser import SLOW, Parser
from .samples import TASK, workplace

MISUSE = (MisuseError,)

# ---- a running server's answers

PORT = "127.0.0.1:9464"


class _Said:
    """A connection on which a server has already said all that it is going to say."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def sendall(self, data: bytes) -> None:
        """Nobody listens."""

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)

    def close(self) -> None:
        """There is nothing to close."""


class _Overheard(OperatorPort):
    """Asks a server whose answer stands in the input."""

    def __init__(self, data: bytes) -> None:
        super().__init__(PORT, None)
        self._data = data

    def _dial(self) -> HTTPConnection:
        connection = HTTPConnection(self._address)
        connection.sock = _Said(self._data)
        return connection


def _draw_status(view: StatusAnswer) -> RenderableType:
    return status_screen(view, [])


def _draw_rounds(view: RoundsAnswer) -> RenderableType:
    return rounds_table(view.rounds)


KINDS: tuple[tuple[type, Callable[[Any], RenderableType]], ...] = (
    (StatusAnswer, _draw_status),
    (RoundsAnswer, _draw_rounds),
    (RoundAnswer, round_screen),
    (Aborting, lambda view: f"{view.number} {view.because!r}"),
    (LogLevel, lambda view: view.level),
    (Drawing, lambda view: f"{view.number} {view.asked}"),
)


def _hear(data: bytes) -> None:
    """The first byte says what was asked; an answer to it can be drawn, and printed as JSON."""
    kind, draw = KINDS[int.from_bytes(data[:1], "big") % len(KINDS)]
    view = _Overheard(data[1:])._ask_in_thread(kind, "GET", "/")
    drawn = as_text(draw(view))
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", drawn), "a control character comes through"
    assert read_answer(as_json(view), kind) == view


def _answers() -> list[bytes]:
    stage = Stage(Log("S0", "json", stream=io.StringIO()))
    stage.meet_peer()
    stage.tell(Warned(about="store", explanation="full"))
    stage.open_round(3)
    stage.settle(["alice"], {"bob": "proof"})
    stage.open_round(4)
    stage.submit("alice")
    views = (
        status_answer(stage.status(), stage.observer),
        rounds_answer(stage.past),
        round_answer(stage.past[0]),
        Aborting(version=VERSION, number=3, because="a trial"),
        LogLevel(version=VERSION, level="info"),
        Drawing(version=VERSION, number=3, asked=7),
    )
    return [bytes([number]) + _answered(view) for number, view in enumerate(views)]


def _answered(view: object) -> bytes:
    body = bytes(json_response(view).body)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


HTTP_WORDS = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 503 \r\n",
    b"HTTP/1.0 401 \r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 999999999999999999\r\n",
    b"ffffffffffffffff\r\n",
    b'{"error": "',
)

# ---- the command line and the environment


def _read_rows(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    if text.startswith("@"):  # the name of a file, which is not to be just any
        path = workplace() / "rows.json"
        path.write_bytes(data[1:])
        text = f"@{path}"
    wanted_rows(TASK, {"items": rows_from(text)})


def _read_where(data: bytes) -> None:
    assert repr(operator_port("http://" + data.decode("utf-8", "surrogateescape")))


def _read_environment(data: bytes) -> None:
    """Lines of NAME=VALUE, as a process has them."""
    path = workplace() / "server.toml"
    path.write_text(SERVER_TOML, encoding="utf-8")
    lines = data.replace(b"\0", b"").decode("utf-8", "surrogateescape").split("\n")
    ServerFile.load(path, {name: value for name, _, value in (line.partition("=") for line in lines)})


def _environments() -> list[bytes]:
    settings = {"ROUNDS_CLIENTS": "5", "ROUNDS_SECONDS": "1.5", "LOG_LEVEL": "info", "STORE": "store.db"}
    return ["\n".join(f"FSL_ASYNC_{name}={value}" for name, value in settings.items()).encode(), b"HOME=/root"]


# ---- files that commands are given


def _read_operator_token(path: Path) -> None:
    assert OperatorToken().opens(b"Bearer " + read_operator_token(path).encode()) is False


def _read_update(path: Path) -> None:
    encoded_updates(TASK, updates_from(TASK, load_model(path)))


def _update() -> list[bytes]:
    rows, values = np.array([1, 5]), np.array([[0.5, 1.0], [2.0, -1.0]])
    made = []
    elements = {"items.rows": rows, "items.elements": values.astype(int), "head": np.ones(3, np.int8)}
    for arrays in ({"items.rows": rows, "items.values": values, "head": np.ones(3)}, elements):
        np.savez(file := io.BytesIO(), **arrays)
        made.append(file.getvalue())
    return made


PARSERS = (
    Parser(
        "operator-answer",
        _hear,
        _answers,
        (FslError,),
        share=SLOW,
        tokens=(*HTTP_WORDS, b"1e308", b"9223372036854775808", b"null", b"\\u001b"),
    ),
    Parser("operator-url", _read_where, lambda: [PORT.encode(), b"[::1]:1/", b"example.org:80"], MISUSE, longest=600),
    Parser(
        "operator-token",
        from_file("operator-token", _read_operator_token),
        lambda: written(OperatorToken().write, "token"),
        MISUSE,
        "operator-token",
        share=SLOW,
        longest=200,
    ),
    Parser("rows", _read_rows, lambda: [b"3,17,9", b"@[3, 17, 9]"], MISUSE, share=10 * SLOW),
    Parser(
        "environment",
        _read_environment,
        _environments,
        MISUSE,
        share=SLOW,
        tokens=(b"FSL_ASYNC_LIMITS_CONNECTIONS=", b"FSL_ASYNC_ROUNDS_SECONDS=", b"FSL_ASYNC_", b"nan", b"1e999"),
    ),
    Parser(
        "constants",
        from_file("constants.json", load_constants),
        lambda: written(lambda path: save_constants(path, ANOTHER_MACHINE), "constants.json"),
        MISUSE,
        "constants.json",
        share=SLOW,
    ),
    Parser("update-file", from_file("update.npz", _read_update), _update, MISUSE, share=SLOW, memory_per_byte=2_048),
)
