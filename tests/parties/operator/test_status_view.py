"""What an operator sees in a terminal, and tells a running server from there."""

import http.server
import io
import json
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from rich.console import Console

from fsl_async.errors import ChannelError, MisuseError
from parties.commands import operating as commands
from parties.commands.application import app
from parties.deployment.operator_port import operator_port
from parties.operator.answers import RoundsAnswer, StatusAnswer, read_answer, round_answer, rounds_answer, status_answer
from parties.operator.http import as_json
from parties.operator.queries import OperatorPort
from parties.operator.terminal import as_text, round_screen, rounds_table, status_screen, watch
from parties.settings.writing import to_toml
from parties.status import RoundSummary
from tests.parties.operator.asking import serving
from tests.parties.operator.paper import Paper
from tests.parties.operator.stage import NASTY, Stage, play_blobs, play_day, play_workers
from tests.support.shop import SERVER_FILE
from transport import ForeignPeerError


@pytest.fixture
def stage(paper: Paper) -> Stage:
    return Stage(paper.log)


def views(stage: Stage) -> tuple[StatusAnswer, Sequence[RoundSummary]]:
    return status_answer(stage.status(), stage.observer), rounds_answer(stage.past).rounds


# ---- what is drawn


def test_the_status_shows_the_round_the_parties_and_what_went_wrong(stage):
    play_day(stage, rounds=24)
    shown = as_text(status_screen(*views(stage)))
    for words in (
        "S0 goods  S1 connected  23 of 65 clients connected  22 rounds done, 2 aborted",
        "Privacy spent: ε 0.91 of 4 (3 of 9 rounds)",
        "round 25 (ssa)",
        "● collect → ○ compute → ○ done   for 1:36, since 09-21 ",
        "clients send their submissions",
        "collecting 96.00 s, computing 0.00 s, waiting for S1 0.00 s; evaluation took 17.40 s of it",
        "the machine's state: Open",
        "37, at most 100",
        "29 of 37",
        "closes in 3:24",
        "waiting for clients",
        "connection failed (HandshakeTimeoutError) ×2: 203.0.113.9: no handshake in 10 s",
        "round 15: S1 was away when the time was over",
    ):
        assert words in shown, f"{words!r} is not in\n{shown}"
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    rounds = [line.split()[0] for line in lines if line.split()[1:2] == ["ssa"]]
    assert rounds == [str(number) for number in range(17, 25)], "the latest ones"


def test_what_waits_or_is_gone_heads_the_view(stage):
    play_day(stage, rounds=2)
    assert "! " not in as_text(status_screen(*views(stage)))
    stage.settle(["alice"], {})
    assert "✓ collect → ✓ compute → ✓ done" in as_text(status_screen(*views(stage)))
    stage.lose_peer()
    stage.held_up = ("this server's own store, out of room or of reach", stage.now - 60)
    shown = as_text(status_screen(*views(stage)), width=200)
    first, second = (line for line in shown.splitlines() if line.startswith("! "))
    assert first.startswith("! S0 is held up, since 09-21 ")
    assert "The opening of round 4 waits for this server's own store, out of room or of reach." in shown
    assert second.startswith("! S1 is not connected, since 09-21 ")
    assert "✓" not in shown, "nothing looks finished while something is gone"


def test_a_cluster_without_workers_and_a_refused_sum_need_a_person(stage):
    stage.meet_peer()
    play_workers(stage)
    assert views(stage)[0].attention == ()
    stage.engine = msgspec.structs.replace(stage.engine, workers=())
    assert [each.about for each in views(stage)[0].attention] == ["No worker is there"]
    stage.engine = msgspec.structs.replace(stage.engine, connected=False)
    assert [each.about for each in views(stage)[0].attention] == ["The cluster is not connected"]


