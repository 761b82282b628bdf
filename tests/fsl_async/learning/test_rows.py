"""Ids of a batch become rows: each once, or the most frequent."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fsl_async import Dense, MisuseError, Sparse
from fsl_async.learning import distinct_rows, frequent_rows

WORDS = Sparse("words", rows=50, select=6, width=4)
batches = hnp.arrays(
    st.sampled_from([np.int64, np.int32, np.uint8]), hnp.array_shapes(max_dims=3), elements=st.integers(0, 49)
)


def refused(words: str):
    return pytest.raises(MisuseError, match=re.escape(words))


@given(batches)
def test_the_most_frequent_are_those_that_counting_finds(ids: np.ndarray) -> None:
    order = sorted(Counter(ids.flat).items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [int(row) for row, _ in order]
    picked = frequent_rows(ids, WORDS)
    assert picked.rows.tolist() == sorted(rows[:6])
    assert picked.deferred.tolist() == sorted(rows[6:])
    assert picked.rows.dtype == picked.deferred.dtype == np.int64
    held = ids[np.isin(ids, picked.rows)]
    assert np.array_equal(picked.rows[picked.positions(held)], held)


@given(batches)
def test_each_once_or_refused(ids: np.ndarray) -> None:
    distinct = sorted({int(row) for row in ids.flat})
    if len(distinct) <= 6:
        assert distinct_rows(ids, WORDS).tolist() == distinct
    else:
        with refused(f"block 'words': the batch has {len(distinct)} distinct rows, and a client selects 6"):
            distinct_rows(ids, WORDS)


def test_a_batch_in_two_dimensions_is_looked_up_as_it_is() -> None:
    ids = np.array([[7, 7, 0], [3, 0, 7]])
    picked = frequent_rows(ids, WORDS)
    assert picked.rows.tolist() == [0, 3, 7]
    assert picked.positions(ids).tolist() == [[2, 2, 0], [1, 0, 2]]


def test_equally_frequent_ones_are_decided_by_the_smaller_id() -> None:
    picked = frequent_rows([9, 9, 4, 4, 30, 2], WORDS, k=3)
    assert (picked.rows.tolist(), picked.deferred.tolist()) == ([2, 4, 9], [30])


def test_too_many_rows_say_what_to_do() -> None:
    with pytest.raises(MisuseError) as caught:
        distinct_rows(np.arange(10), WORDS)
    assert str(caught.value) == (
        "block 'words': the batch has 10 distinct rows, and a client selects 6: take the most frequent with "
        "`frequent_rows`, make the batch smaller, or agree on a task with select=10"
    )


@pytest.mark.parametrize("bad", [50, -1, 2**40])
def test_an_id_outside_of_the_table_is_refused_with_its_value_and_the_table_s_size(bad: int) -> None:
    for call in (distinct_rows, frequent_rows):
        with refused(f"block 'words': id {bad} at [1, 0] is outside of the table, which has 50 rows: 0 to 49"):
            call([[3, 4], [bad, 5]], WORDS)


def test_what_are_no_ids_of_a_table() -> None:
    with refused("block 'words': integer ids expected, got float64"):
        distinct_rows([1.0, 2.0], WORDS)
    with refused("block 'words': integer ids expected, got bool"):
        frequent_rows([True], WORDS)
    with refused("block 'words': integer ids expected: "):
        distinct_rows([[1, 2], [3]], WORDS)
    with refused("block 'head' is not sparse: it has no rows to select"):
        distinct_rows([1], Dense("head", size=3))
    with refused("block 'words': k must be from 1 to 6, its select, not 7"):
        frequent_rows([1], WORDS, k=7)
    with refused("block 'words': id 8 is not among the 2 rows that were picked; leave out ids that are in `deferred`"):
        frequent_rows([3, 4], WORDS).positions([[3], [8]])


def test_a_batch_of_nothing() -> None:
    assert distinct_rows([], WORDS).tolist() == []
    picked = frequent_rows(np.zeros((0, 3)), WORDS)
    assert (len(picked.rows), len(picked.deferred)) == (0, 0)
    assert picked.positions([]).shape == (0,)
