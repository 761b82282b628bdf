"""One server as a process: `python -m tests.system.soak.server_process FILE [--die-at STEP [--once-closed]]`.

It is the server that `fsl-async serve FILE` runs, made from the same file, with two things more: it tells its parent
what it does (see `site.say`), and it can be told to kill itself at a given step. A step is the moment before or after a
commit to its store, or before a message leaves: the moments at which a crash could leave a trace. Steps are counted
from the start, or from the moment when a round is no longer open: what happens then is over quickly, and only so is hit
as often as the rest.

It ends when the rounds of its file are over, or on SIGTERM, and then writes the accounts of all rounds.
"""

import argparse
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import trio

from fsl_async.wire.messages import Message
from parties.deployment.process import load_kernels
from parties.deployment.process_memory import collecting_seldom, keep_freed_memory
from parties.deployment.server import server_setup
from parties.events import Resumed, RoundMoved, RoundOpened, RoundSettled, ServerEvent
from parties.files.models import save_model
from parties.server.server import Server
from parties.settings.party_file import ServerFile
from parties.status import PastRound
from parties.storage.store import Change, Store

from .audit import Account
from .site import Site, say
from .steps import Steps

PARKED_AFTER = 20.0


class SteppingStore(Store):
    """A store whose commits are two steps each."""

    def __init__(self, inner: Store, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    async def commit(self, *changes: Change) -> None:
        self._steps.step("before a commit")
        await self._inner.commit(*changes)
        self._steps.step("after a commit")

    async def entries(self, journal: str) -> list[bytes]:
        return await self._inner.entries(journal)

    async def blob(self, key: str) -> memoryview:
        return await self._inner.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        return await self._inner.keys(prefix)

    async def aclose(self) -> None:
        await self._inner.aclose()


def reporting(steps: Steps) -> Callable[[ServerEvent], None]:
    """Tells the parent in which state the server is, and arms the steps once a round is not open any more."""

    def report(event: ServerEvent) -> None:
        match event:
            case RoundOpened(number=number):
                say(round=number, state="Open")
            case RoundMoved(number=number, state=state) | Resumed(number=number, state=state):
                say(round=number, state=state)
                if state != "Open":
                    steps.arm()
            case RoundSettled(past=PastRound(report=settled)):
                aborted = settled.explanation if settled.ended == "aborted" else ""
                say(settled=settled.number, aborted=aborted, counted=len(settled.clients))
                say(round=settled.number + 1, state="Tossing")

    return report


async def serve(path: Path, steps: Steps) -> None:
    """Serve until the rounds are over or SIGTERM comes; then write down what the server knows."""
    keep_freed_memory()
    await trio.to_thread.run_sync(load_kernels)
    file = ServerFile.load(path)
    setup = await server_setup(path, file=file)
    store = SteppingStore(setup.store, steps)

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        steps.step(f"before {type(message).__name__}")

    server = Server(replace(setup, store=store, watch=watch, observe=reporting(steps)))
    try:
        with collecting_seldom():
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run)
                say(listens=file.listen)
                await _until_over(server, file)
                await _write_down(server, Site(path.parent), file.server)
                nursery.cancel_scope.cancel()
    finally:
        await store.aclose()
    say(steps=steps.taken)


async def _until_over(server: Server, file: ServerFile) -> None:
    async def on_request(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            await anext(signals)
            await server.wind_up(PARKED_AFTER)
            scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(on_request, nursery.cancel_scope)
        async for _ in server.settlements():
            pass
        await server.drain(file.drain_seconds)
        nursery.cancel_scope.cancel()


async def _write_down(server: Server, site: Site, index: int) -> None:
    accounts = [_account(past) for past in await server.past_rounds(most=10**9)]
    site.accounts(index).write_bytes(msgspec.json.encode(accounts))
    await trio.to_thread.run_sync(save_model, site.final_model(index), server.model)


def _account(past: PastRound) -> Account:
    report = past.report
    return Account(
        number=report.number,
        round_id=report.round_id.hex(),
        protocol=past.protocol,
        aborted=report.explanation if report.ended == "aborted" else "",
        clients=list(report.clients),
        excluded=report.excluded,
        union={block.name: block.digest.hex() for block in report.union},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--die-at", type=int, default=0, metavar="STEP")
    parser.add_argument("--once-closed", action="store_true", help="count steps from the end of the open state on")
    arguments = parser.parse_args()
    trio.run(serve, arguments.file, Steps(arguments.die_at, armed=not arguments.once_closed))


if __name__ == "__main__":
    main()
