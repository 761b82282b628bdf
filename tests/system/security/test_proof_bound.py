"""The bound on malformed trees that pass, in small: both events, and any number of spoilt leaves and bins.

The blocks are of 3 bits here, so that a permutation of them can be any of 40,320, and N·2^-125 is a number that shows.
See docs/security.md, §6; the totals for a large round, in a table of §3, are computed here too.
"""

import itertools
import random
import re
from collections import Counter
from fractions import Fraction
from math import log2

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.geometry import geometry_of
from tests import ROOT
from tests.support.reference_tagging import multiply

BLOCKS = 8
PERMUTATIONS = list(itertools.permutations(range(BLOCKS)))
ONE_LEAF = Fraction(1, BLOCKS - 1)
TWO_LEAVES = Fraction(2, BLOCKS - 1) + Fraction(1, BLOCKS - 3)


def tag(permutation: tuple[int, ...], block: int, mask: int) -> int:
    return permutation[block ^ mask] ^ block ^ mask


@pytest.mark.parametrize("difference", range(1, BLOCKS))
def test_a_leaf_where_control_bits_agree_passes_as_often_as_one_value_is_hit(difference: int) -> None:
    hits = sum(
        tag(permutation, 0, mask) == tag(permutation, difference, mask)
        for permutation in PERMUTATIONS
        for mask in range(BLOCKS)
    )
    assert Fraction(hits, len(PERMUTATIONS) * BLOCKS) == ONE_LEAF


def test_two_leaves_pass_less_often_than_the_bound_says_whatever_their_blocks() -> None:
    every = range(BLOCKS)
    tags = np.array([[[tag(some, block, mask) for mask in every] for block in every] for some in PERMUTATIONS[::97]])
    unequal_masks = ~np.eye(BLOCKS, dtype=bool)
    worst = 0.0
    for n1, (m0, m1) in itertools.product(range(1, BLOCKS), itertools.permutations(every, 2)):
        first, second = tags[:, 0] ^ tags[:, n1], tags[:, m0] ^ tags[:, m1]
        passed = first[:, :, None] == second[:, None, :]
        worst = max(worst, passed[:, unequal_masks].mean())
    assert ONE_LEAF < worst < TWO_LEAVES


@pytest.mark.parametrize(("bins", "leaves"), [(1, 2), (1, 3), (1, 6), (2, 2), (4, 2), (4, 6)])
def test_more_spoilt_leaves_or_bins_never_help(bins: int, leaves: int) -> None:
    """Each bin's cs is the best there is, and the leaves' blocks are those that pass most often by themselves."""
    draw = random.Random(f"{bins} {leaves}")
    passed, tries = 0, 4_000
    for _ in range(tries):
        permutation = draw.choice(PERMUTATIONS)
        masks = draw.sample(range(BLOCKS), leaves)
        # equal differences everywhere: the pairs of leaves that can pair off
        wanted = [
            {
                tag(permutation, (n + number) % BLOCKS, mask) ^ tag(permutation, (n + number) % BLOCKS ^ 1, mask)
                for n, mask in enumerate(masks)
            }
            for number in range(bins)
        ]
        passed += all(len(of_bin) == 1 for of_bin in wanted)
    assert passed / tries < float(TWO_LEAVES)
    if leaves > 2:
        assert passed / tries < float(TWO_LEAVES) / 2


# ---- the hash of proofs, in halves of three bits


def test_a_hash_meets_any_difference_under_one_key_in_as_many_as_a_half_has_at_most() -> None:
    """Whatever two values differ in, and whatever the other leaves add: eight keys of 64 pass, and some eight do."""
    most = 0
    for first, second in itertools.combinations(range(64), 2):
        differences = Counter(hashed(first ^ key) ^ hashed(second ^ key) for key in range(64))
        most = max(most, *differences.values())
    assert most == 8


def hashed(value: int) -> int:
    high, low = divmod(value, 8)
    return multiply(low, high)


# ---- the table of what it adds up to (§3)


def test_the_table_of_totals_has_the_numbers_that_follow_from_the_geometry() -> None:
    task = Task(name="large", blocks=[Sparse("rows", rows=2**20, select=10_486)], ring=Ring(64))
    (forest,) = geometry_of(planned(task), planned(task).sparse(0)).forests
    blocks = forest.trees * forest.leaves * forest.planes
    nodes = 1_000 * forest.trees * forest.depth
    tries = evaluations = 2**80

    def row(submissions: int) -> list[Fraction]:
        digest = submissions * Fraction(1, 2**64)
        return [
            tries * Fraction(1, 2**125) + digest + 4 * tries * evaluations * Fraction(1, 2**256),
            digest,
            submissions * blocks**2 * Fraction(1, 2**128),
            (evaluations * nodes + nodes**2) * Fraction(1, 2**126),
        ]

    table = (ROOT / "docs/security.md").read_text().partition("| event | probability at most |")[2].partition("\n\n")[0]
    said = re.findall(r"\| 2\^(-\d+) \| 2\^(-\d+) \|$", table, re.MULTILINE)
    columns = zip(row(1_000), row(2**20), strict=True)
    assert [tuple(map(int, line)) for line in said] == [tuple(round(log2(cell)) for cell in line) for line in columns]
    assert (round(log2(nodes)), 4 * blocks < 2**24) == (27, True)
