"""The parameters of cuckoo hashing, measured over seeds.

A client's rows are hashed by the permutations of a real block and placed by the client's own algorithm, which leaves a
row over only where no placement has it; so what is counted is the failure of the hashing and not of the search.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from examples.paper.cells import Run, Values
from fsl_async import kernels
from fsl_async.bin_count import FAILURE_BITS, bins_per_segment, scale, small_set_log2_failure
from fsl_async.geometry import SEGMENTS
from parties.commands.bench.workload import Case

FIT = 240
"""Bits that one more bin per row gains, by the fit of `fsl_async.bin_count.scale`."""


def failures(run: Run) -> Values:
    """How often rows are left over, with the paper's scale factor and with ours.

    Parameters: `rows` and `select` of the block, `scale` (the paper's ε), `seeds` (how many).
    """
    rows, select, seeds = (int(run.parameters[name]) for name in ("rows", "select", "seeds"))
    paper, ours = math.ceil(run.parameters["scale"] * select / SEGMENTS), bins_per_segment(select, rows)
    left_over: dict[int, list[int]] = {paper: [], ours: []}
    for seed in range(seeds):
        key = hashlib.blake2b(f"{rows} {select} {seed}".encode(), digest_size=32).digest()
        picked = np.random.default_rng((rows, select, seed)).choice(rows, select, replace=False).astype(np.uint32)
        places = np.stack([kernels.Permutation(key, s, rows).forward(picked) for s in range(SEGMENTS)], axis=1)
        for bins, counts in left_over.items():
            counts.append(len(kernels.place(_bins_of(places, rows, bins), bins, key).unplaced))
        run.progress((seed + 1) / seeds, f"seed {seed + 1} of {seeds}")
    return {
        "paper": _counted(select, paper, left_over[paper]),
        "ours": _counted(select, ours, left_over[ours]),
    }


def _bins_of(places: npt.NDArray[np.uint32], rows: int, bins: int) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(places % np.uint32(min(bins, rows)))


def _counted(select: int, bins: int, left_over: list[int]) -> Values:
    bound, factor = small_set_log2_failure(select, bins), SEGMENTS * bins / select
    return {
        "scale": factor,
        "seeds": len(left_over),
        "failures": sum(count > 0 for count in left_over),
        "rows_left_over": sum(left_over),
        "log2_bound": bound if math.isfinite(bound) else None,
        "log2_fit": -FAILURE_BITS - FIT * (factor - scale(select)),
    }


def bin_sizes(run: Run) -> Values:
    """The fullest bin of simple hashing into ε·k bins, over seeds; and the size of our bins, which are all equal.

    Parameters: `rows`, `percents` (of rows selected), `scale` (the paper's ε), `seeds` (how many).
    """
    rows, percents, seeds = run.parameters["rows"], run.parameters["percents"], run.parameters["seeds"]
    values: Values = {}
    for number, percent in enumerate(percents):
        select = round(rows * percent / 100)
        bins = max(1, math.ceil(run.parameters["scale"] * select))
        fullest, of_one = [], []
        for seed in range(seeds):
            run.progress((number + seed / seeds) / len(percents), f"{percent} %, seed {seed + 1} of {seeds}")
            loads = _loads(rows, bins, seed)
            fullest.append(int((loads[0] + loads[1] + loads[2]).max()))
            of_one.append(int(loads[0].max()))
        forest = Case(rows=rows, select=select).forest
        values[f"{percent}"] = {
            "fullest": fullest,
            "fullest_of_one_hash": of_one,
            "bins": bins,
            "ours": {"bin_size": forest.bin_size, "depth": forest.depth, "bins": forest.trees},
        }
    return values


def _loads(rows: int, bins: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """By hash function, how many rows fall into each bin; the functions are ideal ones."""
    generator = np.random.default_rng((rows, bins, seed))
    return [np.bincount(generator.integers(bins, size=rows, dtype=np.uint32), minlength=bins) for _ in range(SEGMENTS)]
