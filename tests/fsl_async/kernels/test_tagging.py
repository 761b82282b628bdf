"""Tags of retrieved rows against shifting and adding, and what the check accepts."""

import hashlib

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.errors import MisuseError
from fsl_async.kernels import multiplying
from fsl_async.kernels.rows.shelves import pieces_of
from fsl_async.kernels.simd.carryless import UNITS, Unit, unit_for
from fsl_async.kernels.simd.isa import ISAS, find_isa, processor_features
from fsl_async.kernels.trees import answering_kernels as answering
from tests.support import reference, reference_tagging
from tests.support.cases import in_turn, often, one_in
from tests.support.kernel_cases import SEGMENTS, Case

HERE = {unit.name: unit for unit in UNITS if unit.features <= processor_features()}

# bins, leaves, row bytes, queries
SHAPES = [
    (1, 1, 1, 1),
    (1, 1, 64, 3),
    (3, 1, 9, 2),
    (5, 2, 7, 1),
    (4, 3, 8, 17),
    (17, 5, 9, 1),
    (33, 3, 63, 2),
    (16, 4, 64, 1),
    (18, 3, 65, 3),
    (7, 9, 72, 1),
    (9, 2, 1152, 1),
    (9, 2, 1152, 9),
    (3, 3, 128, 1),
    (70, 2, 100, 8),
    (1, 40, 16, 2),
]