def test_blobs_are_shown_where_there_are_any(stage):
    assert "blobs" not in as_text(status_screen(*views(stage)))
    play_blobs(stage)
    shown = as_text(status_screen(*views(stage)))
    assert "blobs in /var/lib/fsl-async/s0/blobs: 2.5 GB, 80.0 GB free, 1 to be erased" in shown


def test_workers_are_shown_where_there_are_any(stage):
    assert "worker" not in as_text(status_screen(*views(stage)))
    play_workers(stage)
    shown = as_text(status_screen(*views(stage)))
    assert "fsl-5f-01  10.0.0.6      12   180" in shown
    assert "dask at tls://10.0.0.5:8786: 1,204 submissions wait for a worker, 2 partial sums are open" in shown
    stage.engine = msgspec.structs.replace(stage.engine, workers=())
    assert "no worker is there: rounds wait for one" in as_text(status_screen(*views(stage)))
    stage.engine = msgspec.structs.replace(stage.engine, connected=False)
    assert "the cluster at tls://10.0.0.5:8786 is away: rounds wait for it" in as_text(status_screen(*views(stage)))


def test_bars_grow_with_what_is_in(stage):
    stage.meet_peer()
    stage.open_round(1, seconds=float("inf"), minimum=10, maximum=20)
    empty = as_text(status_screen(*views(stage))).splitlines()
    for name in "abcdefghij":
        stage.submit(name)
    half = as_text(status_screen(*views(stage))).splitlines()
    (bar,) = (line for line in half if "submissions " in line and "at most" in line)
    (before,) = (line for line in empty if "at most" in line)
    assert "0, 10 needed, at most 20" in before
    assert "10, at most 20" in bar
    assert "━" not in before
    (whole,) = (line for line in half if "evaluated  " in line)
    assert bar.count("━") == pytest.approx(whole.rindex("  0 of 10") * 0.4, abs=6), "half of what there is room for"
    assert any("closes when enough clients are in" in line for line in half)


def test_between_rounds_it_says_what_is_waited_for(stage):
    shown = as_text(status_screen(*views(stage)))
    assert "between rounds" in shown
    assert "S1, which is not connected" in shown
    assert "S1 not connected" in shown


def test_a_round_of_retrievals_has_no_bars(stage):
    stage.meet_peer()
    stage.open_round(1, protocol="psr")
    stage.retrieve("alice")
    shown = as_text(status_screen(*views(stage)))
    assert "● collect → ○ compute → ○ done" in shown
    assert "1 retrievals answered" in shown
    assert "submissions" not in shown


@pytest.mark.parametrize(
    ("ended", "words"), [("", "✓ collect → ✓ compute → ✓ done"), ("S1 was away", "○ collect → ○ compute → ● aborted")]
)
def test_between_rounds_the_last_one_is_shown_as_it_ended(stage, ended, words):
    stage.meet_peer()
    stage.open_round(1)
    stage.settle([], {}, aborted=ended)
    shown = as_text(status_screen(*views(stage)))
    assert words in shown
    assert "both servers prepare round 2" in shown
    stage.asked = 3
    assert "clients ask to take part in round 2: 3 so far" in as_text(status_screen(*views(stage)))
    stage.asked, stage.resting = 0, True
    assert "no further round opens" in as_text(status_screen(*views(stage)))


def test_one_round_is_shown_with_everybody_and_why(stage):
    stage.open_round(3)
    stage.settle(["alice", "bob"], {"carol": "mismatch"})
    shown = as_text(round_screen(round_answer(stage.past[0])))
    assert "counted: alice, bob" in shown
    assert "not counted: carol (mismatch)" in shown
    assert f"model: items {bytes(32).hex()}" in shown


