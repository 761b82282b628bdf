"""The process that talks to Dask for a server, and its program: `python -m parties.cluster.dask_apart`.

Whoever is at the other end of a connection of Dask's can run code in the process at this end: messages are unpickled as
they are read, results and failures of tasks as well, and no setting forbids it. So that process is this one. It holds
no key, inherits no file and no variable of the server's, and is shut out of the server's files where the kernel can do
that (`parties.cluster.confinement`). It ends when its stdin does.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from parties.cluster.confinement import confine, readable
from parties.cluster.frames import (
    ASKED,
    HIDDEN,
    PREFIX,
    Answered,
    Away,
    Begin,
    Begun,
    Call,
    Failed,
    GiveUp,
    Here,
    ReceiveExactly,
    Refused,
    Told,
    form_of,
    framed,
    read,
    receiving,
)

if TYPE_CHECKING:
    import trio

    from parties.cluster.dask_cluster import DaskCluster

__all__: list[str] = []


def main() -> None:
    """Be that process until stdin ends."""
    begin = _first_word()
    pipe = os.dup(1)
    os.dup2(2, 1)  # whatever prints here is not read as a message
    confine(begin.certificates or (), tempfile.gettempdir())
    _speak_in_single_lines()
    import trio

    trio.run(_serve, begin, pipe)


def _speak_in_single_lines() -> None:
    """Say on stderr what is wrong, without tracebacks: each line becomes one of the server's log."""

    def say(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        print(f"{kind.__name__}: {error}", file=sys.stderr)

    class OneLine(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return " ".join(record.getMessage().split())

    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    sys.excepthook = say


def _first_word() -> Begin:
    import msgspec

    return msgspec.msgpack.decode(_read(int.from_bytes(_read(PREFIX), "big")), type=Begin)


def _read(count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = os.read(0, count - len(found))
        if not more:
            sys.exit(0)
        found += more
    return found


async def _serve(begin: Begin, pipe: int) -> None:
    import trio

    mouth = _Mouth(trio.lowlevel.FdStream(pipe))
    await mouth.say(Begun(readable(begin.closed)))
    try:
        from parties.cluster.dask_cluster import DaskCluster, security_with
    except OSError as error:
        await mouth.say(Refused(HIDDEN.format(error)))
        return
    try:
        security = None if begin.certificates is None else security_with(*begin.certificates)
        cluster = DaskCluster(begin.where, security, begin.belongs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stay_connected, cluster, mouth)
            await _listen(cluster, mouth, receiving(trio.lowlevel.FdStream(os.dup(0))))
            nursery.cancel_scope.cancel()
    except (OSError, ValueError) as error:
        await mouth.say(Refused(str(error)))


async def _stay_connected(cluster: DaskCluster, mouth: _Mouth) -> None:
    import trio

    from parties.cluster.cluster import ClusterAwayError, Members

    send, hear = trio.open_memory_channel[Members](100)

    async def pass_on() -> None:
        async for members in hear:
            await mouth.say(Here({str(name): str(host) for name, host in members.items()}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_on)
        try:
            await cluster.stay_connected(send.send_nowait)
        except ClusterAwayError as error:
            await mouth.say(Away(str(error)))
            await trio.sleep_forever()  # the server ends this process


async def _listen(cluster: DaskCluster, mouth: _Mouth, receive: ReceiveExactly) -> None:
    """Do what the server asks, until it hangs up."""
    import trio

    running: dict[int, trio.CancelScope] = {}

    async def carry_out(call: Call) -> None:
        with trio.CancelScope() as running[call.number]:
            await _answer(cluster, mouth, call)
        del running[call.number]

    async with trio.open_nursery() as nursery:
        while True:
            try:
                asked = await read(receive, ASKED)
            except EOFError:
                break
            if isinstance(asked, Call):
                nursery.start_soon(carry_out, asked)
            elif isinstance(asked, GiveUp) and asked.number in running:
                running[asked.number].cancel()
        nursery.cancel_scope.cancel()


async def _answer(cluster: DaskCluster, mouth: _Mouth, call: Call) -> None:
    from fsl_async.errors import FslError
    from parties.cluster.cluster import WorkerLostError

    try:
        reply = await cluster.call(call.worker, call.action, call.order)
    except WorkerLostError as error:
        await mouth.say(Failed(call.number, str(error)))
        return
    try:
        answer = Answered(call.number, bytes(reply.report), tuple(form_of(array) for array in reply.arrays))
        bulk = [array.reshape(-1).view("u1").data for array in reply.arrays if array.size]
    except (FslError, AttributeError, TypeError, ValueError) as error:
        await mouth.say(Failed(call.number, f"it returns no report and arrays: {error}"))
    else:
        await mouth.say(answer, *bulk)


class _Mouth:
    """Says one thing after the other, each as a whole."""

    def __init__(self, stream: trio.abc.SendStream) -> None:
        import trio

        self._stream, self._turn = stream, trio.Lock()

    async def say(self, message: Told, *bulk: Any) -> None:
        import trio

        async with self._turn:
            # Half a message would spoil all that follow; a server that is gone hears nothing.
            with trio.CancelScope(shield=True), suppress(trio.BrokenResourceError):
                for piece in (framed(message), *bulk):
                    await self._stream.send_all(piece)


if __name__ == "__main__":
    main()
