"""Contributors: every tree counts once, the counts are the clients' that stand on a row, and few rows are opened."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Ring, RingIntegers, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.client import planting, upload
from fsl_async.geometry import geometry_of
from fsl_async.server import contributors
from fsl_async.server.aggregation import split_share
from fsl_async.server.contributors import FalseCountError, check_counts, opened_rows
from fsl_async.wire.public_part import ForestKey, Trees, counts_bytes, share_bytes
from tests.support.cases import in_turn
from tests.support.hand_made import placed_everywhere
from tests.support.rounds import Draw, Round

ROWS = 64
"""With four rows of one client, so that a bin has a power of two of rows: the void leaf makes trees deeper."""


def round_of(bits: int = 64, least: int = 2, seed: int = 1, **changes: Any) -> Round:
    fields: dict[str, Any] = {"rows": ROWS, "select": 4, "width": 3, "stash": 1} | changes.pop("block", {})
    blocks = [Sparse("a", **fields), Dense("d", size=3), Sparse("b", rows=9, select=2)]
    task = Task(
        name="t", blocks=blocks, ring=Ring(bits), min_contributors=least, lying_clients=0, min_clients=2, **changes
    )
    model = {"a": np.arange(3 * ROWS).reshape(ROWS, 3), "d": np.zeros(3), "b": np.arange(9)}
    return Round(task, model, seed)


def update_of(rows: list[int], value: int = 5) -> dict[str, Any]:
    return {"a": (rows, np.full((len(rows), 3), value)), "d": np.full(3, value)}


def counts(play: Round) -> list[bytes]:
    return [aggregate.counts() for aggregate in play.aggregates]


def together(play: Round) -> np.ndarray:
    first, second = (np.frombuffer(share, "<u4") for share in counts(play))
    return (first + second).view(np.int32)


# ---- honest clients


@pytest.mark.parametrize("trees", [Trees.OWN, Trees.RETRIEVAL])
def test_counts_are_of_those_who_stand_on_a_row_and_only_rows_with_enough_are_opened(bits: int, trees: Trees) -> None:
    play = round_of(bits, updates="any" if trees is Trees.OWN else "retrieved")
    chosen = {"anna": [0, 7, 63], "ben": [7, 12], "carol": [7, 63], "dora": []}
    for value, (name, rows) in enumerate(chosen.items(), 1):
        play.submit(
            name, play.plant({"a": rows, "b": rows[:1] if name == "anna" else []}), update_of(rows, value), trees
        )
    expected = Counter(row for rows in chosen.values() for row in rows)
    found = together(play)
    assert {row: int(found[row]) for row in np.flatnonzero(found[:ROWS])} == dict(expected)
    assert found[ROWS:].tolist() == [1, *[0] * 8]  # block b: anna's; dummies count nowhere
    opened = opened_rows(play.task, counts(play))
    assert {name: rows.tolist() for name, rows in opened.items()} == {"a": [7, 63], "b": []}
    check_counts(play.config.shape, counts(play), 4)
    shares = [aggregate.share(opened) for aggregate in play.aggregates]
    assert [len(share) for share in shares] == [share_bytes(play.task, opened)] * 2
    first, second = (split_share(play.task, share, opened) for share in shares)
    total = {name: play.task.ring.to_integers(play.task.ring.add(first[name], second[name])) for name in first}
    assert total["a"].tolist() == [[1 + 2 + 3] * 3, [1 + 3] * 3]
    assert total["d"].tolist() == [1 + 2 + 3 + 4] * 3
    assert total["b"].shape[0] == 0


def test_a_client_counts_for_what_it_selected_and_did_not_update() -> None:
    play = round_of()
    play.submit("anna", play.plant({"a": [1, 2]}), update_of([1]), Trees.RETRIEVAL)
    assert np.flatnonzero(together(play)[:ROWS]).tolist() == [1, 2]


def test_every_epoch_of_a_session_counts_again(bits: int) -> None:
    play = round_of(bits, selection="fixed")
    client_trees = play.plant({"a": [3, 5]})
    for epoch in range(3):
        if epoch:
            play.next_epoch()
        play.submit(
            "anna", client_trees, update_of([3, 5] if epoch < 2 else [5]), Trees.SESSION if epoch else Trees.OWN
        )
        assert np.flatnonzero(together(play)[:ROWS]).tolist() == [3, 5]


def test_who_is_taken_out_is_not_counted() -> None:
    play = round_of()
    pair = play.submissions("anna", play.plant({"a": [3]}), update_of([3]))
    play.add(pair)
    for aggregate in play.aggregates:
        aggregate.negate()
    play.add(pair)
    for aggregate in play.aggregates:
        aggregate.negate()
    assert not together(play).any()


def test_a_retrieval_gets_its_rows_and_nothing_for_a_dummy() -> None:
    play = round_of()
    (found,) = play.retrieve([play.plant({"a": [0, 63], "b": [8]})])
    np.testing.assert_array_equal(found["a"], play.model["a"][[0, 63]])
    assert found["b"].reshape(-1).tolist() == [8]


@in_turn("seed", range(4))
def test_any_task_has_one_leaf_more_and_dummies_stand_there(bits: int, seed: int) -> None:
    draw = Draw(seed, bits, "verified", most_weights=2**12)
    plain = draw.task(blocks=[draw.sparse("a"), draw.sparse("b")], max_clients=7)
    task = draw.task(blocks=plain.blocks, max_clients=7, min_contributors=2, lying_clients=0)
    play = Round(task, draw.model(task), seed)
    client_trees = play.plant_some(draw.rows(task))
    task, plain = planned(task), planned(plain)
    for index, block in task.sparse_blocks():
        forests, before = geometry_of(task, block).forests, geometry_of(plain, block).forests
        for number, (forest, old) in enumerate(zip(forests, before, strict=True)):
            assert (forest.leaves, forest.payload_elements) == (old.leaves + 1, block.width + 1)
            assert forest.bins * (forest.leaves - 1) >= block.rows  # the last leaf is over no row
            planted = client_trees.planted[ForestKey(index, number)]
            assert ((planted.alphas == forest.leaves - 1) == (planted.item < 0)).all()


# ---- clients that lie


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, lie: Callable[[np.ndarray], None]) -> Iterator[None]:
    """Clients whose trees count otherwise: `lie` changes the counts of the first forest's trees."""
    honest, told = upload._payload, []

    def false(task: Task, forest: Any, planted: Any, payload: Any) -> Any:
        elements = honest(task, forest, planted, payload)
        if not told:
            told.append(integers := np.array([1] * forest.trees, dtype=object))
            lie(integers)
            elements[:, -1] = task.ring.encode(RingIntegers(integers.tolist()), 2**30)
        return elements

    with monkeypatch.context() as patch:
        patch.setattr(upload, "_payload", false)
        yield