def test_names_are_neither_markup_nor_escapes(stage):
    names = [NASTY, "[bold red]x[/]", "tab\x1b[2Jend"]
    stage.open_round(3)
    stage.settle(names, {"[link]": "proof"})
    stage.open_round(4)
    stage.settle([], {}, aborted="[red]\x1b]0;title\x07")
    for screen in (round_screen(round_answer(stage.past[0])), rounds_table(rounds_answer(stage.past).rounds)):
        drawn = as_text(screen)
        assert "\x1b" not in drawn
        assert "\x07" not in drawn
    shown = as_text(round_screen(round_answer(stage.past[0])), width=200)
    for name in (NASTY, "[bold red]x[/]", "tab\\x1b[2Jend", "[link]"):
        assert name in shown


class Screen(io.StringIO):
    """What is drawn, and when something is."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = trio.Event()

    def write(self, text: str) -> int:
        self.drawn.set()
        self.drawn = trio.Event()
        return super().write(text)


async def test_the_live_view_follows_the_server_and_outlives_its_restart(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("parties.operator.terminal.PERIOD", 0.01)
    screen = Screen()
    console = Console(file=screen, force_terminal=True, width=100, height=50, color_system=None)

    async def shows(words: str) -> None:
        with trio.fail_after(10):
            while words not in screen.getvalue().rpartition("S0 goods")[2]:
                await screen.drawn.wait()

    async with trio.open_nursery() as nursery:
        async with serving(stage, tmp_path / "token") as address:
            nursery.start_soon(watch, operator_port(f"http://{address}"), console)
            await shows("between rounds")
            stage.open_round(1)
            stage.submit("alice")
            await shows("1, 16 needed, at most 100")
            stage.settle(["alice"], {})
            await shows("1 rounds done")
        await shows("the server does not answer")
        async with serving(stage, tmp_path / "token", address):
            stage.open_round(2)
            await shows("● collect")
        nursery.cancel_scope.cancel()


# ---- commands


@asynccontextmanager
async def deployed(stage: Stage, tmp_path: Path) -> AsyncGenerator[Path, None]:
    """A server's file whose operator's port is a stage's, and the stage serving there."""
    config = tmp_path / "s0.toml"
    async with serving(stage, tmp_path / "s0.sqlite.operator-token") as address:
        config.write_text(to_toml(SERVER_FILE | {"store": "s0.sqlite", "operator": {"listen": address}}))
        yield config


async def called(capsys, command: Callable[[], int]) -> tuple[int, dict]:
    code = await trio.to_thread.run_sync(command)
    return code, json.loads(capsys.readouterr().out)


def words(*line: object) -> Callable[[], int]:
    return lambda: app([str(word) for word in line], exit_on_error=False, print_error=False)


async def test_status_and_rounds_are_data_for_scripts(stage, tmp_path, capsys):
    play_day(stage, rounds=4)
    async with deployed(stage, tmp_path) as config:
        code, found = await called(capsys, words("status", config, "--format", "json"))
        assert (code, found["command"], found["result"]["round"]["number"]) == (0, "status", 5)
        code, found = await called(capsys, words("rounds", "list", config, "--last", 2, "--format", "json"))
        assert (code, [each["number"] for each in found["result"]["rounds"]]) == (0, [3, 4])
        assert found["result"]["running"]["state"] == "Open"
        code, found = await called(capsys, words("rounds", "show", config, 2, "--format", "json"))
        assert (code, found["result"]["clients"]) == (0, list(stage.past[1].report.clients))
        assert await trio.to_thread.run_sync(words("status", config)) == 0, "no terminal: shown once"
        assert "● collect → ○ compute" in capsys.readouterr().out
        assert await trio.to_thread.run_sync(words("rounds", "list", config)) == 0
        assert "round 5 is running: collect, Open" in capsys.readouterr().out


def test_who_leaves_the_live_view_has_not_failed(monkeypatch, capsys):
    async def look(port: OperatorPort, console: Console, task: str) -> None:
        await trio.lowlevel.checkpoint()
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    monkeypatch.setattr("parties.operator.terminal.watch", look)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert commands.status("http://127.0.0.1:9") == 0
    assert capsys.readouterr().err == ""


