"""Measures the constants of the scaling model (`fsl_async.costs.scaling`) on this machine, in about two minutes.

Evaluation, files and the fold are measured by themselves, with all processors busy: processors that share a core, or
memory, are slower then, and so they are in a round. What a client takes of the event loop and of the store's
thread is measured in deployments of two servers with clients of two sizes; a line is drawn through both. What a
retrieval adds is the difference to the same deployments with clients that retrieve first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import trio

from fsl_async.costs.scaling import ANOTHER_MACHINE, Constants, Line, Retrieval, load_of
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError
from fsl_async.server.retrieval import PermutedModel
from parties.commands.bench.deployed import LARGE, SMALL, Deployed, RoundTaken, Size, take_rounds
from parties.commands.bench.machine import cores, processor_seconds, require_proc, this_machine
from parties.commands.bench.members import name_of
from parties.commands.bench.workload import Case, add_together, aggregate, answer_together, client_of
from parties.commands.plan.calibration import save_constants
from parties.commands.plan.view import aligned
from parties.commands.report import Report
from parties.storage.blobs.folder import FolderBlobs

REPETITIONS = 3
PUTS_AT_ONCE = 16
TURNS = 3
TINY = Case(rows=2**10, select=8, bits=64)
NARROW = Case(rows=2**19, select=5_243, bits=64)
WIDE = Case(rows=2**17, select=1_311, bits=64, width=8)
FEWER = 0.5
"""Of the clients that figures are measured with."""


def calibrated(progress: Callable[[str], None]) -> Constants:
    """Measure all constants.

    Args:
        progress: hears what is measured next.

    Raises:
        MisuseError: this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    require_proc()
    progress("evaluation, on all processors at once")
    constants = _with_evaluation(ANOTHER_MACHINE)
    progress("files")
    constants = _with_files(constants)
    progress("two servers")
    alone = _Deployments.measure()
    progress("the same with clients that retrieve first")
    asking = _Deployments.measure(retrieves=True)
    return replace(
        alone.with_ending(constants),
        machine=this_machine(),
        loop=alone.line("loop"),
        writer=alone.line("writer"),
        retrieval=Retrieval(
            loop=asking.line_beside(alone, "loop"),
            writer=asking.line_beside(alone, "writer"),
            bulk=asking.line_beside(alone, "others", (_answering(SMALL), _answering(LARGE))),
        ),
    )


