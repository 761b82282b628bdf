import hashlib

import numpy as np
import pytest

from fsl_async.errors import MisuseError
from fsl_async.kernels.rows.permutation import Permutation, _numbers
from tests.support import reference_hashing
from tests.support.cases import in_turn

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1000, 1023, 1024, 1025]


@pytest.mark.usefixtures("isa")
@in_turn("rows", SIZES)
def test_is_the_reference_permutation(rows: int) -> None:
    for segment in range(3):
        table = Permutation(b"key", segment, rows).table()
        assert table.tolist() == [reference_hashing.permute(b"key", segment, rows, row) for row in range(rows)]


@pytest.mark.usefixtures("isa")
@in_turn("rows", SIZES)
def test_is_a_bijection_and_inverse_inverts(rows: int) -> None:
    permutation_ = Permutation(b"another key", 1, rows)
    table = permutation_.table()
    assert table.dtype == np.uint32
    assert sorted(table.tolist()) == list(range(rows))
    assert permutation_.inverse(table).tolist() == list(range(rows))
    assert permutation_.forward(permutation_.inverse_table()).tolist() == list(range(rows))


@pytest.mark.parametrize("rows", [2**20, 2**20 + 1, 3 * 2**18, 2**21 - 1])
def test_large_tables_are_bijections(rows: int) -> None:
    permutation_ = Permutation(b"key", 2, rows)
    table = permutation_.table()
    assert np.bincount(table, minlength=rows).tolist() == [1] * rows
    assert (permutation_.inverse_table()[table] == np.arange(rows)).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1, 2**32])
def test_the_largest_sizes(size: int) -> None:
    """As the reference, whose numbers have no size, and with numbers that a sign would take a bit from."""
    permutation_ = Permutation(b"key", 0, size)
    drawn = np.random.default_rng(1).integers(0, size, 1000)
    rows = np.concatenate([drawn, [0, 1, size // 2, size - 2, size - 1]]).astype(np.uint32)
    places = permutation_.forward(rows)
    assert (permutation_.inverse(places) == rows).all()
    assert (places >= 2**31).sum() == pytest.approx(len(rows) * max(0, 1 - 2**31 / size), abs=100)
    assert places[-20:].tolist() == [reference_hashing.permute(b"key", 0, size, int(row)) for row in rows[-20:]]


def test_the_last_row_is_in_a_table() -> None:
    assert _numbers(3).tolist() == [0, 1, 2]
    assert _numbers(1).dtype == np.uint32


def test_known_answer() -> None:
    """The values every party agrees on: a change here is a change of the protocol."""
    table = Permutation(bytes(range(16)), 2, 100_003).table()
    digest = hashlib.blake2b(table.astype("<u4").tobytes(), digest_size=8).hexdigest()
    assert (digest, table[:4].tolist()) == ("86ffb61fb08a9bc0", [57065, 44210, 86597, 31836])


def test_segments_and_keys_give_unrelated_permutations() -> None:
    rows = 4096
    tables = [Permutation(key, segment, rows).table() for key in (b"a", b"b") for segment in range(3)]
    for index, left in enumerate(tables):
        for right in tables[:index]:
            # Two random permutations agree at one place on average, and at 12 or more with chance below 10^-9.
            assert (left == right).sum() < 12


def test_bins_are_met_uniformly() -> None:
    """Neighbouring rows, the likeliest selection, fall into bins as independent ones would (chi-square, 6 sigma)."""
    bins, rows, drawn = 128, 50_000, 4096
    excess = []
    for key in range(64):
        places = Permutation(bytes([key]), 0, rows).forward(np.arange(drawn, dtype=np.uint32))
        counts = np.bincount(places % bins, minlength=bins)
        excess.append(((counts - drawn / bins) ** 2).sum() / (drawn / bins))
    # Drawn without replacement, the statistic shrinks by the share that is left.
    mean = (bins - 1) * (1 - drawn / rows)
    assert abs(np.mean(excess) - mean) < 6 * np.sqrt(2 * mean / 64)


@pytest.mark.parametrize(("segment", "rows"), [(0, 0), (0, -1), (0, 2**32 + 1), (-1, 5), (256, 5)])
def test_refuses_what_is_out_of_range(segment: int, rows: int) -> None:
    with pytest.raises(MisuseError, match="expected"):
        Permutation(b"key", segment, rows)


@pytest.mark.parametrize("values", [np.array([10], np.uint32), np.array([0], np.int64), np.zeros((2, 2), np.uint32)])
def test_refuses_values_that_are_no_rows(values: np.ndarray) -> None:
    with pytest.raises(MisuseError, match="expected"):
        Permutation(b"key", 0, 10).forward(values)


def test_takes_no_rows_and_rows_in_any_layout() -> None:
    permutation_ = Permutation(b"key", 0, 10)
    assert permutation_.forward(np.empty(0, np.uint32)).shape == (0,)
    every_other = np.arange(10, dtype=np.uint32)[::2]
    assert permutation_.forward(every_other).tolist() == permutation_.table()[::2].tolist()
