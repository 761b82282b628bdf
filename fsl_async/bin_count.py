"""What servers write into a round's configuration: how many bins a segment has, and which blocks need none.

Rules: a client reads the number and never computes it (`geometry.bin_limits` is what it refuses); a session's trees
outlive a release, so a release that chooses otherwise cannot go on with the sessions of another one.

**Bins.** A client's rows fit except with probability 2^-40.

A client places k rows, each in its bin of one of η = 3 segments, b bins to a segment. By Hall's theorem that fails
exactly when some s of its rows have fewer than s bins between them. Take such a set with no smaller one inside it.
It has s - 1 bins, and every one of them serves at least two of its rows: without any one row the others would still
need them all. With bins independent and uniform, the chance that such a set exists is at most

    Σ_{s≥4}  C(k,s) · Σ_{a₁+a₂+a₃ = s-1}  Π_i C(b, a_i) · N(s, a_i) / b^s                                        (1)

where N(s, a) counts the maps of s rows onto a bins that hit each at least twice; N(s, a) ≤ a^s, so this is never
above the familiar Π C(b, a_i)·(a_i/b)^s. The first term, four rows that share all three bins, is C(k,4)·b^-9 and
outweighs the others up to about 500 rows. Its b alone is the (C(k,4)·2^40)^(1/9) of small sets.

The sum is not cut off. Up to `LARGEST_EXACT` it is evaluated as written. Beyond, N(s, a) has the generating
function s!·[z^s] (e^z - 1 - z)^a, hence N(s, a) ≤ s!·g^a/λ^s for every λ > 0 with g = e^λ - 1 - λ, and
Vandermonde's identity closes the inner sum:

    t(s) = C(k,s) · (s! / (λ·b)^s)³ · g^(s-1) · C(3b, s-1)                                                       (2)

As t(s+1)/t(s) = g/(λb)³ · (k-s)(s+1)²(3b-s+1)/s is log-concave in s, t falls, may rise to one peak (s near 0.65·k,
about half of all bins), and falls again. `LARGEST_SUMMED` terms are summed one by one, and the rest counted as k
times their largest.

Without the "at least twice" (2) would exceed 1 around that peak for every useful b, and the sum would have to be
cut off there by trust in experiments. With it the bound holds as written, and requires 3b/k of about 1.296 for large k.
Experiments require a little more there, so their fit is a second condition (`scale`); b satisfies both.

Rows of one segment are drawn without replacement (the segment is a permutation), into bins that differ in size by at
most one. Two rows then meet with probability at most 1/b, so independent bins are taken as the worse case; tests count
failures of real permutations against (1). With b = m every row has a bin of its own in every segment, and nothing can
fail.

**No bins.** A block moves plainly in a round that is aligned on a union

- if its union has no more rows than the block has trees. Every tree takes a hint as long as a row, so trees would send
  more. A client changes at most one row with each tree, so plainly it can change no more rows than with verified trees;
- in a semi-honest task with new trees in every round, also if retrieval and update together send fewer bytes plainly,
  and send and receive fewer.

Rule: moving a block plainly never lets a client of a verified task change more rows than trees would (docs/adr/0012).

Source: (1) and (2) are this project's own, the fit has its source at `scale`; the paper §"Parameter Choices" prints
scale factors and does not derive them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel
from fsl_async.errors import MisuseError
from fsl_async.geometry import SEGMENTS, geometry_of
from fsl_async.task import Binned, Sparse, Task
from fsl_async.union import UnionBlock, planted, rows_of, shape_of_round
from fsl_async.wire.public_part import Layout, Trees

FAILURE_BITS = 40
MOST_ROWS = 2**32

SMALLEST_VIOLATION = 4
LARGEST_EXACT = 32
LARGEST_SUMMED = 4096
# λ that minimises g^(s/3)/λ^s: the root of λ(e^λ - 1) = 3g, for three rows to a bin. Any λ > 0 gives a bound.
TILT = 2.1491
TILTED_BIN = math.expm1(TILT) - TILT

Floats = npt.NDArray[np.float64]


def bins_of_round(task: Task, union: tuple[UnionBlock, ...], model: tuple[BlockModel, ...]) -> tuple[int, ...]:
    """What a round's configuration says of each sparse block: how many bins a segment has, 0 where it moves plainly."""
    weight_bytes = {entry.name: entry.weight_bytes for entry in model}
    found = []
    for _, named in task.sparse_blocks():
        stands = planted(task, named, union)
        block = Binned.of(stands, bins_per_segment(stands.select, stands.rows))
        plainly = union and moves_plainly(task, block, rows_of(union, named), weight_bytes[named.name])
        found.append(0 if plainly else block.bins)
    return tuple(found)


