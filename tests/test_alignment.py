"""Unions on the wire, and the tasks of the rounds that find them and use them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from machine_scenes import key

from fsl_async import Dense, PeerViolationError, Ring, Sparse, Task
from fsl_async.alignment import (
    UnionBlock,
    aligned_task,
    describe_union,
    pack_union,
    union_rows,
    union_task,
    unpack_union,
)

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


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
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
    assert (task.ring, task.updates, task.alignment) == (Ring(64), TASK.updates, "all")
    assert (task.security, task.max_clients) == (TASK.security, TASK.max_clients)


@pytest.mark.parametrize(("sizes", "rows", "selects"), [((70, 3), [70, 3], [50, 2]), ((20, 0), [20, 1], [20, 1])])
def test_an_aligned_round_has_the_union_s_rows(sizes: tuple[int, int], rows: list[int], selects: list[int]) -> None:
    task = aligned_task(TASK, tuple(UnionBlock(name, size, key(1)) for name, size in zip("ab", sizes, strict=True)))
    sparse = [block for _, block in task.sparse_blocks()]
    assert [block.rows for block in sparse] == rows
    assert [block.select for block in sparse] == selects
    assert [(block.name, block.width, block.stash) for block in sparse] == [("a", 3, 1), ("b", 1, 0)]
    assert task.blocks[1] == TASK.blocks[1]
    assert (task.ring, task.largest, task.alignment) == (TASK.ring, TASK.largest, "all")