def calibrate_into(path: Path, report: Report) -> None:
    """Measure all constants, store them in a file, and report them beside another machine's.

    Raises:
        MisuseError: there is no such folder, or this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    if not path.parent.is_dir():
        raise MisuseError(f"--calibrate: there is no folder {path.parent}")
    constants = calibrated(lambda step: report.progress(f"measuring {step}"))
    save_constants(path, constants)
    both = (constants, ANOTHER_MACHINE)
    table = [["constant", "here", "another machine"]]
    table += [[name, *(_shown(name, getattr(each, name)) for each in both)] for name in (*_LINES, *_UNITS)]
    table += [
        [f"retrieval: {name}", *(_shown(name, getattr(each.retrieval, name, None)) for each in both)] for name in _LINES
    ]
    text = [f"Constants of {constants.machine}, in {path}:", "", *aligned(table)]
    report.result("\n".join(text), {"file": str(path), "constants": asdict(constants)})


_LINES = ("loop", "writer", "bulk")
_UNITS = {
    "submission": (1e3, "ms"),
    "leaf": (1e9, "ns"),
    "plane": (1e9, "ns"),
    "proof": (1e9, "ns a byte"),
    "fold": (1e9, "ns a byte"),
    "conclusion": (1e9, "ns a byte"),
    "ending": (1.0, "s"),
    "written": (1.0, "bytes a byte"),
    "disk": (1e-6, "MB/s"),
}


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, Line):
        return f"{1e3 * value.client:.2f} + {1e3 * value.megabyte:.2f} P ms"
    factor, unit = _UNITS[name]
    return f"{factor * value:.3g} {unit}"


# ---- evaluation


def _with_evaluation(constants: Constants) -> Constants:
    """The terms of evaluation, and the fold."""
    tiny, narrow, wide = (_of_case(case) for case in (TINY, NARROW, WIDE))
    proof = _hashing()
    (few, one, several) = (load_of(case.task) for case in (TINY, NARROW, WIDE))
    by_leaf = max(0.0, (narrow.seconds - tiny.seconds) / (one.leaves - few.leaves))
    wide_leaf = max(0.0, (wide.seconds - tiny.seconds) / several.leaves)
    plane = max(0.0, (wide_leaf - by_leaf) / (several.planes / several.leaves - 1))
    leaf = max(0.0, by_leaf - plane - proof * 16 * one.trees / one.leaves)
    fixed = max(0.0, tiny.seconds - few.leaves * by_leaf)
    fold = narrow.fold / one.cells
    return replace(constants, submission=fixed, leaf=leaf, plane=plane, proof=proof, fold=fold)


@dataclass(frozen=True)
class _Evaluated:
    seconds: float
    fold: float


def _of_case(case: Case) -> _Evaluated:
    """Processor seconds of one thread for one submission, and for the fold, while all processors do the same."""
    submissions = [client_of(case, number).submissions()[0] for number in range(4)]

    def one(_: int) -> tuple[list[float], float]:
        state, seconds = aggregate(case, 0), []
        for repetition in range(REPETITIONS + 1):
            begun = time.thread_time()
            add_together(state, submissions, 1)
            if repetition:  # the first one compiles
                seconds.append((time.thread_time() - begun) / len(submissions))
        begun = time.thread_time()
        state.share()
        return seconds, time.thread_time() - begun

    with ThreadPoolExecutor(cores()) as threads:
        told = list(threads.map(one, range(cores())))
    return _Evaluated(median(each for seconds, _ in told for each in seconds), median(fold for _, fold in told))


def _hashing() -> float:
    """Seconds to hash one byte."""
    data = bytes(8 << 20)
    begun = time.thread_time()
    digest(Domain.PROOF, data)
    return (time.thread_time() - begun) / len(data)


# ---- files


def _with_files(constants: Constants) -> Constants:
    """Hashing and writing bulk: processor seconds, and what the disk does."""
    small, large = (trio.run(store_in_folder, size, count) for size, count in ((SMALL_PART, 300), (LARGE_PART, 60)))
    stored = _through(SMALL_PART, small.processor / 300, LARGE_PART, large.processor / 60)
    return replace(
        constants,
        bulk=Line(stored.client, stored.megabyte + _hashing() * 1e6),
        disk=LARGE_PART * 60 / large.seconds,
        written=max(1.0, large.written),
    )


def _through(first: float, at_first: float, second: float, at_second: float) -> Line:
    """The line through two points; none of its terms is below 0."""
    slope = max(0.0, (at_second - at_first) / (second - first))
    return Line(max(0.0, at_first - slope * first), slope * 1e6)


# ---- deployments


ServerPart: TypeAlias = Literal["loop", "writer", "others"]
"""Whose seconds of a server's process are told apart (`Spent`)."""


def _answering(size: Size) -> float:
    """Processor seconds to answer one retrieval by a client of this size, from a model of whole numbers."""
    case = Case(rows=size.rows, select=size.select, bits=64)
    tables = PermutedModel(case.config, 0, {"block": np.zeros((case.rows, 1), np.int64)})
    query = client_of(case, 0).query(0)
    return processor_seconds(lambda: answer_together(tables, [query], cores()), REPETITIONS)


