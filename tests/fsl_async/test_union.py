"""Unions on the wire, and the tasks of the rounds that find them and use them."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fsl_async import Adam, Dense, PeerViolationError, Ring, Sparse, Task
from fsl_async.bin_count import bins_of_round, moves_plainly, planned
from fsl_async.config import BlockModel
from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting
from fsl_async.geometry import geometry_of
from fsl_async.server.aggregation import split_share
from fsl_async.task import Plain
from fsl_async.union import UnionBlock, describe_union, pack_union, shape_of_round, union_rows, union_task, unpack_union
from fsl_async.wire.public_part import Trees, dense_bytes, share_bytes
from tests.support.cases import in_turn
from tests.support.machine_scenes import key

TASK = Task(
    name="t",
    blocks=[Sparse("a", rows=1000, select=50, width=3, stash=1), Dense("d", size=9), Sparse("b", rows=10, select=2)],
    ring=Ring(32, fraction_bits=8),
    alignment="union",
    largest=2.0,
    max_clients=100,
)


def rows_of(values: set[int] | list[int]) -> np.ndarray:
    return np.array(sorted(values), dtype=np.uint32)


domains_and_rows = st.integers(1, 5000).flatmap(
    lambda domain: st.tuples(st.just(domain), st.sets(st.integers(0, domain - 1), max_size=200))
)


def test_what_servers_do_with_a_sum_has_no_part_in_the_rounds_that_find_and_use_a_union() -> None:
    weighted = Task(
        name="weighted",
        blocks=[Sparse("items", rows=64, select=3, width=2), Dense("head", size=1), Dense("examples", size=1)],
        ring=Ring(64, fraction_bits=8),
        apply="weighted-mean",
        weights="examples",
        optimizer=Adam(0.1),
        alignment="union",
        min_clients=2,
        max_clients=5,
    )
    assert union_task(weighted) == union_task(replace(weighted, apply="sum", weights=None, optimizer=None))
    for rows in range(1, 65):
        summed = moves_plainly(replace(weighted, apply="sum", weights=None), planned(weighted).sparse(0), rows, 8)
        assert moves_plainly(weighted, planned(weighted).sparse(0), rows, 8) is summed, rows


@given(domains_and_rows)
@example((1, set()))
@example((1, {0}))
@example((8, set(range(8))))
@example((2**24, {0, 2**24 - 1}))
@example((2**24, {2**21 - 1}))
@example((3 * 2**14, {2**14 - 1, 2**15 - 1, 2**15 + 127, 2**15 + 256}))
def test_unions_come_back(case: tuple[int, set[int]]) -> None:
    domain, chosen = case
    packed = pack_union(rows_of(chosen), domain)
    assert unpack_union(packed, domain, "S0").tolist() == sorted(chosen)
    assert unpack_union(memoryview(packed), domain, "S0").dtype == np.uint32


@given(domains_and_rows)
def test_the_smaller_form_is_sent(case: tuple[int, set[int]]) -> None:
    domain, chosen = case
    assert len(pack_union(rows_of(chosen), domain)) <= 1 + min(-(-domain // 8), 5 * len(chosen))


def test_both_forms_to_the_byte() -> None:
    assert pack_union(rows_of([0, 3]), 8) == b"\x00\x09"
    assert pack_union(rows_of([2, 3, 132, 5 + 2**14]), 2**20) == b"\x01" + bytes([2, 0, 0x80, 1, 0x80, 0x7F])
    assert pack_union(rows_of([]), 10**6) == b"\x01"


HOSTILE = {
    "nothing": b"",
    "an unknown form": b"\x02",
    "a bitmap too short": b"\x00" + bytes(12),
    "a bitmap too long": b"\x00" + bytes(14),
    "a bitmap with a row beyond the last": b"\x00" + b"\xff" * 13,
    "a bitmap where gaps are smaller": b"\x00\x01" + bytes(12),
    "gaps where a bitmap is smaller": b"\x01" + bytes(50),
    "gaps that lead beyond the last row": b"\x01\x64",
    "a gap that does not end": b"\x01\x80",
    "a gap with a digit too many": b"\x01\x81\x00",
    "a gap of 36 bits": b"\x01" + b"\xff" * 5 + b"\x01",
    "gaps that add up to more than a machine word": b"\x01" + (b"\xff" * 4 + b"\x7f") * 200,
}


@in_turn("data", HOSTILE.values())
def test_what_is_no_union_is_a_violation(data: bytes) -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: sent a union"):
        unpack_union(data, 100, "S1")


@given(st.binary(max_size=40), st.integers(1, 300))
def test_any_bytes_are_one_union_or_none(data: bytes, domain: int) -> None:
    try:
        rows = unpack_union(data, domain, "S1")
    except PeerViolationError:
        return
    assert pack_union(rows, domain) == data
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert not len(rows) or rows[-1] < domain


def test_the_union_is_where_the_sum_is_not_zero() -> None:
    assert union_rows(np.array([[0], [5], [0], [-1]], dtype=np.int64)).tolist() == [1, 3]
    assert union_rows(np.zeros((4, 1), dtype=np.int64)).tolist() == []


def test_a_description_is_of_name_and_rows() -> None:
    first = describe_union("a", rows_of([1, 5]), 100)
    assert (first.name, first.size) == ("a", 2)
    assert first.digest != describe_union("b", rows_of([1, 5]), 100).digest
    assert first.digest != describe_union("a", rows_of([1, 6]), 100).digest


def test_a_union_round_sums_one_random_number_per_row() -> None:
    task = union_task(TASK)
    assert task.blocks == (Sparse("a", rows=1000, select=50, stash=1), Sparse("b", rows=10, select=2))
    assert union_task(planned(TASK)).blocks == planned(task).blocks
    assert (task.ring, task.updates, task.alignment) == (Ring(64), TASK.updates, "all")
    assert (task.security, task.max_clients) == (TASK.security, TASK.max_clients)


def aligned(task: Task, *sizes: int) -> Task:
    """The task of a round aligned on unions of so many rows of `a` and `b`."""
    union = tuple(UnionBlock(name, size, key(1)) for name, size in zip("ab", sizes, strict=True))
    return shape_of_round(task, "ssa", union, bins_of_round(task, union, F4))


F4 = tuple(BlockModel(name, "f4", key(2)) for name in "adb")


def test_an_aligned_round_has_the_union_s_rows() -> None:
    task = aligned(TASK, 700, 5)
    sparse = [block for _, block in task.sparse_blocks()]
    assert [(block.rows, block.select) for block in sparse] == [(700, 50), (5, 2)]
    assert [(block.name, block.width, block.stash) for block in sparse] == [("a", 3, 1), ("b", 1, 0)]
    assert task.blocks[1] == TASK.blocks[1]
    assert (task.ring, task.largest, task.alignment) == (TASK.ring, TASK.largest, "all")
    fixed = aligned(replace(TASK, selection="fixed"), 700, 5)
    assert fixed.blocks == planned(TASK).blocks  # the trees of a session stand over all rows


@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
def test_a_small_union_is_moved_plainly_and_keeps_its_number(selection: str) -> None:
    task = aligned(replace(TASK, selection=selection), 0, 5)
    assert task.blocks[0] == Plain("a", rows=1, width=3, size=3)
    assert [index for index, _ in task.plain_blocks()] == [0]
    assert [index for index, _ in task.sparse_blocks()] == [1]
    assert [(index, block.name) for index, block in task.dense_blocks()] == [(0, "d")]
    assert dense_bytes(task) == 4 * (3 + 9)
    assert list(split_share(task, bytes(share_bytes(task)))) == ["a", "d", "b"]
    assert split_share(task, bytes(share_bytes(task)))["a"].shape == (1, 3)


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
@pytest.mark.parametrize("width", [1, 3])
def test_a_union_with_a_row_for_every_tree_moves_plainly_and_a_larger_one_in_new_unverified_trees_alone(
    security: str, selection: str, width: int
) -> None:
    """One row per tree is what a client of a verified task can change; the union's rows may not be more."""
    block = Sparse("a", rows=20_000, select=50, width=width, stash=1)
    task = replace(TASK, blocks=(block,), security=security, selection=selection)
    trees = geometry_of(planned(task), planned(task).sparse(0)).trees
    larger = security == "semi-honest" and selection == "adaptive"
    for rows, expected in ((1, True), (trees, True), (trees + 1, larger), (20_000, False)):
        planted = replace(block, rows=rows, select=min(50, rows)) if selection == "adaptive" else block
        stands = planned(replace(task, blocks=(planted,)))
        assert moves_plainly(stands, stands.sparse(0), rows, 4) is expected, rows


