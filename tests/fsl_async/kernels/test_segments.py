import numpy as np
import pytest

from fsl_async.errors import MisuseError
from fsl_async.kernels.rows.permutation import Permutation
from fsl_async.kernels.rows.segments import fold, payload_of_planes, payload_planes, permuted_model, select_rows
from tests.support import reference_hashing
from tests.support.cases import in_turn

pytestmark = pytest.mark.usefixtures("isa")

# rows, bins, positions, row bytes, queries
SELECTIONS = [
    (1, 1, 1, 1, 1),
    (40, 7, 1, 64, 1),
    (40, 7, 1, 64, 2),
    (37, 3, 2, 72, 3),
    (50, 9, 4, 37, 9),
    (50, 3, 4, 3, 2),
    (33, 33, 1, 200, 1),
    (64, 4, 2, 130, 1),
    (77, 5, 1, 1, 4),
    (77, 5, 1, 2, 8),
    (21, 10, 2, 16, 17),
]
# rows, bins, positions, width, element bits
FOLDS = [
    (1, 1, 1, 1, 32),
    (100, 7, 1, 1, 128),
    (100, 7, 2, 3, 64),
    (90, 9, 4, 1, 32),
    (50, 3, 4, 3, 32),
    (33, 33, 1, 2, 128),
    (64, 4, 2, 5, 64),
    (70, 6, 1, 18, 64),
]