@lru_cache(maxsize=64)
def planned(task: Task) -> Task:
    """A task as a round over all rows works on it: what sizes follow from before a round is open."""
    return shape_of_round(task, "ssa", (), bins_of_round(task, (), ()))


def moves_plainly(task: Task, block: Binned, rows: int, weight_bytes: int) -> bool:
    """Whether a block is moved plainly in a round that is aligned on a union.

    Args:
        task: what is learnt.
        block: the block as this round would move it with trees.
        rows: of the union, at least one.
        weight_bytes: of one of the model's weights.
    """
    trees = geometry_of(task, block).trees
    if rows <= trees:
        return True
    if task.verified or task.selection == "fixed":
        return False
    shared = rows * block.width * task.ring.element_bytes
    planted = _planted_bytes(task, block)
    more_rows_than_answers = rows - 2 * trees
    return shared <= planted and shared + more_rows_than_answers * block.width * weight_bytes <= planted


def _planted_bytes(task: Task, block: Sparse) -> int:
    """What a client sends for a block that it retrieves and updates with trees of this round."""
    alone = task.carrying(block)
    trees = Trees.RETRIEVAL if task.updates == "retrieved" else Trees.OWN
    return Layout.retrieval(alone).size + Layout.submission(alone, trees).size


@lru_cache(maxsize=1024)
def bins_per_segment(select: int, rows: int) -> int:
    """b, the bins of each of the three segments for `select` rows chosen among `rows`.

    The smallest b, but at most `rows`, for which both the fit of `scale` and the bound of `small_set_log2_failure`
    put the chance of a row left over at 2^-40 or less.

    Raises:
        MisuseError: not 1 ≤ select ≤ rows ≤ 2^32.
    """
    if not 1 <= select <= rows <= MOST_ROWS:
        raise MisuseError(f"expected 1 ≤ select ≤ rows ≤ {MOST_ROWS}, got select={select} and rows={rows}")
    enough = math.ceil(scale(select) * select / SEGMENTS)
    if _suffices(select, enough):
        return min(enough, rows)
    too_few, enough = enough, 2 * enough
    while not _suffices(select, enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if _suffices(select, middle) else (middle, enough)
    return min(enough, rows)


def scale(select: int) -> float:
    """ε(k), bins per row at which experiments with large tables put the chance of failure at 2^-40.

    The fit 40 = 240·ε - log₂ k - 256 for three hash functions and no stash, made with tables of 2^10 rows and more:
    1.275, 1.296 and 1.317 at k = 2^10, 2^15 and 2^20.

    Source: `selectParams` of cryptoTools (github.com/ladnir/cryptoTools, cryptoTools/Common/CuckooIndex.cpp).
    """
    return (FAILURE_BITS + math.log2(select) + 256) / 240


def _suffices(select: int, bins: int) -> bool:
    return small_set_log2_failure(select, bins) <= -FAILURE_BITS


@lru_cache(maxsize=1024)
def small_set_log2_failure(select: int, bins: int) -> float:
    """log₂ of the bound (1) on the chance that `select` rows do not fit into three segments of `bins` bins.

    It is a union bound, and above 0 where it says nothing. -inf where no failure is possible.
    """
    if select < SMALLEST_VIOLATION:
        return -math.inf
    if select > SEGMENTS * bins:
        return 0.0
    exact = [log_exact_term(select, bins, size) for size in range(4, min(select, LARGEST_EXACT) + 1)]
    logs = np.concatenate([np.array(exact), log_tilted_terms(select, bins)])
    return float(np.logaddexp.reduce(logs)) / math.log(2)


def log_exact_term(select: int, bins: int, size: int) -> float:
    """The natural logarithm of one term of (1)."""
    most = min(size // 2, bins)
    onto = np.array([_log_choose(bins, a) for a in range(1, most + 1)]) + _log_maps_onto_twice(size)[:most]
    top = float(onto.max())
    weights = np.exp(onto - top)
    # Index i of the threefold convolution is a₁ + a₂ + a₃ = i + 3.
    ways = np.convolve(np.convolve(weights, weights), weights)
    index = size - 1 - SEGMENTS
    if index >= len(ways):
        return -math.inf
    return _log_choose(select, size) + math.log(ways[index]) + SEGMENTS * (top - size * math.log(bins))


@lru_cache(maxsize=LARGEST_EXACT)
def _log_maps_onto_twice(size: int) -> Floats:
    """Ln N(size, a) for a = 1 … size // 2."""
    return np.array([math.log(maps_onto_twice(size, bins)) for bins in range(1, size // 2 + 1)])


@lru_cache(maxsize=LARGEST_EXACT**2)
def maps_onto_twice(size: int, bins: int) -> int:
    """N(size, bins), maps of `size` rows onto `bins` bins with at least two rows in each.

    The last row joins a bin that has its two without it, or makes the pair of one that would have one.
    """
    if bins == 0 or size < 2 * bins:
        return int(size == bins == 0)
    return bins * (maps_onto_twice(size - 1, bins) + (size - 1) * maps_onto_twice(size - 2, bins - 1))


def log_tilted_terms(select: int, bins: int) -> Floats:
    """Natural logarithms that add up to at least (2) over all set sizes above `LARGEST_EXACT`."""
    first, last = LARGEST_EXACT + 1, min(select, LARGEST_SUMMED)
    if first > last:
        return np.empty(0)
    growth = log_growth(select, bins, np.arange(first, last))
    terms = log_tilted_term(select, bins, first) + np.concatenate([np.zeros(1), np.cumsum(growth)])
    if select == last:
        return terms
    largest = max(terms[-1], log_tilted_term(select, bins, _peak(select, bins)))
    return np.append(terms, largest + math.log(select - last))


def log_tilted_term(select: int, bins: int, size: int) -> float:
    """Ln t(size)."""
    rows = SEGMENTS * (math.lgamma(size + 1) - size * math.log(TILT * bins))
    sets = _log_choose(select, size) + _log_choose(SEGMENTS * bins, size - 1)
    return sets + rows + (size - 1) * math.log(TILTED_BIN)


def log_growth(select: int, bins: int, size: npt.NDArray[np.int64]) -> Floats:
    """Ln t(size + 1)/t(size) for LARGEST_EXACT < size < select."""
    size = size.astype(np.float64)
    rows = np.log(select - size) + 2 * np.log(size + 1) - np.log(size)
    constant = math.log(TILTED_BIN) - SEGMENTS * math.log(TILT * bins)
    return np.asarray(rows + np.log(SEGMENTS * bins - size + 1) + constant)


def _peak(select: int, bins: int) -> int:
    """The size above `LARGEST_SUMMED` where t has its inner peak; any size above it where t only falls."""
    sizes = np.linspace(LARGEST_SUMMED, select - 1, 1024).astype(np.int64)
    rising = int(sizes[np.argmax(log_growth(select, bins, sizes))])
    falling = select
    while falling - rising > 1:
        middle = (rising + falling) // 2
        grows = log_growth(select, bins, np.array([middle]))[0] > 0
        rising, falling = (middle, falling) if grows else (rising, middle)
    return falling


@lru_cache(maxsize=1 << 14)
def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