async def test_a_round_is_given_up_and_the_log_turned_up_from_the_command_line(stage, tmp_path, capsys):
    stage.open_round(1)
    async with deployed(stage, tmp_path) as config:
        assert await trio.to_thread.run_sync(words("rounds", "abort", config, 1, "--because", "a trial")) == 0
        assert stage.aborted == [(1, "a trial")]
        assert capsys.readouterr().out == "round 1 is aborted: a trial\n"
        code, found = await called(capsys, words("rounds", "abort", config, 2, "--because", "x", "--format", "json"))
        assert (code, found["error"]["message"]) == (7, "round 2 is not running")
        code, found = await called(capsys, words("log-level", config, "WARNING", "--format", "json"))
        assert (code, found["result"], stage.log.level) == (0, {"level": "warning"}, "warning")
        code, found = await called(capsys, words("log-level", config, "loud", "--format", "json"))
        assert code == 3
        assert "debug, info, warning, error" in found["error"]["message"]


async def test_a_gathering_is_ended_from_the_command_line(stage, tmp_path, capsys):
    async with deployed(stage, tmp_path) as config:
        code, found = await called(capsys, words("rounds", "draw", config, 1, "--format", "json"))
        assert (code, found["error"]["message"]) == (7, "nobody is to be drawn for round 1 now")
        stage.asked = 12
        assert await trio.to_thread.run_sync(words("rounds", "draw", config, 1)) == 0
        told = "the clients of round 1 are drawn from those that have asked both servers"
        assert (capsys.readouterr().out, stage.drawing) == (f"{told}; 12 have asked this one\n", [1])


async def test_a_round_is_closed_from_the_command_line(stage, tmp_path, capsys):
    async with deployed(stage, tmp_path) as config:
        code, found = await called(capsys, words("rounds", "close", config, 1, "--format", "json"))
        assert (code, found["error"]["message"]) == (7, "round 1 is not open")
        stage.open_round(1)
        stage.connect("alice")
        stage.submit("alice")
        assert await trio.to_thread.run_sync(words("rounds", "close", config, 1)) == 0
        assert capsys.readouterr().out == "round 1 is closed; submissions at this server: 1\n"
        code, found = await called(capsys, words("rounds", "close", config, 1, "--format", "json"))
        assert (code, found["result"], stage.closed) == (0, {"number": 1, "submissions": 1}, [1, 1])


async def test_a_url_does_for_looking_and_needs_a_token_for_more(stage, tmp_path, capsys):
    stage.open_round(1)
    async with deployed(stage, tmp_path) as config:
        url = "http://" + config.read_text().rpartition('listen = "')[2].strip().strip('"')
        assert (await called(capsys, words("status", url, "--format", "json")))[0] == 0
        code, found = await called(capsys, words("rounds", "abort", url, 1, "--because", "x", "--format", "json"))
        assert code == 3
        assert "--token-file" in found["error"]["message"]
        token = tmp_path / "s0.sqlite.operator-token"
        line = words("rounds", "abort", url, 1, "--because", "x", "--token-file", token, "--format", "json")
        assert (await called(capsys, line))[0] == 0
        copy = tmp_path / "older"
        copy.touch(mode=0o600)
        copy.write_text("0" * 64)
        line = words("log-level", url, "info", "--token-file", copy, "--format", "json")
        code, found = await called(capsys, line)
        assert code == 3
        assert "does not hold the running server's token" in found["error"]["message"]


async def test_a_server_that_does_not_run_is_said_to(stage, tmp_path, capsys):
    async with deployed(stage, tmp_path) as config:
        pass
    code, found = await called(capsys, words("status", config, "--format", "json"))
    assert (code, found["error"]["kind"]) == (4, "UnreachableError")
    assert "is the server running" in found["error"]["message"]
    code, found = await called(capsys, words("rounds", "abort", config, 1, "--because", "x", "--format", "json"))
    assert code == 3
    assert "is it running?" in found["error"]["message"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("http://", "the server's TOML file or http://host:port expected"),
        ("https://localhost:80", "http://host:port expected"),
        ("http://localhost:80/metrics", "http://host:port expected"),
        ("no-such.toml", "cannot be read"),
    ],
)
def test_what_is_no_server_is_refused(where, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MisuseError, match=words):
        operator_port(where)