def selection(
    seed: int, rows: int, bins: int, positions: int, row_bytes: int, queries: int
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    model = generator.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    table = permuted_model(model, Permutation(b"key", 0, rows).inverse_table(), bins, positions)
    pitch = -(-bins * positions // 8)
    bits = generator.integers(0, 256, (queries, len(table) // (bins * positions), pitch), dtype=np.uint8)
    return table, bits


@pytest.mark.parametrize("shape", SELECTIONS)
def test_permuted_model_is_in_place_order(shape: tuple[int, int, int, int, int]) -> None:
    rows, bins, positions, row_bytes, _ = shape
    model = np.random.default_rng(1).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    permutation = Permutation(b"key", 1, rows)
    table = permuted_model(model, permutation.inverse_table(), bins, positions)
    expected = reference_hashing.permuted_model(model, permutation.inverse_table(), bins, positions)
    assert table.shape == expected.shape
    assert (table == expected).all()
    assert (table[permutation.table()] == model).all()


@in_turn("shape", SELECTIONS)
def test_selection_is_the_xor_of_the_chosen_rows(shape: tuple[int, int, int, int, int]) -> None:
    _, bins, positions, row_bytes, queries = shape
    table, bits = selection(7, *shape)
    answers = np.full((queries, bins, row_bytes), 0xAA, np.uint8)
    select_rows(table, bits, answers, positions)
    assert (answers == reference_hashing.select_rows(table, bits, bins, positions)).all()


@pytest.mark.parametrize(
    ("row_bytes", "queries", "bins"), [(64, 1, 1100), (64, 20, 150), (8, 3, 1100), (4000, 2, 20), (4000, 1, 35)]
)
def test_selection_over_many_tiles(row_bytes: int, queries: int, bins: int) -> None:
    """More bins and leaves than a tile has, for which see `scratch`, checked against numpy on whole arrays."""
    leaves = 45
    table, bits = selection(11, bins * leaves, bins, 1, row_bytes, queries)
    answers = np.empty((queries, bins, row_bytes), np.uint8)
    select_rows(table, bits, answers, 1)
    chosen = np.unpackbits(bits, axis=2, count=bins, bitorder="little")
    by_leaf = table.reshape(leaves, bins, row_bytes)
    for query in range(queries):
        masked = by_leaf & (chosen[query][:, :, np.newaxis] * np.uint8(255))
        assert (answers[query] == np.bitwise_xor.reduce(masked, axis=0)).all()


@pytest.mark.parametrize("positions", [1, 2, 4])
def test_ranges_of_bins_join_and_touch_nothing_else(positions: int) -> None:
    bins, row_bytes, queries = 37, 24, 3
    table, bits = selection(13, 500, bins, positions, row_bytes, queries)
    whole = np.empty((queries, bins, row_bytes), np.uint8)
    select_rows(table, bits, whole, positions)
    joined = np.full_like(whole, 0x55)
    select_rows(table, bits, joined, positions, 5, 5)
    assert (joined == 0x55).all()
    for start, stop in ((0, 3), (3, 17), (17, 18), (18, 37)):
        select_rows(table, bits, joined, positions, start, stop)
        assert (joined[:, :stop] == whole[:, :stop]).all()
        assert (joined[:, stop:] == 0x55).all()


def test_answers_of_two_servers_differ_by_the_row() -> None:
    """Shares of a unit vector select one row between them: the purpose of it all."""
    rows, bins = 90, 8
    table, bits = selection(17, rows, bins, 1, 64, 1)
    other = bits.copy()
    leaf, bin_ = 6, 3
    other[0, leaf, 0] ^= 1 << bin_
    answers = np.empty((2, 1, bins, 64), np.uint8)
    select_rows(table, bits, answers[0], 1)
    select_rows(table, other, answers[1], 1)
    expected = np.zeros((bins, 64), np.uint8)
    expected[bin_] = table[leaf * bins + bin_]
    assert (answers[0, 0] ^ answers[1, 0] == expected).all()


def test_takes_one_segment_of_a_larger_array() -> None:
    """Bits and answers of one segment are slices of arrays over all of them."""
    table, bits = selection(18, 500, 37, 1, 72, 3)
    whole = np.empty((3, 37, 72), np.uint8)
    select_rows(table, bits, whole, 1)
    all_bits = np.stack([bits, ~bits], axis=1)
    all_answers = np.full((3, 2, 37, 72), 0x55, np.uint8)
    select_rows(table, all_bits[:, 0], all_answers[:, 0], 1)
    assert (all_answers[:, 0] == whole).all()
    assert (all_answers[:, 1] == 0x55).all()


def test_a_stash_slot_is_one_bin_over_all_rows() -> None:
    table, bits = selection(20, 300, 1, 1, 64, 2)
    answers = np.empty((2, 1, 64), np.uint8)
    select_rows(table, bits, answers, 1)
    for query in range(2):
        chosen = table[(bits[query, :, 0] & 1).astype(bool)]
        assert (answers[query, 0] == np.bitwise_xor.reduce(chosen, axis=0)).all()


def test_no_queries_and_empty_rows() -> None:
    table, bits = selection(19, 20, 4, 1, 8, 0)
    select_rows(table, bits, np.empty((0, 4, 8), np.uint8), 1)
    select_rows(np.empty((20, 0), np.uint8), np.zeros((2, 5, 1), np.uint8), np.empty((2, 4, 0), np.uint8), 1)


def test_selection_refuses_what_does_not_fit() -> None:
    table, bits = selection(23, 20, 4, 1, 8, 2)
    answers = np.empty((2, 4, 8), np.uint8)
    for wrong in (table[:-1], table.astype(np.int8), table[:, :4], np.asfortranarray(table)):
        with pytest.raises(MisuseError, match="expected"):
            select_rows(wrong, bits, answers, 1)
    for wrong in (bits[:1], bits[:, :-1], bits.astype(np.uint16)):
        with pytest.raises(MisuseError, match="bits: expected"):
            select_rows(table, wrong, answers, 1)
    with pytest.raises(MisuseError, match="contiguous rows"):
        select_rows(table, bits, answers.transpose(0, 2, 1).copy().transpose(0, 2, 1), 1)
    for start, stop in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(MisuseError, match="range"):
            select_rows(table, bits, answers, 1, start, stop)


def test_permuted_model_refuses_what_does_not_fit() -> None:
    model = np.zeros((10, 8), np.uint8)
    inverse = Permutation(b"key", 0, 10).inverse_table()
    for wrong in (model.astype(np.int8), model[:, ::2], model[0]):
        with pytest.raises(MisuseError, match="expected"):
            permuted_model(wrong, inverse, 3, 1)
    for wrong in (inverse[:-1], inverse.astype(np.int64)):
        with pytest.raises(MisuseError, match="expected"):
            permuted_model(model, wrong, 3, 1)


def shares(
    seed: int, rows: int, bins: int, positions: int, width: int, element_bits: int
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    leaves, planes = -(-rows // (bins * positions)), -(-positions * width * element_bits // 128)
    accumulator = np.random.default_rng(seed).integers(0, 2**64, (3, leaves, planes, bins, 2), dtype=np.uint64)
    shape = (rows, width, 2) if element_bits == 128 else (rows, width)
    totals = np.full(shape, 77, np.uint32 if element_bits == 32 else np.uint64)
    return accumulator, [Permutation(b"key", segment, rows).table() for segment in range(3)], totals


def as_integers(totals: np.ndarray) -> list[list[int]]:
    if totals.ndim == 3:
        totals = totals[..., 0].astype(object) + (totals[..., 1].astype(object) << 64)
    return totals.tolist()


@in_turn("shape", FOLDS)
def test_fold_sums_the_segments(shape: tuple[int, int, int, int, int]) -> None:
    _, _, positions, width, element_bits = shape
    accumulator, tables, totals = shares(29, *shape)
    fold(accumulator, tables, totals, positions)
    expected = reference_hashing.fold(accumulator, np.stack(tables), width, element_bits, positions)
    assert as_integers(totals) == expected


@pytest.mark.parametrize("element_bits", [32, 64, 128])
def test_ranges_of_rows_join_and_touch_nothing_else(element_bits: int) -> None:
    accumulator, tables, totals = shares(31, 1000, 21, 1, 3, element_bits)
    joined = totals.copy()
    fold(accumulator, tables, totals, 1)
    for start, stop in ((0, 1), (1, 600), (600, 600), (600, 1000)):
        fold(accumulator, tables, joined, 1, start, stop)
        assert (joined[:stop] == totals[:stop]).all()
        assert (joined[stop:] == 77).all()


def test_carries_reach_the_high_word() -> None:
    accumulator, tables, totals = shares(37, 10, 2, 1, 1, 128)
    accumulator[:] = [2**64 - 1, 1]
    fold(accumulator, tables, totals, 1)
    assert as_integers(totals) == [[3 * (2**65 - 1)]] * 10


def test_fold_refuses_what_does_not_fit() -> None:
    accumulator, tables, totals = shares(41, 100, 7, 1, 2, 64)
    for arguments in (
        (accumulator[:2], tables, totals, 1),
        (accumulator, tables[:2], totals, 1),
        (accumulator, [table[:-1] for table in tables], totals, 1),
        (accumulator, tables, totals, 4),
        (accumulator, tables, totals.astype(np.int64), 1),
        (accumulator[:, :-1].copy(), tables, totals, 1),
        (accumulator, tables, totals, 1, 5, 101),
    ):
        with pytest.raises(MisuseError, match="expected"):
            fold(*arguments)


@pytest.mark.parametrize("payload_bytes", [4, 8, 12, 16, 20, 72, 144])
def test_planes_and_payloads(payload_bytes: int) -> None:
    payloads = np.random.default_rng(43).integers(0, 256, (13, payload_bytes), dtype=np.uint8)
    planes = payload_planes(payloads)
    assert planes.shape == (-(-payload_bytes // 16), 13, 2)
    for tree in range(13):
        joined = b"".join(plane.tobytes() for plane in planes[:, tree])
        assert joined == payloads[tree].tobytes().ljust(16 * len(planes), b"\0")
    assert (payload_of_planes(planes, payload_bytes) == payloads).all()