@settings(max_examples=50)
@given(
    st.integers(1, 300),
    st.integers(1, 5000),
    st.integers(1, 40),
    st.sampled_from([32, 64, 128]),
    st.sampled_from(["retrieved", "any"]),
    st.sampled_from([1, 4, 8]),
)
def test_what_moves_plainly_is_never_more_to_send_or_to_move_in_all(
    select: int, rows: int, width: int, bits: int, updates: str, weight_bytes: int
) -> None:
    select = min(select, rows)
    for security, selection in itertools.product(("verified", "semi-honest"), ("adaptive", "fixed")):
        task = Task(
            name="t",
            blocks=[Sparse("a", rows=rows, select=select, width=width)],
            ring=Ring(bits),
            updates=updates,
            security=security,
            selection=selection,
        )
        task = planned(task)
        plain = replace(task, blocks=(Plain.of(task.sparse(0), rows),))
        setting = Setting(("ada", "bob"), dtype=f"f{weight_bytes}")
        if not moves_plainly(task, task.sparse(0), rows, weight_bytes):
            continue
        again = selection == "fixed"
        own = Trees.OWN if updates == "any" else Trees.RETRIEVAL
        with_trees = costs.fetching(task, setting, recalled=again) + costs.submission(
            task, Trees.SESSION if again else own, setting
        )
        without = costs.fetching(plain, setting) + costs.submission(plain, Trees.SESSION if again else own, setting)
        words = 150  # of a message more or less
        assert sum(without.up) <= sum(with_trees.up) + words
        assert sum(without.up + without.down) <= sum(with_trees.up + with_trees.down) + words
