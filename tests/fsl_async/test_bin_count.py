import itertools
import math

import numpy as np
import pytest

from fsl_async.bin_count import (
    LARGEST_EXACT,
    bins_per_segment,
    log_exact_term,
    log_growth,
    log_tilted_term,
    log_tilted_terms,
    maps_onto_twice,
    scale,
    small_set_log2_failure,
)
from fsl_async.blocks import Sparse
from fsl_async.errors import MisuseError
from fsl_async.geometry import LEAST_BINS, bin_limits
from fsl_async.kernels.rows.cuckoo import place
from fsl_async.kernels.rows.permutation import Permutation
from tests.support.cases import in_turn, often


@pytest.mark.parametrize(
    ("select", "bins"), [(32, 71), (418, 225), (1024, 458), (10_486, 4548), (104_858, 45_538), (2**20, 460_209)]
)
def test_known_parameters(select: int, bins: int) -> None:
    assert bins_per_segment(select, 2**25) == bins


def test_scale_is_the_cited_fit() -> None:
    assert [round(scale(2**power), 3) for power in (10, 15, 20)] == [1.275, 1.296, 1.317]


@pytest.mark.parametrize("selections", often(1, [2**12, 2**20]))
def test_no_client_refuses_what_servers_choose(selections: int) -> None:
    """Neither number falls in a line of the table, so one selection's b covers all whose least is not above it."""
    first, most = 1, 2**32
    while first <= selections:
        bins = bins_per_segment(first, 2**32)
        assert bins <= most, first  # and so is every smaller b since the selection with that limit
        end, each = next(line for line in LEAST_BINS if first <= line[0])
        last = min(end, selections, bins * 100 // each)
        assert bin_limits(Sparse("a", rows=2**32, select=last))[0] <= bins, (first, last)
        most = bin_limits(Sparse("a", rows=2**32, select=first))[1]
        assert first <= last
        first = last + 1
    assert bins_per_segment(selections, 2**32) <= most


@in_turn("select", [1, 3, 4, 40, 300, 5000])
def test_few_rows_have_limits_of_their_own(select: int) -> None:
    for rows in {select, select + 1, 2 * select, 9 * select}:
        least, most = bin_limits(Sparse("a", rows=rows, select=select))
        assert least <= bins_per_segment(select, rows) <= most <= rows


@in_turn("select", [4, 15, 16, 63, 64, 255, 256, 1023, 1024, 2**15, 2**20])
def test_a_placement_into_the_fewest_bins_fails_with_a_probability_of_2_29_at_most(select: int) -> None:
    """By sets of up to 32 rows and by the fit; the bound on larger sets is too loose to say anything there."""
    bins, _ = bin_limits(Sparse("a", rows=2**32, select=select))
    small = np.logaddexp.reduce([log_exact_term(select, bins, size) for size in range(4, min(select, 32) + 1)])
    assert small / math.log(2) <= -29
    assert 240 * 3 * bins / select - math.log2(select) - 256 >= 29 or select < 2**10  # the fit is of large tables


@in_turn("select", [4, 15, 16, 63, 64, 255, 256, 1023, 1024, 2**15, 2**20])
def test_servers_may_come_to_choose_so_many_bins_that_a_placement_fails_with_2_64(select: int) -> None:
    _, bins = bin_limits(Sparse("a", rows=2**32, select=select))
    assert small_set_log2_failure(select, bins) <= -64
    assert 240 * 3 * bins / select - math.log2(select) - 256 >= 64


@pytest.mark.parametrize("select", [4, 5, 16, 100, 418, 700, 3000, 5000, 20_000, 300_000])
def test_bins_are_enough_and_no_more(select: int) -> None:
    bins = bins_per_segment(select, 2**32)
    assert bins >= math.ceil(scale(select) * select / 3)
    assert small_set_log2_failure(select, bins) <= -40
    fewer = bins - 1
    assert small_set_log2_failure(select, fewer) > -40 or fewer < scale(select) * select / 3


def test_first_term_alone_is_met() -> None:
    for select in (4, 8, 32, 418, 5000):
        bins = bins_per_segment(select, 2**32)
        assert math.log2(math.comb(select, 4)) - 9 * math.log2(bins) <= -40


@pytest.mark.parametrize("select", [1, 2, 3])
def test_three_rows_never_fail(select: int) -> None:
    assert small_set_log2_failure(select, 1) == -math.inf


def test_more_rows_than_bins_fail() -> None:
    assert small_set_log2_failure(31, 10) == 0.0


def test_never_more_bins_than_rows() -> None:
    assert bins_per_segment(32, 40) == 40
    assert bins_per_segment(40, 40) == 40
    bins_of = np.stack([Permutation(b"key", segment, 40).table() % 40 for segment in range(3)], axis=1)
    assert len(place(bins_of.astype(np.uint32), 40, bytes(16)).unplaced) == 0


@pytest.mark.parametrize(("select", "rows"), [(0, 5), (6, 5), (-1, 5), (5, 2**32 + 1)])
def test_refuses_what_is_out_of_range(select: int, rows: int) -> None:
    with pytest.raises(MisuseError, match="expected 1 ≤ select"):
        bins_per_segment(select, rows)


@pytest.mark.parametrize(("size", "bins"), [(2, 1), (4, 1), (4, 2), (5, 2), (6, 3), (7, 3), (3, 2)])
def test_maps_that_hit_every_bin_twice(size: int, bins: int) -> None:
    maps = itertools.product(range(bins), repeat=size)
    count = sum(all(chosen.count(bin_) >= 2 for bin_ in range(bins)) for chosen in maps)
    assert maps_onto_twice(size, bins) == count


@pytest.mark.parametrize(("select", "bins"), [(10, 5), (40, 20), (60, 40)])
def test_exact_terms_are_the_sum_as_written(select: int, bins: int) -> None:
    for size in range(4, 13):
        inner = 0
        for a, b in itertools.product(range(1, size), repeat=2):
            c = size - 1 - a - b
            if c >= 1 and max(a, b, c) <= bins:
                chosen = math.prod(math.comb(bins, each) for each in (a, b, c))
                inner += chosen * math.prod(maps_onto_twice(size, each) for each in (a, b, c))
        expected = math.comb(select, size) * inner / bins ** (3 * size) if size <= select else 0
        if expected:
            term = log_exact_term(select, bins, size)
            assert math.isclose(math.exp(term), expected, rel_tol=1e-9)


def test_tilted_terms_bound_the_exact_ones() -> None:
    for select, bins in ((300, 180), (1024, 458), (10_486, 4548)):
        for size in range(4, 60):
            tilted = log_tilted_term(select, bins, size)
            assert tilted >= log_exact_term(select, bins, size)


@pytest.mark.parametrize(("select", "bins"), [(10_486, 4548), (10_486, 4400), (40_000, 17_400), (200_000, 90_000)])
def test_the_rest_is_bounded_by_its_peak(select: int, bins: int) -> None:
    """The terms beyond the summed ones, added up one by one, stay below what was counted for them."""
    sizes = np.arange(LARGEST_EXACT + 1, select)
    first = log_tilted_term(select, bins, int(sizes[0]))
    terms = first + np.concatenate([[0.0], np.cumsum(log_growth(select, bins, sizes))])
    counted = np.logaddexp.reduce(log_tilted_terms(select, bins))
    assert np.logaddexp.reduce(terms) <= counted + 1e-6
    assert math.isclose(terms[-1], log_tilted_term(select, bins, select), abs_tol=1e-5)


def test_bound_falls_with_bins_and_rises_with_rows() -> None:
    by_bins = [small_set_log2_failure(418, bins) for bins in range(150, 400, 10)]
    assert by_bins == sorted(by_bins, reverse=True)
    by_select = [small_set_log2_failure(select, 300) for select in range(4, 700, 20)]
    assert by_select == sorted(by_select)


def failures(select: int, bins: int, rows: int, draws: int) -> float:
    """The share of selections that do not fit, each in a permutation of its own; placement is exact."""
    failed = 0
    chosen = np.arange(select, dtype=np.uint32)
    for draw in range(draws):
        key = draw.to_bytes(4, "little")
        places = [Permutation(key, segment, rows).forward(chosen) % np.uint32(bins) for segment in range(3)]
        failed += len(place(np.stack(places, axis=1), bins, bytes(16)).unplaced) > 0
    return failed / draws


@pytest.mark.parametrize("draws", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("select", "bins", "rows", "looseness"),
    [
        (4, 2, 4096, 1),  # four rows: the first term is the whole bound, and exact
        pytest.param(5, 2, 4096, 2, marks=pytest.mark.slow),
        pytest.param(8, 4, 4096, 2, marks=pytest.mark.slow),
        pytest.param(16, 7, 4096, 5, marks=pytest.mark.slow),
        pytest.param(24, 11, 4096, 10, marks=pytest.mark.slow),
        (16, 7, 60, math.inf),  # few rows: drawing without replacement spreads them out
    ],
)
def test_measured_failures_meet_the_bound(select: int, bins: int, rows: int, looseness: float, draws: int) -> None:
    """Below the bound, and not far below: a union bound counts every way to fail as if it came alone."""
    bound = 2 ** small_set_log2_failure(select, bins)
    measured = failures(select, bins, rows, draws)
    noise = 5 * math.sqrt(bound / draws)
    assert bound / looseness - noise <= measured <= bound + noise