def tables_of(case: Case, row_bytes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(case.seed)
    return [rng.integers(0, 256, (case.leaves * case.bins, row_bytes), dtype=np.uint8) for _ in range(SEGMENTS)]


def answered(cases: list[Case], server: int, tables: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Answers (queries, trees, row bytes) and tags (queries, words) of one server, in one call per segment."""
    bins, row_bytes = cases[0].bins, tables[0].shape[1]
    answers = np.full((len(cases), SEGMENTS, bins, row_bytes), 0xAA, np.uint8)
    sums = np.zeros((SEGMENTS, len(cases), kernels.tag_words(row_bytes), 2), np.uint64)
    queries = [case.selection(server) for case in cases]
    for segment, table in enumerate(tables):
        kernels.answer_tagged(queries, table, answers[:, segment], sums[segment], segment, 0, bins)
    return answers.reshape(len(cases), -1, row_bytes), kernels.finish_tags(sums)


def keys_of(case: Case) -> np.ndarray:
    return case.at_alpha[0][:, 1] ^ case.at_alpha[1][:, 1]


@pytest.mark.usefixtures("isa")
@in_turn("shape", SHAPES)
def test_answers_and_tags(shape: tuple[int, int, int, int]) -> None:
    bins, leaves, row_bytes, queries = shape
    cases = [Case(bins, leaves, seed=seed) for seed in range(queries)]
    tables = tables_of(cases[0], row_bytes)
    answers, tags = answered(cases, 1, tables)
    for case, answer, tag in zip(cases, answers, tags, strict=True):
        blocks, covered = case.all_leaves(1), []
        for tree in range(case.trees):
            segment, bin_ = divmod(tree, bins)
            nodes = reference.to_ints(blocks[segment, :, bin_])
            rows = [row.tobytes() for row in tables[segment][bin_::bins]]
            assert answer[tree].tobytes() == reference_tagging.answer(nodes, rows)
            covered += zip(nodes, rows, strict=True)
        assert [int(word) for word in tag] == reference_tagging.tag(covered, len(tag))


@pytest.mark.parametrize("row_bytes", [1, 8, 9, 64, 72])
def test_honest_servers_match(row_bytes: int) -> None:
    case = Case(bins=20, leaves=6)
    tables = tables_of(case, row_bytes)
    (first, first_tag), (second, second_tag) = (answered([case], server, tables) for server in (0, 1))
    wanted = [tables[tree // 20][case.alphas[tree] * 20 + tree % 20] for tree in range(case.trees)]
    assert (first[0] ^ second[0] == wanted).all()
    arguments = keys_of(case), (first[0], second[0]), (first_tag[0], second_tag[0])
    assert kernels.answers_match(*arguments)
    keys, answers, tags = arguments
    listed = tuple([row.tobytes() for row in answer] for answer in answers)
    assert reference_tagging.matches([int(key) for key in keys], listed, tuple(tag.tolist() for tag in tags))


def test_any_bit_is_noticed() -> None:
    case = Case(bins=2, leaves=3)
    tables = tables_of(case, 9)
    (first, first_tag), (second, second_tag) = (answered([case], server, tables) for server in (0, 1))
    for bit in range(second.size * 8):
        spoilt = second.copy()
        spoilt.reshape(-1)[bit // 8] ^= 1 << bit % 8
        assert not kernels.answers_match(keys_of(case), (first[0], spoilt[0]), (first_tag[0], second_tag[0]))
    for bit in range(second_tag.size * 64):
        spoilt = second_tag.copy()
        spoilt.reshape(-1)[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
        assert not kernels.answers_match(keys_of(case), (first[0], second[0]), (first_tag[0], spoilt[0]))


def test_the_last_leaf_may_cover_no_row() -> None:
    """One leaf more than the table has: a tree whose leaf it is retrieves a zero row, which is checked like any."""
    case = Case(bins=4, leaves=5)
    case.alphas[::2] = 4
    case.tree, *case.at_alpha = kernels.generate(case.keys, *case.roots, case.alphas, case.tree.depth)
    tables = [table[: 4 * 4] for table in tables_of(case, 24)]
    (first, first_tag), (second, second_tag) = (answered([case], server, tables) for server in (0, 1))
    assert not (first[0] ^ second[0])[::2].any()
    assert kernels.answers_match(keys_of(case), (first[0], second[0]), (first_tag[0], second_tag[0]))


@pytest.mark.parametrize(("row_bytes", "queries"), [(9, 2), (128, 8)])
def test_ranges_of_bins_join_and_touch_nothing_else(
    row_bytes: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges begin and end anywhere, and runs within them are short; every range has sums of its own."""
    monkeypatch.setattr(answering, "CACHED_BYTES", 0)
    monkeypatch.setattr(answering, "KEPT_BYTES", 64 * 3 * 8 * 8)
    case = Case(bins=150, leaves=3)
    table = tables_of(case, row_bytes)[1]
    whole, joined = (np.full((queries, 150, row_bytes), 0x55, np.uint8) for _ in range(2))
    sums = np.zeros((6, queries, kernels.tag_words(row_bytes), 2), np.uint64)
    alike = [case.selection(0)] * queries
    kernels.answer_tagged(alike, table, whole, sums[0], 1, 0, 150)
    for place, (start, stop) in enumerate([(0, 3), (3, 3), (3, 17), (17, 18), (18, 150)], 1):
        kernels.answer_tagged(alike, table, joined, sums[place], 1, start, stop)
        assert (joined[:, :stop] == whole[:, :stop]).all()
        assert (joined[:, stop:] == 0x55).all()
    assert (kernels.finish_tags(sums[1:]) == kernels.finish_tags(sums[:1])).all()
    assert kernels.finish_tags(sums[:1]).all()


def test_takes_rows_and_answers_at_any_address() -> None:
    """Tables that begin at odd bytes, answers that are a piece of a longer buffer."""
    case = Case(bins=5, leaves=3)
    tables = tables_of(case, 72)
    memory = np.zeros(1 + tables[0].size, np.uint8)
    odd = memory[1:].reshape(tables[0].shape)
    odd[:] = tables[0]
    buffer = np.full((1, 3 + 2 * 5 * 72), 0x55, np.uint8)
    found = buffer[:, 3 : 3 + 5 * 72].reshape(1, 5, 72)
    expected, sums = np.empty((1, 5, 72), np.uint8), np.zeros((2, 1, 9, 2), np.uint64)
    kernels.answer_tagged([case.selection(0)], tables[0], expected, sums[0], 0, 0, 5)
    kernels.answer_tagged([case.selection(0)], odd, found, sums[1], 0, 0, 5)
    assert (found == expected).all()
    assert (sums[0] == sums[1]).all()
    assert (buffer[:, :3] == 0x55).all()
    assert (buffer[:, 3 + 5 * 72 :] == 0x55).all()


def test_a_tree_one_level_deeper_than_its_table() -> None:
    """Four leaves of rows and a fifth one over none: the tree has three levels, the table would do with two."""
    case = Case(bins=6, leaves=5, seed=3)
    tables = [table[: 4 * 6] for table in tables_of(case, 8)]
    (first, first_tag), (second, second_tag) = (answered([case], server, tables) for server in (0, 1))
    for tree, row in enumerate(first[0] ^ second[0]):
        segment, bin_ = divmod(tree, 6)
        inside = case.alphas[tree] < 4
        assert (row == (tables[segment][case.alphas[tree] * 6 + bin_] if inside else 0)).all()
    assert kernels.answers_match(keys_of(case), (first[0], second[0]), (first_tag[0], second_tag[0]))


def test_other_answers_are_noticed() -> None:
    """Two bins swapped, the answers or tags of another model, a difference times another tree's key."""
    case, other = Case(bins=3, leaves=4), Case(bins=3, leaves=4, seed=1)
    tables = tables_of(case, 16)
    (first, first_tag), (second, second_tag) = (answered([case], server, tables) for server in (0, 1))
    foreign, foreign_tag = answered([case], 1, tables_of(other, 16))
    swapped = second.copy()
    swapped[0, [0, 1]] = second[0, [1, 0]]
    guessed, guessed_tag = second.copy(), second_tag.copy()
    guessed[0, 0, 0] ^= 1
    guessed_tag[0, 0] ^= keys_of(case)[1]
    wrong = [
        (swapped, second_tag),
        (foreign, foreign_tag),
        (second, foreign_tag),
        (foreign, second_tag),
        (second, first_tag),
        (guessed, guessed_tag),
    ]
    for answer, tag in wrong:
        assert not kernels.answers_match(keys_of(case), (first[0], answer[0]), (first_tag[0], tag[0]))
    guessed_tag[0, 0] ^= keys_of(case)[1] ^ keys_of(case)[0]  # who knows a key may do as he likes
    assert kernels.answers_match(keys_of(case), (first[0], guessed[0]), (first_tag[0], guessed_tag[0]))


def test_rows_of_no_bytes_and_no_queries() -> None:
    case = Case(bins=2, leaves=2)
    kernels.answer_tagged([], np.zeros((4, 8), np.uint8), np.empty((0, 2, 8), np.uint8), empty(0, 1), 0, 0, 2)
    nothing = np.empty((1, 2, 0), np.uint8)
    kernels.answer_tagged([case.selection(0)], np.zeros((4, 0), np.uint8), nothing, empty(1, 0), 0, 0, 2)
    none = np.zeros((2, 0), np.uint8), np.zeros(0, np.uint64)
    assert kernels.answers_match(np.zeros(2, np.uint64), (none[0], none[0]), (none[1], none[1]))


def empty(queries: int, words: int) -> np.ndarray:
    return np.zeros((queries, words, 2), np.uint64)


def test_refuses_what_does_not_fit() -> None:
    case = Case(bins=4, leaves=3)
    query, table, answers, sums = (
        case.selection(0),
        np.zeros((12, 9), np.uint8),
        np.empty((1, 4, 9), np.uint8),
        empty(1, 2),
    )
    packed = kernels.Selection(query.keys, query.roots, query.tree, query.select, query.select_hints, 2)
    for wrong, complaint in (
        (([packed], table, answers, sums, 0, 0, 4), "covers one position"),
        (([query], table[:-1], answers, sums, 0, 0, 4), "whole number of leaves"),
        (([query], np.zeros((20, 9), np.uint8), answers, sums, 0, 0, 4), "do not cover 5 rows"),
        (([query], table[:, :8], answers, sums, 0, 0, 4), "table: expected"),
        (([query] * 2, table, answers, sums, 0, 0, 4), "answers: expected"),
        (([query], table, answers, sums[:, :1], 0, 0, 4), "sums: expected"),
        (([query], table, answers, sums, 3, 0, 4), "there are 3 segments"),
        (([query], table, answers, sums, 0, 3, 5), "there are 3 segments"),
    ):
        with pytest.raises(MisuseError, match=complaint):
            kernels.answer_tagged(*wrong)
    keys, tag = np.zeros(4, np.uint64), np.zeros(2, np.uint64)
    for wrong in (
        (keys[:3], (answers[0], answers[0]), (tag, tag)),
        (keys, (answers[0], answers[0][:, :8]), (tag, tag)),
        (keys, (answers[0], answers[0]), (tag, tag[:1])),
    ):
        with pytest.raises(MisuseError, match="expected"):
            kernels.answers_match(*wrong)


# Multipliers


@pytest.mark.parametrize("name", often(1, list(reversed(HERE))))
def test_every_multiplier_of_this_machine(name: str) -> None:
    """In every run the narrowest one; the widest is checked before anything is multiplied."""
    multiplying.check_unit(HERE[name], kernels.key_schedule(bytes(16)))


def test_a_wrong_multiplier_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplying, "PRODUCTS", "0" * 32)
    name, unit = next(iter(HERE.items()))
    with pytest.raises(kernels.KernelFaultError, match=f"multiplier '{name}' fails"):
        multiplying.check_unit(unit, kernels.key_schedule(bytes(16)))


def test_known_answer_is_the_references() -> None:
    digest = hashlib.blake2b(digest_size=16)
    for row_bytes in multiplying.ROW_BYTES:
        totals = [0] * kernels.tag_words(row_bytes)
        for number in range(multiplying.ROWS):
            first = number * row_bytes
            row = bytes((place * 157 + row_bytes) % 256 for place in range(first, first + row_bytes))
            for place, word in enumerate(reference_tagging.words_of(row)):
                totals[place] ^= reference_tagging.multiply(multiplying.KEY + number, word)
        digest.update(b"".join(total.to_bytes(16, "little") for total in totals))
    for place in range(multiplying.BLOCKS):
        low, high = multiplying.KEY + place, ~(multiplying.KEY << place) % 2**64
        digest.update(reference_tagging.multiply(low, high).to_bytes(16, "little"))
    assert digest.hexdigest() == multiplying.PRODUCTS


def test_the_edges_of_multiplication(isa: str) -> None:
    """Words of ones, and of bits that stand apart."""
    words = [0, 1, 2**63, 2**64 - 1, sum(1 << bit for bit in range(0, 64, 4)), sum(1 << bit for bit in range(3, 64, 4))]
    for key in words:
        for word in words:
            row = np.frombuffer(word.to_bytes(8, "little"), np.uint8).reshape(1, 8)
            product = reference_tagging.reduce(reference_tagging.multiply(key, word))
            tags = np.array([product], np.uint64), np.zeros(1, np.uint64)
            assert kernels.answers_match(np.array([key], np.uint64), (row, np.zeros_like(row)), tags)


@pytest.mark.parametrize(
    ("isa", "features", "unit"),
    [
        ("vaes512", {"pclmul", "vpclmulqdq", "avx2", "avx512f"}, "vpclmul512"),
        ("vaes512", {"pclmul", "avx2", "avx512f"}, "pclmul"),
        ("vaes256", {"pclmul", "vpclmulqdq", "avx2", "avx512f"}, "vpclmul256"),
        ("vaes256", {"pclmul", "avx2"}, "pclmul"),
        ("aesni", {"pclmul", "vpclmulqdq", "avx2", "avx512f"}, "pclmul"),
    ],
)
def test_a_multiplier_for_each_processor(isa: str, features: set[str], unit: str) -> None:
    """Wide AES without wide multiplication, on processors that are not at hand."""
    chosen = next(candidate for candidate in ISAS if candidate.name == isa)
    assert unit_for(chosen, frozenset(features | {"x86_64", "aes"})).name == unit


def test_a_multiplier_for_armv8() -> None:
    armv8 = next(isa for isa in ISAS if isa.name == "armv8")
    assert unit_for(armv8, frozenset({"aarch64", "aes"})).name == "pmull"


@pytest.mark.parametrize(("shape", "name"), one_in(6, [(5, 3, 103, 1), (4, 2, 103, 8)], reversed(HERE)))
def test_any_multiplier_goes_with_any_instruction_set(
    name: str, shape: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every run a query alone, with the narrowest multiplier: each pair of the two takes long to compile."""
    bins, leaves, row_bytes, queries = shape
    cases = [Case(bins, leaves, seed=seed) for seed in range(queries)]
    tables = tables_of(cases[0], row_bytes)
    expected = answered(cases, 1, tables)
    unit: Unit = HERE[name]
    monkeypatch.setitem(multiplying._passed, find_isa(kernels.active_isa()), unit.multiplier)
    found = answered(cases, 1, tables)
    assert (found[0] == expected[0]).all()
    assert (found[1] == expected[1]).all()


def test_pieces_cover_every_row() -> None:
    for row_bytes in range(1, 400):
        covered = np.zeros(row_bytes, dtype=int)
        for offset, size in pieces_of(row_bytes):
            assert offset % 8 == 0
            covered[offset : offset + size] += 1
        assert covered.min() == 1
        assert covered.max() <= 2


@pytest.mark.parametrize(
    ("queries", "row_bytes", "leaves", "together"),
    [
        (16, 64, 231, 0),
        (16, 128, 231, 16),
        (17, 128, 231, 16),
        (7, 1024, 231, 0),
        (1, 1024, 231, 0),
        (16, 128, 2**20, 0),
    ],
)
def test_which_queries_share_a_pass(queries: int, row_bytes: int, leaves: int, together: int) -> None:
    """Eight by eight over long rows; never where a bin is as deep as the block has rows."""
    assert answering.sharing(queries, row_bytes, leaves) == together
