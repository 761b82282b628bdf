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
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import trio

from fsl_async.wire.messages import Message
from parties.compute import ComputeLane, ResultT
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
from .site import SERVERS, Site, peak_memory, say
from .steps import Steps

PARKED_AFTER = 20.0


class Witness:
    """Hears of every message before it leaves: a step, and the round's first of a kind for the other server is told."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._told: set[tuple[str, bytes]] = set()

    def __call__(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        kind = type(message).__name__
        first = (kind, getattr(message, "round_id", b""))
        if receiver in SERVERS and first not in self._told:
            self._told.add(first)
            say(sends=kind, clock=time.monotonic())
        self._steps.step(f"before {kind}")


class SteppingStore(Store):
    """A store whose commits are two steps each, and timed."""

    def __init__(self, inner: Store, steps: Steps, seconds: Counter[str]) -> None:
        self._inner = inner
        self._steps = steps
        self._seconds = seconds

    async def commit(self, *changes: Change) -> None:
        self._steps.step("before a commit")
        started = time.perf_counter()
        await self._inner.commit(*changes)
        self._seconds["store"] += time.perf_counter() - started
        self._steps.step("after a commit")

    async def entries(self, journal: str) -> list[bytes]:
        return await self._inner.entries(journal)

    async def blob(self, key: str) -> memoryview:
        return await self._inner.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        return await self._inner.keys(prefix)

    async def aclose(self) -> None:
        await self._inner.aclose()


class TimedLane(ComputeLane):
    """A lane that adds up the seconds of its work, by the name of the function."""

    def __init__(self, inner: ComputeLane, seconds: Counter[str]) -> None:
        self._inner = inner
        self._seconds = seconds
        self.threads = inner.threads

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        started = time.perf_counter()
        result = await self._inner.run(work)
        self._seconds[_name_of(work)] += time.perf_counter() - started
        return result

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        started = time.perf_counter()
        await self._inner.run_all(work)
        self._seconds["evaluation"] += time.perf_counter() - started


def _name_of(work: Callable[..., object]) -> str:
    plain = work.func if isinstance(work, partial) else work
    return str(getattr(plain, "__qualname__", type(plain).__name__))


class Reporter:
    """Tells the parent in which state the server is, and what it has spent its time on."""

    def __init__(self, seconds: Counter[str], steps: Steps) -> None:
        self._seconds = seconds
        self._steps = steps

    def __call__(self, event: ServerEvent) -> None:
        match event:
            case RoundOpened(number=number):
                say(round=number, state="Open")
            case RoundMoved(number=number, state=state) | Resumed(number=number, state=state):
                say(round=number, state=state, clock=time.monotonic())
                if state != "Open":
                    self._steps.arm()
            case RoundSettled(past=past):
                self._settled(past)

    def _settled(self, past: PastRound) -> None:
        report = past.report
        spent = {**self._seconds, "event loop": time.thread_time()}
        say(
            settled=report.number,
            aborted=report.explanation if report.ended == "aborted" else "",
            counted=len(report.clients),
            seconds=spent,
            memory=peak_memory(),
            clock=time.monotonic(),
        )
        say(round=report.number + 1, state="Tossing")


async def serve(path: Path, steps: Steps) -> None:
    """Serve until the rounds are over or SIGTERM comes; then write down what the server knows."""
    keep_freed_memory()
    await trio.to_thread.run_sync(load_kernels)
    file = ServerFile.load(path)
    seconds = Counter[str]()
    setup = await server_setup(path, file=file)
    store = SteppingStore(setup.store, steps, seconds)
    lane = TimedLane(setup.lane, seconds)
    server = Server(replace(setup, store=store, lane=lane, watch=Witness(steps), observe=Reporter(seconds, steps)))
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