async def test_a_file_without_an_operators_port_says_what_to_add(stage, tmp_path):
    async with deployed(stage, tmp_path) as config:
        text = config.read_text()
    config.write_text(text.partition("[operator]")[0])
    with pytest.raises(MisuseError, match=r"add \[operator\] with listen"):
        operator_port(str(config))
    config.write_text(text.partition("[operator]")[0] + '[operator]\nlisten = "127.0.0.1:0"\n')
    with pytest.raises(MisuseError, match="the system chooses"):
        operator_port(str(config))


@contextmanager
def other_server(body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


FOREIGN = {
    "a page": b"<html>hello</html>",
    "a list": b"[1, 2]",
    "no text": b"\xff\xfe",
    "nothing": b"",
    "another program's object": b'{"status": "ok"}',
    "another release's status": b'{"version": 4}',
    "lists in lists": b"[" * 100_000,
    "objects in objects": b'{"a":' * 100_000,
    "lists in what we do not know": b'{"version": 5, "more": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN.keys())
async def test_another_program_at_the_port_is_not_taken_for_ours(body):
    with other_server(body) as url, pytest.raises(ForeignPeerError, match="is not an operator's port of fsl-async"):
        await operator_port(url).get("/status.json", StatusAnswer)


SAID = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (SAID % (10**18, b'{"version": 5}'), ForeignPeerError),
        (SAID % (10**30, b""), ForeignPeerError),
        (SAID % (4, b'{"version": 5}'), ForeignPeerError),
        (b"\x05\x00 SSH-2.0\r\n", ChannelError),
    ],
    ids=["longer", "far longer", "shorter", "no HTTP"],
)
async def test_an_answer_of_another_length_than_it_says_or_of_no_http_is_not_taken_for_ours(said, error):
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said)

    async with trio.open_nursery() as nursery:
        (listener, *_) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with pytest.raises(error):
            await operator_port(f"http://127.0.0.1:{port}").get("/status.json", StatusAnswer)
        nursery.cancel_scope.cancel()


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("parties.operator.queries.LONGEST_ANSWER", 100_000)
    with other_server(b" " * 200_000) as url, pytest.raises(ForeignPeerError):
        await operator_port(url).get("/status.json", StatusAnswer)


def test_what_is_shown_is_what_is_demanded(stage):
    """Every field of an answer is sent, and is needed, so that a command may rely on all of them."""
    play_day(stage, rounds=24)
    status = status_answer(stage.status(), stage.observer)
    for answer in (status, rounds_answer(stage.past), round_answer(stage.past[0])):
        body = json.loads(as_json(answer))
        assert read_answer(json.dumps(body).encode(), type(answer)) == answer
        for name in body:
            with pytest.raises(ValueError, match=name):
                read_answer(json.dumps({key: body[key] for key in body if key != name}).encode(), type(answer))


def test_what_a_later_server_says_besides_is_passed_over(stage):
    answer = rounds_answer(stage.past)
    more = {**json.loads(as_json(answer)), "more": {"of": ["it"]}}
    assert read_answer(json.dumps(more).encode(), RoundsAnswer) == answer


async def test_a_port_that_cannot_be_is_refused():
    with pytest.raises(ChannelError):
        await operator_port("http://127.0.0.1:99999").get("/status.json", StatusAnswer)


@pytest.mark.parametrize("number", ["0", "-1", "1000000000"])
def test_rounds_that_cannot_be_are_refused_before_anybody_is_asked(number, capsys):
    assert commands.show("http://127.0.0.1:9", int(number), form="json") == 3
    assert "numbered from 1" in json.loads(capsys.readouterr().out)["error"]["message"]
