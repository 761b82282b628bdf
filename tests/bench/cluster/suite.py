"""The figures of `bench cluster`: what workers take, what two of them gain, answers from slices, and kills.

Everything is compared with the same work in this process, in the same turns: submissions and trees are read from the
same blobs and compared with their digests there as well. What a server has done when clients sent them is in neither.

Rule: every sum is compared with the one of this process; one that differs ends the command with an error.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from fsl_async.errors import FslError, MisuseError, sole_error
from parties.cluster.partial_sum import ClusterSum, Pace
from parties.commands.bench.machine import cores, require_proc, spent_by
from parties.commands.bench.workload import Case
from parties.compute import ThreadLane
from parties.deployment.compute import WITHOUT_DASK
from parties.server.round.accumulation import InProcess
from parties.server.round.retrieval import Passes, PassesInProcess
from tests.bench.cluster.site import Hands, Site, Turn, add_up, cluster, site
from tests.bench.measures import Spread
from tests.bench.results import Result, Target
from tests.bench.workload import Options

CASE = Case(select=10_486, bits=64, clients=200)
"""What a round has; its submissions are 415 MB in a folder for temporary files."""

PACE = Pace(task_seconds=0.5, patience=60.0)
KILL_CASE = Case(rows=2**16, select=655, bits=64, clients=200)
KILL_PACE = Pace(task_seconds=0.05, patience=60.0, seal=16)
TURNS, KILLS, ANSWERS = 5, 50, 7
SEED = 19

MOST_ONE, MOST_TWO, LEAST_GAIN, MOST_ANSWERS = 1.10, 1.20, 0.9, 1.8


def cluster_suite(options: Options) -> Iterator[Result]:
    """Sums and answers of workers beside this process's, and workers that are killed.

    Raises:
        MisuseError: Dask is not installed, this is not Linux, or an option is not taken.
        FslError: a sum is wrong, or a worker does not join.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MisuseError(WITHOUT_DASK) from error
    require_proc()
    if options.threads is not None:
        raise MisuseError("threads: workers have one each, and two are compared with two threads")
    with sole_error(), _silently():
        yield from trio.run(_sums, options.apply(CASE))
        yield trio.run(_kills, options.apply(KILL_CASE))


