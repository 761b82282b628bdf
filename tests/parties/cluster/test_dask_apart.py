"""What Dask runs where its messages are read: nothing of it in the server's process, and nothing that reads a key."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio
import trio.testing

from fsl_async.errors import MisuseError
from parties.cluster.apart import DaskApart
from parties.cluster.cluster import WorkerLostError
from parties.cluster.frames import TOLD, Answered, ArrayForm, array_of, form_of, framed, read, receiving
from parties.settings.writing import free_addresses
from tests import ROOT

WORDS = "the key of the server"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "s0.key"
    path.write_text(WORDS)
    return path


@pytest.fixture
def landlock() -> None:
    tried = "from parties.cluster.confinement import confine; raise SystemExit(not confine((), '/tmp'))"
    if subprocess.run([sys.executable, "-c", tried], cwd=ROOT, check=False).returncode:
        pytest.skip("this kernel has no Landlock")


@asynccontextmanager
async def hostile(tell: int, key) -> AsyncIterator[str]:
    """The address of a scheduler with a hostile worker."""
    (address,) = free_addresses(1)
    words = [sys.executable, "-m", "tests.support.hostile_worker", address, str(tell), str(key)]
    process = await trio.lowlevel.open_process(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        assert (await process.stdout.receive_some()).startswith(b"ready")
        yield f"tcp://{address}"
    finally:
        process.kill()
        await process.wait()


async def test_what_a_worker_returns_or_raises_runs_in_a_process_that_cannot_read_the_key(key, landlock):
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    told: list[str] = []
    say, heard = trio.open_memory_channel[str](10)

    async def listen(stream: trio.SocketStream) -> None:
        await say.send((await stream.receive_some()).decode())

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, listen, [listener])
        async with hostile(listener.socket.getsockname()[1], key) as where:
            cluster, joined = DaskApart(where, None, "fsl-hostile", (key,)), trio.Event()
            nursery.start_soon(cluster.stay_connected, lambda members: joined.set() if members else None)
            with trio.fail_after(60):
                await joined.wait()
                for action in ("hello", "seal"):
                    with pytest.raises(WorkerLostError):
                        await cluster.call("fsl-hostile-1", action, b"")
                while sum(words.endswith("PermissionError") for words in told) < 2:
                    told.append(await heard.receive())
        nursery.cancel_scope.cancel()
    assert not any(words.startswith(f"{os.getpid()} ") for words in told)


async def test_only_arrays_of_whole_numbers_come_from_there():
    sends, receives = trio.testing.memory_stream_one_way_pair()
    receive = receiving(receives)
    array = np.arange(6, dtype="<u8").reshape(3, 2)
    answer = Answered(4, b"report", (form_of(array),))
    await sends.send_all(framed(answer) + array.tobytes())
    told = await read(receive, TOLD)
    assert told == answer
    np.testing.assert_array_equal(await array_of(receive, told.arrays[0]), array)
    for numbers, shape in (("|O", (1,)), ("<f8", (1,)), ("<u8", (-1,)), ("<u8", (1,) * 9)):
        with pytest.raises(MisuseError, match="whole numbers"):
            await array_of(receive, ArrayForm(numbers, shape))
    with pytest.raises(MisuseError, match="whole numbers"):
        form_of(np.array([object()]))
