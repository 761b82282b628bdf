"""Where the pieces of a public part stand, and how much a client uploads."""

import itertools
import math

import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.digests import DIGEST_BYTES
from fsl_async.geometry import geometry_of
from fsl_async.wire.public_part import (
    SALT_BYTES,
    ForestKey,
    Layout,
    Trees,
    dense_bytes,
    first_padding,
    forests_of,
    share_bytes,
)
from tests.support.cases import in_turn

ITEMS = Sparse("items", rows=5000, select=40, width=3, stash=2)
SHOPS = Sparse("shops", rows=300, select=7)
BLOCKS = (Dense("head", size=77), ITEMS, Dense("bias", size=5), SHOPS)


def task_of(bits: int = 64, security: str = "verified", blocks: tuple[Sparse | Dense, ...] = BLOCKS) -> Task:
    return planned(Task(name="t", blocks=blocks, ring=Ring(bits), security=security))  # type: ignore[arg-type]


def layouts(task: Task) -> dict[str, Layout]:
    return {"retrieval": Layout.retrieval(task)} | {trees.value: Layout.submission(task, trees) for trees in Trees}


def kinds(layout: Layout) -> set[str]:
    return {piece.kind for piece in layout.pieces if piece.stop > piece.start}


def test_forests_are_counted_over_sparse_blocks_bins_before_stash() -> None:
    assert [key for key, _ in forests_of(task_of())] == [
        ForestKey(0, 0),
        ForestKey(0, 1),
        ForestKey(0, 2),
        ForestKey(1, 0),
    ]


def test_pieces_lie_side_by_side_in_the_order_of_the_forests(bits: int) -> None:
    for security in ("verified", "semi-honest"):
        task = task_of(bits, security)
        for layout in layouts(task).values():
            assert layout.pieces[0].start == 0
            assert all(left.stop == right.start for left, right in itertools.pairwise(layout.pieces))
            assert layout.size == layout.pieces[-1].stop
            assert len({(piece.key, piece.kind) for piece in layout.pieces}) == len(layout.pieces), "each once"
            assert [key for key, _ in itertools.groupby(piece.key for piece in layout.pieces if piece.key)] == [
                key for key, _ in forests_of(task)
            ]


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (
            "verified",
            {
                "retrieval": {"tree"},
                "own": {"salt", "tree", "hint", "proof", "dense"},
                "retrieval's": {"salt", "hint", "proof", "dense"},
                "session": {"salt", "hint", "dense"},
            },
        ),
        (
            "semi-honest",
            {
                "retrieval": {"tree", "select"},
                "own": {"salt", "tree", "hint", "dense"},
                "retrieval's": {"salt", "hint", "dense"},
                "session": {"salt", "hint", "dense"},
            },
        ),
    ],
)
def test_what_each_part_holds(security: str, expected: dict[str, set[str]]) -> None:
    task = task_of(64, security)
    assert kinds(Layout.retrieval(task)) == expected["retrieval"]
    assert kinds(Layout.submission(task, Trees.OWN)) == expected["own"]
    assert kinds(Layout.submission(task, Trees.RETRIEVAL)) == expected["retrieval's"]
    assert kinds(Layout.submission(task, Trees.SESSION)) == expected["session"]


def test_pieces_have_the_sizes_of_their_forests(bits: int) -> None:
    task = task_of(bits)
    forests = dict(forests_of(task))
    sizes = {"tree": "tree_bytes", "hint": "hint_bytes", "proof": "proof_bytes", "select": "select_bytes"}
    for layout in layouts(task).values():
        for piece in layout.pieces:
            whole = {"salt": SALT_BYTES, "dense": DIGEST_BYTES}
            size = getattr(forests[piece.key], sizes[piece.kind]) if piece.key else whole[piece.kind]
            nothing = piece.kind == "proof" and layout == Layout.submission(task, Trees.SESSION)
            assert piece.stop - piece.start == (0 if nothing else size)


def test_split_gives_views_that_cover_the_part() -> None:
    layout = Layout.submission(task_of(), Trees.OWN)
    part = bytearray(layout.size)
    for number, piece in enumerate(layout.split(memoryview(part)).values()):
        piece[:] = bytes([number + 1]) * len(piece)
    assert 0 not in part
    assert len(set(part)) == len(layout.pieces)


