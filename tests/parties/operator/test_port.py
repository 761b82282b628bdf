"""The operator's port on sockets, and the file of its token."""

import os
import stat
from pathlib import Path

import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties.operator import serve_operator
from parties.operator.http import HttpLimits
from parties.operator.token import OperatorToken, read_operator_token, written_token
from parties.storage.store import DiskFullError
from tests.parties.operator.asking import everything, serving
from tests.parties.operator.stage import Host, Stage
from transport import UnreachableError

# ---- on sockets


async def fetch(address: str, path: str = "/healthz") -> bytes:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        return await everything(stream)


async def test_it_serves_at_a_loopback_address_and_leaves_nothing_behind(tmp_path):
    stage, token = Stage(), tmp_path / "token"
    async with serving(stage, token) as address:
        assert (await fetch(address)).startswith(b"HTTP/1.1 200 ")
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert read_operator_token(token)
    assert list(tmp_path.iterdir()) == []
    assert stage.observer.problems.latest() == []
    with pytest.raises(OSError, match="all attempts to connect"):
        await fetch(address)


async def test_an_address_that_others_reach_is_warned_of(tmp_path):
    stage = Stage()
    async with serving(stage, tmp_path / "token", "0.0.0.0:0"):
        (problem,) = stage.observer.problems.latest()
    assert problem.about == "operator-port"
    assert "0.0.0.0: whoever reaches it" in problem.explanation


async def test_a_taken_port_and_a_wrong_address_are_told_apart(tmp_path):
    async with serving(Stage(), tmp_path / "token") as address:
        with pytest.RaisesGroup(pytest.RaisesExc(UnreachableError, match="is the port free")):
            async with serving(Stage(), tmp_path / "other", address):
                pass
    for wrong in ("9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":80", "[::1:80", "http://localhost:80"):
        with pytest.RaisesGroup(pytest.RaisesExc(MisuseError, match="is not an address")):
            async with serving(Stage(), tmp_path / "other", wrong):
                pass


async def test_more_connections_than_there_is_room_for_wait_outside(tmp_path):
    async with serving(Stage(), tmp_path / "token", limits=HttpLimits(connections=2)) as address:
        port = int(address.rpartition(":")[2])
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.move_on_after(0.2) as waited:
            await fetch(address)
        assert waited.cancelled_caught, "both places are taken"
        await idle[0].aclose()
        assert (await fetch(address)).startswith(b"HTTP/1.1 200 ")
        await idle[1].aclose()


# ---- the token


def test_a_token_is_for_its_owner_alone_and_a_new_one_replaces_it(tmp_path):
    path = tmp_path / "s0.sqlite.operator-token"
    path.write_text("an older one")
    path.chmod(0o644)
    with written_token(path) as first:
        text = read_operator_token(path)
        assert first.opens(b"Bearer " + text.encode())
        with written_token(path) as second:
            assert not first.opens(b"Bearer " + read_operator_token(path).encode())
            assert second.opens(b"Bearer " + read_operator_token(path).encode())
            OperatorToken().write(path)
        assert path.exists(), "a third server's token is not taken away by the second"
    assert "token" not in repr(first).lower().replace("operatortoken", "")
    assert text not in repr(first)


async def test_on_a_full_disk_all_is_shown_and_the_token_is_written_when_there_is_room(
    tmp_path, monkeypatch, nursery, autojump_clock
):
    """A server that is started on a full disk waits, as every other one does."""
    real, full = OperatorToken.write, [True] * 3

    def write(token: OperatorToken, path: Path) -> None:
        if full:
            full.pop()
            raise DiskFullError("the operator's token cannot be written: no space left on device")
        real(token, path)

    monkeypatch.setattr(OperatorToken, "write", write)
    stage, path = Stage(), tmp_path / "token"
    token = await nursery.start(_shown, stage, path)
    assert not path.exists()
    with trio.fail_after(60):
        while not path.exists():  # noqa: ASYNC110 - a file sends no events
            await trio.sleep(1)
    assert read_operator_token(path)
    assert token
    assert [problem.times for problem in stage.observer.problems.latest() if problem.about == "store"] == [1]
    nursery.cancel_scope.cancel()


async def _shown(stage: Stage, path: Path, *, task_status: trio.TaskStatus[str]) -> None:
    await serve_operator(Host(stage), "127.0.0.1:0", path, task_status=task_status)


def test_a_token_that_cannot_be_used_says_why(tmp_path):
    with pytest.raises(MisuseError, match="is it running"):
        read_operator_token(tmp_path / "none")
    path = tmp_path / "open"
    path.write_text("x")
    path.chmod(0o644)
    with pytest.raises(MisuseError, match="others can read"):
        read_operator_token(path)
    with pytest.raises(StorageError, match="cannot be written"):
        OperatorToken().write(tmp_path / "no folder" / "token")
    (tmp_path / "bytes").write_bytes(b"\xff")
    os.chmod(tmp_path / "bytes", 0o600)
    with pytest.raises(MisuseError, match="cannot be read"):
        read_operator_token(tmp_path / "bytes")