@contextmanager
def _silently() -> Iterator[None]:
    """Without warnings: that workers are gone is what is measured."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


# ---- sums and answers


@dataclass
class _Turns:
    """Turns at the same work, one after the other and again."""

    one_thread: list[Turn] = field(default_factory=list)
    two_threads: list[Turn] = field(default_factory=list)
    one_worker: list[Turn] = field(default_factory=list)
    two_workers: list[Turn] = field(default_factory=list)

    def ratio(self, of: Callable[[Turn], float], turns: Sequence[Turn]) -> Spread:
        """What workers take for one unit of what one thread here takes, turn by turn."""
        return Spread.of([of(turn) / here.own for turn, here in zip(turns, self.one_thread, strict=True)])


async def _sums(case: Case) -> list[Result]:
    one, two = ThreadLane(1), ThreadLane(2)
    turns = _Turns()
    async with site(case, one) as here, cluster(here, 1, one) as alone, cluster(here, 2, one) as both:
        for number in range(TURNS + 1):
            found = (
                await add_up(InProcess(one).sum(here.work(one)), here),
                await add_up(alone.sum(PACE), here, alone.identifiers),
                await add_up(InProcess(two).sum(here.work(two)), here),
                await add_up(both.sum(PACE), here, both.identifiers),
            )
            if len({turn.digest for turn in found}) > 1:
                raise FslError("workers and this process do not come to the same sum")
            if number:  # in the first turn kernels are compiled and memory is touched for the first time
                lists = (turns.one_thread, turns.one_worker, turns.two_threads, turns.two_workers)
                for into, turn in zip(lists, found, strict=True):
                    into.append(turn)
        answers = await _answers(here, both, one)
    return [*_costs(case, turns), _gain(case, turns), answers]


def _costs(case: Case, turns: _Turns) -> Iterator[Result]:
    for count, taken, most in ((1, turns.one_worker, MOST_ONE), (2, turns.two_workers, MOST_TWO)):
        ratio = turns.ratio(lambda turn: turn.workers, taken)
        own = Spread.of([1e3 * turn.own / case.clients for turn in taken])
        yield Result(
            name=f"sum of {case.clients} on {_workers(count)}, {case.title}: processors / those of this process",
            parameters=case.parameters() | _spread("ratio", ratio) | _spread("own_milliseconds_a_client", own),
            seconds=Spread.of([turn.workers for turn in taken]),
            rate=ratio.median,
            unit="× the time",
            targets=(Target(ratio.median, "at most", most, "× the time"),),
        )


def _gain(case: Case, turns: _Turns) -> Result:
    workers = [one.seconds / two.seconds for one, two in zip(turns.one_worker, turns.two_workers, strict=True)]
    threads = [one.seconds / two.seconds for one, two in zip(turns.one_thread, turns.two_threads, strict=True)]
    part = Spread.of([ours / theirs for ours, theirs in zip(workers, threads, strict=True)])
    return Result(
        name=f"gain of two workers over one, {case.title}, beside that of two threads over one",
        parameters=case.parameters() | _spread("part", part) | {"processors": cores()},
        seconds=Spread.of([turn.seconds for turn in turns.two_workers]),
        rate=Spread.of(workers).median,
        unit="× the speed",
        bound=Spread.of(threads),
        against="two threads of this process over one",
        targets=(Target(part.median, "at least", LEAST_GAIN, "of the gain of threads"),),
    )


async def _answers(here: Site, both: Hands, lane: ThreadLane) -> Result:
    """Queries that share a pass: on two workers, each with its slice of the model, and here."""
    begun, records = here.begun, here.records
    on_workers, in_process = both.passes(PACE), PassesInProcess(begun.config, 0, begun.model, records, lane)
    await on_workers.begin()
    await in_process.begin()
    workers, own = list[float](), list[float]()
    for number in range(ANSWERS + 1):
        before = _spent(both)
        taken, mine = await _answered(in_process, here)
        workers_idle, before = _spent(both) - before, _spent(both)
        _, theirs = await _answered(on_workers, here)
        if [bytes(each) for each in theirs] != [bytes(each) for each in mine]:
            raise FslError("workers and this process do not give the same answers")
        if number:
            own.append(taken)
            workers.append(max(0.0, _spent(both) - before - workers_idle))
    ratio = Spread.of([theirs / mine for theirs, mine in zip(workers, own, strict=True)])
    count = len(here.asked)
    return Result(
        name=f"{count} queries in a pass, on slices of two workers, {here.case.title}: processors / a pass here",
        parameters=here.case.parameters() | _spread("ratio", ratio) | {"queries": count},
        seconds=Spread.of(workers),
        rate=ratio.median,
        unit="× the time",
        targets=(Target(ratio.median, "at most", MOST_ANSWERS, "× the time"),),
    )


async def _answered(passes: Passes[Any], here: Site) -> tuple[float, Sequence[Any]]:
    """Seconds of this process's processors for one pass, with reading the queries' trees; and the answers."""
    own = time.process_time()
    queries = [await passes.query(asked) for asked in here.asked]
    answers = await passes.answer(queries)
    return time.process_time() - own, answers


def _spent(hands: Hands) -> float:
    return sum(spent_by(process).total for process in hands.identifiers)


def _spread(name: str, spread: Spread) -> dict[str, float]:
    """A figure as parameters of a result."""
    return {f"{name}_median": spread.median, f"{name}_min": spread.least, f"{name}_max": spread.greatest}


def _workers(count: int) -> str:
    return "one worker" if count == 1 else f"{count} workers"


# ---- kills


async def _kills(case: Case) -> Result:
    """Rounds in each of which a worker is killed at a random moment while it adds, and another one started."""
    chance, lane = random.Random(SEED), ThreadLane(1)
    exact, again, under_way, seconds = 0, list[int](), list[int](), list[float]()
    async with site(case, lane) as here, cluster(here, 2, lane) as both:
        expected = await add_up(InProcess(lane).sum(here.work(lane)), here)
        usual = (await add_up(both.sum(KILL_PACE), here)).seconds
        for _ in range(KILLS):
            total = both.sum(KILL_PACE)
            killing = _Killing(both, chance.uniform(0, usual), chance.randrange(2))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(killing.run, total)
                turn = await add_up(total, here)
            exact += turn.digest == expected.digest
            given = sum(state.given_again for state in total.states)
            if given > KILL_PACE.seal + killing.under_way:
                raise FslError(f"{given} clients were given out again: {killing.under_way} were under way")
            again.append(given)
            under_way.append(killing.under_way)
            seconds.append(turn.seconds)
    if exact < KILLS:
        raise FslError(f"{KILLS - exact} of {KILLS} sums are wrong after a kill")
    given_again = Spread.of([float(count) for count in again])
    return Result(
        name=f"{KILLS} kills of workers, {case.clients} clients, {case.title}: exact sums",
        parameters=case.parameters()
        | {"given_again": given_again, "under_way": max(under_way), "seal": KILL_PACE.seal},
        seconds=Spread.of(seconds),
        rate=float(exact),
        unit="exact sums",
        targets=(Target(given_again.greatest, "at most", KILL_PACE.seal + max(under_way), "given out again"),),
    )


@dataclass(eq=False)
class _Killing:
    """Kills one of two workers after some seconds, and starts another.

    Attributes:
        under_way: what the worker had been given and had not reported, at most, when it was killed.
    """

    hands: Hands
    after: float
    which: int
    under_way: int = 0

    async def run(self, total: ClusterSum) -> None:
        """Until the other worker is there."""
        await trio.sleep(self.after)
        process = self.hands.processes[self.which]
        name = self.hands.names[process.pid]
        self._look(total, name)
        await self.hands.kill(process)
        while name in self.hands.pool.workers:
            self._look(total, name)
            await trio.sleep(0.005)
        await self.hands.start()

    def _look(self, total: ClusterSum, name: str) -> None:
        workers = [state.workers[name] for state in total.states if name in state.workers]
        orders = [order for worker in workers for order in worker.orders]
        self.under_way = max(self.under_way, sum(len(order.clients) for order in orders))