@dataclass(frozen=True)
class _Deployments:
    """What two deployments took whose clients are of two sizes."""

    small: RoundTaken
    large: RoundTaken
    sizes: tuple[Size, Size]

    @staticmethod
    def measure(*, retrieves: bool = False) -> _Deployments:
        sizes = tuple(replace(size, clients=int(FEWER * size.clients)) for size in (SMALL, LARGE))
        small, large = (_middle_of(Deployed(size.task(), size.clients, retrieves=retrieves)) for size in sizes)
        return _Deployments(small, large, (sizes[0], sizes[1]))

    def line(self, of: ServerPart) -> Line:
        """Seconds for a client."""
        return self._line(*self._seconds(of))

    def line_beside(self, other: _Deployments, of: ServerPart, known: tuple[float, float] = (0.0, 0.0)) -> Line:
        """Seconds that a client of these takes beyond one of others of the same sizes, and beyond what is known."""
        (small, large), (less_small, less_large) = self._seconds(of), other._seconds(of)
        return self._line(small - less_small - known[0], large - less_large - known[1])

    def _line(self, small: float, large: float) -> Line:
        first, second = (load_of(size.task()).size for size in self.sizes)
        return _through(first, small, second, large)

    def _seconds(self, of: ServerPart) -> tuple[float, float]:
        """For a small client and a large one; what asking for the outcome takes is seen with the small ones.

        With the large ones, what follows the last receipt is the round's end, of which there is one.
        """
        many, few = (size.clients for size in self.sizes)
        received, told, large = (
            float(getattr(taken.until(moment), of))
            for taken, moment in ((self.small, 0), (self.small, 1), (self.large, 0))
        )
        return told / many, large / few + (told - received) / many

    def with_ending(self, constants: Constants) -> Constants:
        """The seconds of a round's end that grow with nothing, and those that grow with a share."""
        load = load_of(self.sizes[1].task())
        folded = constants.fold * load.cells * 2 / cores()  # of two servers, which share the processors
        more = self.large.ending - self.small.ending - folded
        return replace(constants, ending=self.small.ending, conclusion=max(0.0, more / load.share))


def _middle_of(deployed: Deployed) -> RoundTaken:
    """What it took in the turn in which servers had neither the most nor the least of the processors."""
    return sorted((take_rounds(deployed) for _ in range(TURNS)), key=lambda taken: taken.until(1).total)[TURNS // 2]


SMALL_PART, LARGE_PART = 82_552, 2_073_904
"""Public parts: m = 2^15, k = 256, and m = 2^20, k = 10,486; l = 64, verified."""


class Stored(msgspec.Struct, frozen=True):
    """What storing some bulk took.

    Attributes:
        seconds: until all of it was durable.
        processor: seconds of all threads.
        written: bytes that went to the disk for each byte of it, erasing included; 0 where the folder is in memory.
    """

    seconds: float
    processor: float
    written: float


async def store_in_folder(size: int, count: int) -> Stored:
    """Store so many blobs in a folder, some of them at a time, and erase them."""
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as folder:
        place = await FolderBlobs.open(Path(folder) / "blobs", b"bench")

        async def put(number: int, data: bytes) -> None:
            await place.put(f"round-00000001/parts/{name_of(number)}/submit-0/{number:064x}", data)

        try:
            return await stored_at(put, partial(place.erase, "round-00000001"), size, count)
        finally:
            await place.aclose()


async def stored_at(
    put: Callable[[int, bytes], Awaitable[None]], erase: Callable[[], Awaitable[None]], size: int, count: int
) -> Stored:
    """Store so many pieces of bulk of one size by their numbers, some of them at a time, and erase all of them."""
    data = [bytes([number + 1]) * size for number in range(4)]
    before, processor, begun = _written(), time.process_time(), time.perf_counter()
    turns = iter(range(count))

    async def some() -> None:
        for number in turns:
            await put(number, data[number % len(data)])

    async with trio.open_nursery() as nursery:
        for _ in range(PUTS_AT_ONCE):
            nursery.start_soon(some)
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    await erase()
    return Stored(seconds, processor, (_written() - before) / (size * count))


def _written() -> int:
    """Bytes that this process has given to the disk so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
