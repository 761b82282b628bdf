"""What a client plants: rows checked, a tree for every bin, and rows that find no place deferred and named."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.client.planting import MasterSeeds, check_rows
from fsl_async.client.upload import read_answers
from fsl_async.derivation import (
    binding,
    dense_digest,
    dense_mask,
    forest_roots,
    public_digest,
    seed_commitment,
    submission_digest,
    tree_digest,
)
from fsl_async.digests import Domain, digest
from fsl_async.geometry import geometry_of
from fsl_async.wire.public_part import ForestKey, Layout, Trees, forests_of
from tests.support.rounds import Draw, Plaintext, Round, few_bins, in_bytes

BLOCK = Sparse("items", rows=100, select=3)


def task_of(**changes: Any) -> Task:
    fields = {"rows": 400, "select": 20, "width": 2} | changes
    return Task(name="t", blocks=[Sparse("a", **fields), Dense("d", size=5)], ring=Ring(64), security="semi-honest")


def round_of(seed: int = 1, **changes: Any) -> Round:
    task = task_of(**changes)
    return Round(task, Draw(seed, 64, "semi-honest").model(task), seed)


# ---- rows


@pytest.mark.parametrize(
    "rows", [[], (), [0], [99, 0, 5], np.array([1, 2]), np.array([3], dtype=np.uint64), np.zeros(0), range(3)]
)
def test_rows_are_distinct_integers_in_any_order(rows: Any) -> None:
    checked = check_rows(BLOCK, rows)
    assert checked.dtype == np.uint32
    assert checked.tolist() == [int(row) for row in rows]


# ---- trees


@pytest.mark.parametrize("rows", [[], [5], list(range(20))])
def test_every_bin_has_a_tree_and_every_row_one_bin(rows: list[int]) -> None:
    play = round_of(stash=1)
    client_trees = play.plant({"a": rows})
    placed = np.concatenate([client_trees.planted[key].item for key, _ in forests_of(play.config.shape)])
    assert sorted(placed[placed >= 0].tolist()) == list(range(len(rows)))
    for key, forest in forests_of(play.config.shape):
        planted = client_trees.planted[key]
        assert planted.tree.count == forest.trees
        assert (planted.alphas < forest.leaves).all()
        assert (planted.slots < forest.positions).all()


def test_dummies_stand_anywhere() -> None:
    """Were they all at one leaf, the first round's sum of hints would show which bins are occupied."""
    play = round_of(rows=4000, select=20)
    forest = geometry_of(play.config.shape, play.config.shape.sparse(0)).bins
    counts = np.zeros(forest.leaves, dtype=int)
    for _ in range(30):
        counts += np.bincount(play.plant({}).planted[ForestKey(0, 0)].alphas, minlength=forest.leaves)
    expected = 30 * forest.trees / forest.leaves
    assert (np.abs(counts - expected) < 6 * expected**0.5).all()


def test_two_groves_of_the_same_rows_share_nothing() -> None:
    play = round_of()
    first, second = (bytes(play.query_part(play.plant({"a": [1, 2, 3]})).data) for _ in range(2))
    same = np.frombuffer(first, np.uint8) == np.frombuffer(second, np.uint8)
    assert same.mean() < 0.02


def test_roots_carry_the_server_s_number_and_differ_between_forests() -> None:
    play = round_of(stash=2)
    seen = set()
    for key, forest in forests_of(play.config.shape):
        for server in (0, 1):
            roots = forest_roots(b"s" * 16, key, forest, server)
            assert (roots[:, 0] & np.uint64(1) == server).all()
            seen |= {(int(low) >> 1, int(high)) for low, high in roots}
    assert len(seen) == sum(forest.trees for _, forest in forests_of(play.config.shape))


def test_seeds_stay_out_of_logs() -> None:
    play = round_of()
    client_trees = play.plant({"a": [1]})
    first, _ = play.submissions("alice", client_trees, {})
    for msk in client_trees.seeds.msk:
        for shown in (repr(client_trees.seeds), repr(client_trees), repr(first)):
            assert repr(msk)[2:-1] not in shown
    assert "rows=" not in repr(client_trees)


# ---- what identifies a submission


def test_commitments_are_bound_to_seed_round_client_and_server() -> None:
    values = [
        seed_commitment(b"a" * 16, b"r" * 32, "alice", 0),
        seed_commitment(b"b" * 16, b"r" * 32, "alice", 0),
        seed_commitment(b"a" * 16, b"s" * 32, "alice", 0),
        seed_commitment(b"a" * 16, b"r" * 32, "bob", 0),
        seed_commitment(b"a" * 16, b"r" * 32, "alice", 1),
    ]
    assert len(set(values)) == 5
    seeds = MasterSeeds((b"a" * 16, b"b" * 16))
    assert seeds.commitments(b"r" * 32, "alice") == (values[0], seed_commitment(b"b" * 16, b"r" * 32, "alice", 1))


def test_digests_tell_their_parts_apart() -> None:
    parts: list[Any] = [b"r" * 32, b"alice", b"p" * 32, b"t" * 32, (b"0" * 32, b"1" * 32)]
    others: list[Any] = [b"R" * 32, b"bob", b"P" * 32, b"T" * 32, (b"1" * 32, b"0" * 32)]
    bindings = {binding(*parts)}
    for place, other in enumerate(others):
        bindings.add(binding(*[other if number == place else part for number, part in enumerate(parts)]))
    assert len(bindings) == 6
    names = {submission_digest(bind, bound) for bind in bindings for bound in (b"", b"d" * 32, b"e" * 32)}
    assert len(names | bindings) == 6 + 18