LIES: dict[str, dict[int, int]] = {
    "one tree counts twice": {0: 2},
    "one tree does not count": {0: 0},
    "one twice, another not": {0: 2, 1: 0},
    "one takes away": {2: -1},
    "all of them count twice": dict.fromkeys(range(6), 2),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("trees", Trees)
def test_another_count_than_one_is_noticed(
    bits: int, lie: dict[int, int], trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = round_of(bits, selection="fixed" if trees is Trees.SESSION else "adaptive")
    client_trees = play.plant({"a": [3, 5]})
    if trees is Trees.SESSION:
        play.submit("anna", client_trees, update_of([3]))
        play.next_epoch()

    def told(integers: np.ndarray) -> None:
        for tree, count in lie.items():
            integers[tree] = count

    with counting(monkeypatch, told):
        first, second = play.add(play.submissions("anna", client_trees, update_of([3, 5]), trees))
    assert first != second


def test_a_dummy_on_a_row_counts_there_once_for_every_segment_and_stash_slot() -> None:
    """What a malicious client can do: docs/bounds.md says so."""
    play = round_of(block={"stash": 2})
    most = geometry_of(play.config.shape, play.config.shape.sparse(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planting, "_place", placed_everywhere(3))
        moved = play.plant({"a": [3]})
    first, second = play.add(play.submissions("mallory", moved, update_of([3])))
    assert first == second
    found = together(play)[:ROWS]
    assert found[3] == most.bins.segments + len(most.stash) == 5
    assert np.flatnonzero(found).tolist() == [3]
    check_counts(play.config.shape, counts(play), 1)


# ---- servers that lie


def pushed(share: bytes, row: int, by: int) -> bytes:
    words = np.frombuffer(share, "<u4").copy()
    words[row : row + 1] += np.uint32(by % 2**32)  # as a ring does, without a warning
    return words.tobytes()


def test_a_pushed_row_is_opened_and_counts_beyond_the_clients_are_noticed() -> None:
    """Within what the clients can have, nothing shows that a server has lied: docs/bounds-proofs.md says so."""
    play = round_of(least=3)
    for name in ("anna", "ben"):
        play.submit(name, play.plant({"a": [7]}), update_of([7]))
    honest = counts(play)
    assert not len(opened_rows(play.task, honest)["a"])
    for by, row in ((1, 7), (3, 9), (8, 9)):
        lie = [honest[0], pushed(honest[1], row, by)]
        assert opened_rows(play.task, lie)["a"].tolist() == [row]
        check_counts(play.config.shape, lie, 2)
    for by, row in ((-1, 9), (9, 9), (-3, 7), (7, 7), (2**31, 9)):
        with pytest.raises(FalseCountError, match=f"the count of row {row} of block 'a' is none that 2 clients can"):
            check_counts(play.config.shape, [honest[0], pushed(honest[1], row, by)], 2)
    everywhere = honest[1]
    for row in range(ROWS):
        everywhere = pushed(everywhere, row, 3)
    with pytest.raises(FalseCountError, match="the counts of block 'a' are together more than 2 clients can have"):
        check_counts(play.config.shape, [honest[0], everywhere], 2)


def test_a_share_of_counts_is_a_word_for_every_row() -> None:
    play = round_of(128)
    assert [len(share) for share in counts(play)] == [counts_bytes(play.task)] * 2 == [(ROWS + 9) * 4] * 2


def test_counts_are_looked_at_in_ranges_as_they_are_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Task(
        name="ranges",
        blocks=(Sparse("a", rows=23, select=2), Dense("d", size=3), Sparse("b", rows=9, select=2)),
        ring=Ring(64),
        min_clients=2,
        max_clients=5,
        min_contributors=2,
        lying_clients=0,
    )
    made = planned(made)
    drawn = np.random.default_rng(4)
    ours = drawn.integers(0, 2**32, 32, dtype=np.uint32)
    values = drawn.integers(0, 4, 32).astype(np.uint32)
    shares = [ours.tobytes(), (values - ours).tobytes()]
    at_once = opened_rows(made, shares)
    assert at_once["a"].tolist() == np.flatnonzero(values[:23] >= 2).tolist()
    monkeypatch.setattr(contributors, "ROWS_AT_ONCE", 5)
    in_ranges = opened_rows(made, shares)
    assert {name: rows.tolist() for name, rows in in_ranges.items()} == {n: r.tolist() for n, r in at_once.items()}
    beyond = values.copy()
    beyond[30] = 999
    with pytest.raises(FalseCountError, match="the count of row 7 of block 'b'"):
        check_counts(made, [ours.tobytes(), (beyond - ours).tobytes()], 100)
    many = np.concatenate([np.full(23, 15), np.zeros(9)]).astype(np.uint32)
    with pytest.raises(FalseCountError, match="the counts of block 'a' are together more than 1 clients can have"):
        check_counts(made, [ours.tobytes(), (many // 5 - ours).tobytes()], 1)
