import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.bin_count import bins_per_segment
from fsl_async.errors import MisuseError
from fsl_async.kernels.rows import cuckoo
from fsl_async.kernels.rows.cuckoo import Placement, place
from tests.support import reference_hashing


def draw(generator: np.random.Generator, rows: int, bins: int) -> np.ndarray:
    return generator.integers(0, bins, (rows, 3)).astype(np.uint32)


def check(bins_of: np.ndarray, bins: int, placement: Placement) -> None:
    """Each row is in one of its own bins, or among the unplaced, and never in both."""
    assert placement.rows_of_bin.shape == (3 * bins,)
    taken = np.flatnonzero(placement.rows_of_bin >= 0)
    rows = placement.rows_of_bin[taken]
    assert (bins_of[rows, taken // bins] == taken % bins).all()
    everyone = np.concatenate([rows, placement.unplaced])
    assert sorted(everyone.tolist()) == list(range(len(bins_of)))


def check_maximum(seed: int, cases: int) -> int:
    """Compare with a maximum matching at loads from slack to impossible; return how many instances left rows out."""
    generator = np.random.default_rng(seed)
    overfull = 0
    for case in range(cases):
        rows = int(generator.integers(0, 60))
        bins = max(1, int(rows / 3 * generator.uniform(0.7, 1.5)))
        bins_of = draw(generator, rows, bins)
        placement = place(bins_of, bins, generator.bytes(16))
        check(bins_of, bins, placement)
        placed = rows - len(placement.unplaced)
        assert placed == reference_hashing.most_placed(bins_of), f"seed {seed}, case {case}"
        overfull += placed < rows
    return overfull


def test_places_a_maximum_matching(isa: str) -> None:
    assert check_maximum(seed=1, cases=300) > 50


def test_search_finds_what_the_walk_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernels.active_isa()
    kernels.select_isa("plain")
    monkeypatch.setattr(cuckoo, "WALK_STEPS", 1)
    assert check_maximum(seed=3, cases=40) > 0
    kernels.select_isa(before)


def test_near_the_threshold_almost_every_row_is_placed() -> None:
    """Three-way placement works up to a load of 0.917; at 0.905 the walk alone often gives up."""
    bins = 2000
    bins_of = draw(np.random.default_rng(5), int(0.905 * 3 * bins), bins)
    placement = place(bins_of, bins, bytes(16))
    check(bins_of, bins, placement)
    assert len(placement.unplaced) == 0


@pytest.mark.parametrize("rows", [1, 4, 32, 418, 10_486, 104_858])
def test_chosen_parameters_place_everything(rows: int) -> None:
    bins = bins_per_segment(rows, 2**20)
    for seed in range(3):
        bins_of = draw(np.random.default_rng(seed), rows, bins)
        placement = place(bins_of, bins, seed.to_bytes(16, "little"))
        check(bins_of, bins, placement)
        assert len(placement.unplaced) == 0


def test_is_a_function_of_its_seed() -> None:
    bins_of = draw(np.random.default_rng(8), 200, 90)
    one, same, other = (place(bins_of, 90, seed).rows_of_bin for seed in (b"1" * 16, b"1" * 16, b"2" * 16))
    assert (one == same).all()
    assert (one != other).any()


def test_no_rows() -> None:
    placement = place(np.empty((0, 3), np.uint32), 4, bytes(16))
    assert (placement.rows_of_bin == -1).all()
    assert placement.unplaced.shape == (0,)


def test_rows_that_share_all_bins() -> None:
    placement = place(np.zeros((5, 3), np.uint32), 1, bytes(16))
    assert (placement.rows_of_bin >= 0).all()
    assert len(placement.unplaced) == 2


def test_placement_does_not_show_itself() -> None:
    assert repr(place(np.zeros((1, 3), np.uint32), 1, bytes(16))) == "Placement()"


@pytest.mark.parametrize(
    ("bins_of", "bins", "seed"),
    [
        (np.zeros((2, 3), np.int64), 4, bytes(16)),
        (np.zeros((2, 2), np.uint32), 4, bytes(16)),
        (np.zeros(3, np.uint32), 4, bytes(16)),
        (np.full((2, 3), 4, np.uint32), 4, bytes(16)),
        (np.zeros((2, 3), np.uint32), 0, bytes(16)),
        (np.zeros((2, 3), np.uint32), 4, bytes(15)),
    ],
)
def test_refuses_what_does_not_fit(bins_of: np.ndarray, bins: int, seed: bytes) -> None:
    with pytest.raises(MisuseError, match="expected"):
        place(bins_of, bins, seed)


def test_lanes_place_alike() -> None:
    """The walk depends on the seed alone, so a placement does not show which lane made it."""
    before, found = kernels.active_isa(), []
    bins_of = draw(np.random.default_rng(8), 2000, 640)
    for name in (before, "plain"):
        kernels.select_isa(name)
        placement = place(bins_of, 640, bytes(range(16)))
        assert len(placement.unplaced)
        found.append((placement.rows_of_bin.tolist(), placement.unplaced.tolist()))
    kernels.select_isa(before)
    assert found[0] == found[1]