def test_a_public_part_is_named_by_all_of_its_bytes() -> None:
    layout = Layout.submission(planned(task_of()), Trees.OWN)
    part = np.random.default_rng(5).bytes(layout.size)
    names = {public_digest(layout, part, tree_digest(layout, part))}
    pieces = [piece for piece in layout.pieces if piece.stop > piece.start]
    for piece in pieces:
        for place in (piece.start, piece.stop - 1):
            changed = bytearray(part)
            changed[place] ^= 1
            names.add(public_digest(layout, changed, tree_digest(layout, changed)))
    assert len(names) == 1 + sum(len({piece.start, piece.stop - 1}) for piece in pieces)


def test_a_part_without_trees_has_no_digest_of_trees() -> None:
    layout = Layout.submission(planned(task_of()), Trees.SESSION)
    assert tree_digest(layout, bytes(layout.size)) == b""


def test_parts_of_a_digest_cannot_be_cut_elsewhere() -> None:
    assert digest(Domain.TREE, b"ab", b"c") != digest(Domain.TREE, b"a", b"bc") != digest(Domain.TREE, b"abc")
    assert digest(Domain.TREE, b"a") != digest(Domain.PUBLIC_PART, b"a")
    assert len({domain.value for domain in Domain}) == len(Domain)
    assert all(len(domain.value) <= 16 for domain in Domain)


WORDS = ((1, b"salt"), (2, b"salt"), (1, b"another"))
"""Epochs, and what a mask depends on besides."""


def test_dense_masks_are_used_once() -> None:
    task = task_of()
    masks = [dense_mask(task, msk, *words).tobytes() for msk in (b"a" * 16, b"b" * 16) for words in WORDS]
    assert len(set(masks)) == 6
    assert len(masks[0]) == 5 * 8


def test_the_dense_digest_is_keyed_with_the_carrier_s_seed() -> None:
    assert dense_digest(b"share", b"a" * 16) != dense_digest(b"share", b"b" * 16)
    assert dense_digest(b"", b"a" * 16) == b""


# ---- what is refused


def test_updates_of_rows_that_were_not_planted_are_refused() -> None:
    play = round_of()
    client_trees = play.plant({"a": [1, 2, 3]})
    with pytest.raises(MisuseError, match="block 'a': row 9 was not retrieved in this round"):
        play.submissions("alice", client_trees, {"a": ([2, 9], np.zeros((2, 2), dtype=int))})
    with pytest.raises(MisuseError, match="row 0 was not retrieved"):
        play.submissions("alice", play.plant({}), {"a": ([0], np.zeros((1, 2), dtype=int))})


@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize("change", [-64, -1, 1])
def test_answers_of_another_size_are_violations(server: int, change: int) -> None:
    play = round_of()
    client_trees = play.plant({"a": [1]})
    row_bytes = play.model["a"].itemsize * 2
    size = sum(forest.trees for _, forest in forests_of(play.config.shape)) * row_bytes + -(-row_bytes // 8) * 8
    answers = [memoryview(bytes(size + (change if server == number else 0))) for number in (0, 1)]
    with pytest.raises(
        PeerViolationError, match=f"^S{server}: answered with {size + change} bytes, the task implies {size}"
    ):
        read_answers(play.config, client_trees, (answers[0], answers[1]))


# ---- rows that find no place


@pytest.fixture
def _few_bins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So few bins that 20 rows cannot all have one."""
    few_bins(monkeypatch, 5)
    yield
    planned.cache_clear()


@pytest.mark.usefixtures("_few_bins")
@pytest.mark.parametrize("stash", [0, 1, 2])
def test_overflowing_rows_go_to_the_stash_and_then_are_deferred(stash: int) -> None:
    play = round_of(stash=stash)
    tried = (np.arange(first, first + 20) for first in range(play.task.sparse(0).rows - 20))
    planted = ((rows, play.plant_some({"a": rows})) for rows in tried)
    rows, client_trees = next(
        found for found in planted if len(found[1].deferred[0]) == 20 - 15 - stash
    )  # all bins are full
    deferred = client_trees.deferred[0]
    assert set(deferred.tolist()) <= set(rows.tolist())
    (found,) = play.retrieve([client_trees])
    kept = ~np.isin(rows, deferred)
    assert found["a"][kept].tobytes() == play.model["a"][rows[kept]].tobytes()
    assert not any(found["a"][~kept].tobytes())

    values = np.arange(40).reshape(20, 2) - 20
    if len(deferred):
        with pytest.raises(MisuseError, match=f"row {deferred.min()} was deferred; submit it in the next round"):
            play.submissions("alice", client_trees, {"a": (np.sort(rows), values)})
    update = {"a": (rows[kept], values[kept])}
    plaintext = Plaintext(play.task)
    plaintext.add(update)
    play.submit("alice", client_trees, update, Trees.RETRIEVAL)
    assert in_bytes(play.total()) == plaintext.elements()


@pytest.mark.usefixtures("_few_bins")
def test_a_message_does_not_show_that_rows_were_deferred() -> None:
    play = round_of()
    sizes = {len(play.query_part(play.plant_some({"a": np.arange(count)})).data) for count in (0, 10, 20)}
    assert len(sizes) == 1