def test_a_bit_in_the_padding_of_selection_hints_is_found_wherever_it_is() -> None:
    task = task_of(32, "semi-honest", (Sparse("a", rows=999, select=9), Sparse("b", rows=500, select=5)))
    layout, seen = Layout.retrieval(task), 0
    part = bytearray(b"\xff" * layout.size)
    for key, forest in forests_of(task):
        piece = next(piece for piece in layout.pieces if (piece.key, piece.kind) == (key, "select"))
        spare = -forest.trees * forest.positions % 8
        part[piece.stop - 1] >>= spare
        seen += spare
    assert seen
    assert first_padding(task, layout, memoryview(part)) is None
    for key, forest in forests_of(task):
        piece = next(piece for piece in layout.pieces if (piece.key, piece.kind) == (key, "select"))
        for bit in range(8 - -forest.trees * forest.positions % 8, 8):
            part[piece.stop - 1] ^= 1 << bit
            assert first_padding(task, layout, memoryview(part)) == (key, "select")
            part[piece.stop - 1] ^= 1 << bit


def test_a_submission_begins_with_its_salt_and_ends_with_the_digest_of_what_is_dense() -> None:
    for trees in Trees:
        kinds_in_order = [piece.kind for piece in Layout.submission(task_of(), trees).pieces]
        assert (kinds_in_order[0], kinds_in_order[-1]) == ("salt", "dense")
        assert (kinds_in_order.count("salt"), kinds_in_order.count("dense")) == (1, 1)
        sparse = Layout.submission(task_of(blocks=(Sparse("a", rows=99, select=9),)), trees)
        assert "dense" not in kinds(sparse)


def test_a_task_without_sparse_blocks_has_parts_without_trees() -> None:
    task = task_of(blocks=(Dense("d", size=3),))
    assert Layout.retrieval(task).size == 0
    assert Layout.retrieval(task).split(memoryview(b"")) == {}
    for trees in Trees:
        assert Layout.submission(task, trees).size == SALT_BYTES + DIGEST_BYTES


def test_shares_and_dense_parts(bits: int) -> None:
    task = task_of(bits)
    assert dense_bytes(task) == (77 + 5) * bits // 8
    assert share_bytes(task) == (77 + 5 + 5000 * 3 + 300) * bits // 8


# ---- what a client uploads: design §14, and the paper's table for m = 2^20, l = 128


def upload_bits(task: Task, block: Sparse) -> float:
    """B·(128·d + 128 + τ·l) + 128: trees, tag corrections, one hint, and its salt."""
    forest = geometry_of(task, task.sparse(0)).bins
    depth = math.ceil(math.log2(forest.leaves))
    return forest.trees * (128 * depth + (128 if task.verified else 0) + block.width * task.ring.bits) + 8 * SALT_BYTES


@in_turn("security", ["verified", "semi-honest"])
@in_turn("select", [100, 1049, 10_486, 104_858])
@in_turn("width", [1, 18])
def test_a_submission_takes_what_the_formula_says(security: str, select: int, width: int) -> None:
    block = Sparse("a", rows=2**20, select=select, width=width)
    task = task_of(128, security, (block,))
    assert Layout.submission(task, Trees.OWN).size == upload_bits(task, block) / 8


@pytest.mark.parametrize(("select", "limit"), [(10_486, 2.05e6), (104_858, 13.6e6)])
def test_the_paper_s_rates_cost_no_more_than_promised(select: int, limit: float) -> None:
    """The paper's own figures are 2.0 MB at 1 % and 20.3 MB at 10 %; sending all weights takes 16 MB."""
    task = task_of(128, "semi-honest", (Sparse("a", rows=2**20, select=select),))
    assert Layout.submission(task, Trees.OWN).size <= limit


def test_sizes_do_not_depend_on_anything_but_the_task() -> None:
    first = Task(name="t", blocks=BLOCKS, ring=Ring(64))
    assert layouts(planned(first)) == layouts(planned(Task.parse(first.canonical(), "S0")))
