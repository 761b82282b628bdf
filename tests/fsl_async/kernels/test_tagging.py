"""Tags of retrieved rows against shifting and adding, and what the check accepts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fsl_async import kernels
from tests.support import reference, reference_tagging
from tests.support.kernel_cases import SEGMENTS, Case

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
    (9, 2, 1152, 2),
    (3, 3, 128, 1),
]


@pytest.fixture(params=kernels.isa_names())
def _isa(request: pytest.FixtureRequest) -> Iterator[None]:
    before = kernels.active_isa()
    kernels.select_isa(request.param)
    yield
    kernels.select_isa(before)


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


@pytest.mark.usefixtures("_isa")
@pytest.mark.parametrize("shape", SHAPES)
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
