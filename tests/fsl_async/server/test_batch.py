"""Submissions added together give, byte for byte, what they give when they are added one after the other."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import private_part, terms_of
from fsl_async.derivation import binding
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest
from fsl_async.kernels import GROUP
from fsl_async.server import batch as batches
from fsl_async.server import slicing
from fsl_async.server.aggregation import Aggregate, Claim, Submission
from fsl_async.server.batch import MOST_BYTES, MOST_SUBMISSIONS, at_once, held_bytes
from fsl_async.server.slicing import Range, shared_out, tiles
from fsl_async.server.sums import UnionSum
from fsl_async.wire.pieces import spans_of
from fsl_async.wire.public_part import Trees
from tests.support.machine_scenes import key
from tests.support.rounds import Draw, Round, add


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut what is far too small to be cut, so that jobs meet within a segment."""
    monkeypatch.setattr(batches, "LEAVES_PER_PIECE", 40)
    monkeypatch.setattr(slicing, "TILE_BYTES", 2**12)


def in_threads(work: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(job) for job in work]:
            done.result()


def backwards(work: Sequence[Callable[[], None]]) -> None:
    for job in reversed(work):
        job()


def add_together(
    aggregate: Aggregate, submissions: Sequence[Submission], run: Callable[[Sequence[Callable[[], None]]], None]
) -> list[bytes]:
    batch = aggregate.batch(submissions, threads=4)
    for step in (batch.preparing, batch.adding, batch.concluding):
        run(step())
    return batch.entries


def drawn(seed: int, bits: int, security: str, **changes: object) -> tuple[Round, list[tuple[Submission, Submission]]]:
    """A round of a task drawn at random, and the submissions of a few clients."""
    draw = Draw(seed, bits, security, most_weights=2**13)
    task = draw.task(**changes)
    play = Round(task, draw.model(task), seed)
    return play, list(submissions_of(play, draw, draw.chance.randint(1, 6)))


def submissions_of(play: Round, draw: Draw, clients: int) -> Iterator[tuple[Submission, Submission]]:
    for number in range(clients):
        rows = draw.rows(play.task)
        client_trees = play.plant_some(rows)
        held = {
            block.name: np.setdiff1d(rows[block.name], client_trees.deferred.get(index, []))
            for index, block in play.task.sparse_blocks()
            if block.name in rows
        }
        trees = draw.chance.choice((Trees.OWN, Trees.RETRIEVAL))
        yield play.submissions(f"client {number}", client_trees, draw.update(play.task, held), trees)


def check_equal(play: Round, pairs: Sequence[tuple[Submission, Submission]], *sums: Callable[[int], Aggregate]) -> None:
    """One by one, together, and together with some taken out again."""
    make = sums[0] if sums else lambda server: play.start()[server]
    for server in (0, 1):
        alone, together, reduced = make(server), make(server), make(server)
        submissions = [pair[server] for pair in pairs]
        entries = [add(alone, submission) for submission in submissions]
        assert add_together(together, submissions, in_threads) == entries
        assert together.share() == alone.share()
        assert add_together(reduced, [*submissions, *submissions[:2]], backwards) == [*entries, *entries[:2]]
        reduced.negate()
        add_together(reduced, submissions[:2], in_threads)
        reduced.negate()
        assert reduced.share() == alone.share()
        if play.task.min_contributors is not None:
            assert together.counts() == alone.counts() == reduced.counts()


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_what_its_submissions_are_one_by_one(seed: int, bits: int, security: str) -> None:
    check_equal(*drawn(seed, bits, security))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_counts_of_contributors_are_the_same(bits: int) -> None:
    check_equal(*drawn(11, bits, "verified", blocks=BLOCKS, min_contributors=2, lying_clients=0))


BLOCKS = (Sparse("a", rows=900, select=40, width=3, stash=1), Dense("d", size=33), Sparse("b", rows=300, select=9))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_later_epochs_on_the_same_trees_are_the_same(bits: int) -> None:
    """Trees of a session, in a round with other conversion keys."""
    draw = Draw(5, bits, "semi-honest")
    task = draw.task(blocks=BLOCKS, selection="fixed")
    play = Round(task, draw.model(task), 5)
    rows = [{"a": draw.numbers.choice(900, 30, replace=False), "b": np.arange(8)} for _ in range(4)]
    all_trees = [play.plant(some) for some in rows]
    play.next_epoch()
    pairs = [
        play.submissions(f"client {number}", client_trees, draw.update(task, some), Trees.SESSION)
        for number, (client_trees, some) in enumerate(zip(all_trees, rows, strict=True))
    ]
    check_equal(play, pairs)


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_rounds_aligned_on_a_union_are_the_same(bits: int) -> None:
    draw = Draw(6, bits, "semi-honest")
    block = Sparse("a", rows=40_000, select=900, width=2, stash=1)
    task = draw.task(blocks=(block, Dense("d", size=5)), selection="fixed")
    play = Round(task, draw.model(task), 6)
    union = np.sort(draw.numbers.choice(block.rows, 1_000, replace=False)).astype(np.uint32)

    def aligned(server: int) -> Aggregate:
        aggregate = play.start()[server]
        aggregate._unions = {0: UnionSum(play.config, 0, play.config.shape.sparse(0), union)}
        return aggregate

    pairs = []
    for number in range(3):
        chosen = draw.numbers.choice(union, 500, replace=False)
        client_trees = play.plant({"a": chosen})
        pairs.append(play.submissions(f"client {number}", client_trees, draw.update(task, {"a": chosen})))
    check_equal(play, pairs, aligned)
    aggregate = aligned(0)
    add_together(aggregate, [pair[0] for pair in pairs], backwards)
    (span,) = (span for span in spans_of(task) if span.block == 0)
    parts = [aggregate.piece(span._replace(start=start, stop=start + 8_000)) for start in range(0, 40_000, 8_000)]
    assert b"".join(parts) == aggregate.piece(span)


@pytest.mark.parametrize("bits", [64, 128])
def test_bounds_are_proved_the_same(bits: int) -> None:
    """The verdict may be no: what is compared are both servers' shares of the proofs."""
    fields = {"ring": Ring(bits, fraction_bits=4), "min_clients": 2, "bound": 256.0, "bound_proof": "exact"}
    play, pairs = drawn(7, bits, "verified", blocks=BLOCKS, **fields)
    terms = terms_of(play.config.shape)
    assert terms is not None
    claiming = []
    for pair in pairs:
        bind = binding(play.config.round_id(), key(1), key(2), pair[0].tree, pair[0].commitments)
        carrier = play.config.carrier(pair[0].client)
        nothing = play.task.ring.zeros(terms.weights)
        private = private_part(terms, nothing, pair[1 - carrier].msk, bind, random.Random(7).randbytes)
        claims = [Claim(memoryview(private) if server == carrier else None, bind, key(4)) for server in (0, 1)]
        first, second = (replace(one, claim=claim) for one, claim in zip(pair, claims, strict=True))
        claiming.append((first, second))
    check_equal(play, claiming)


def test_whoever_does_not_claim_a_bound_is_named_by_the_batch() -> None:
    play, pairs = drawn(7, 64, "verified", blocks=BLOCKS, ring=Ring(64, 4), min_clients=2, bound=256.0)
    with pytest.raises(MisuseError, match="the submission of client 0 does not claim"):
        add_together(play.start()[0], [pairs[0][0]], backwards)


# ---- how bins are shared out

forests = st.builds(
    Forest,
    segments=st.integers(1, 3),
    bins=st.integers(1, 3_000),
    leaves=st.integers(1, 300),
    positions=st.just(1),
    element_bits=st.sampled_from((32, 64, 128)),
    width=st.integers(1, 20),
)


@given(st.lists(forests, max_size=5), st.integers(1, 40), st.sampled_from((1, 16, GROUP)))
@settings(max_examples=150, deadline=None)
def test_every_bin_is_in_exactly_one_part(cut: list[Forest], count: int, multiple: int) -> None:
    parts = shared_out(cut, count, multiple)
    assert len(parts) <= count
    assert all(parts)
    pieces = [piece for part in parts for piece in part]
    for number, forest in enumerate(cut):
        for segment in range(forest.segments):
            of_segment = [piece for piece in pieces if piece[:2] == (number, segment)]
            ends = [0, *(piece.stop for piece in of_segment)]
            assert [piece.start for piece in of_segment] == ends[:-1]
            assert ends[-1] == forest.bins
            assert all(piece.start % multiple == 0 and piece.start < piece.stop for piece in of_segment)
    work = [sum((piece.stop - piece.start) * weight(cut[piece.forest]) for piece in part) for part in parts]
    fair = sum(work) / count
    assert all(some < fair + multiple * max(map(weight, cut)) + 1 for some in work)


def weight(forest: Forest) -> int:
    return forest.leaves * (2 + forest.planes)


@given(forests, st.integers(0, 3_000), st.integers(0, 3_000), st.sampled_from((16, GROUP)))
@settings(max_examples=150, deadline=None)
def test_tiles_of_a_range_are_the_range(forest: Forest, one: int, other: int, multiple: int) -> None:
    piece = Range(0, 0, min(one, other) // multiple * multiple, max(one, other))
    cut = list(tiles(piece, forest, multiple))
    assert [bin_ for tile in cut for bin_ in range(*tile)] == list(range(piece.start, piece.stop))
    assert all(start % multiple == 0 for start, _ in cut)


# ---- how many at once


def task_of(rows: int, select: int, width: int = 1) -> Task:
    return planned(Task(name="t", blocks=(Sparse("a", rows=rows, select=select, width=width),), ring=Ring(64)))


def test_many_small_submissions_are_added_at_once_and_few_large_ones() -> None:
    small, large, huge = task_of(2**15, 328), task_of(2**20, 10_486), task_of(2**25, 335_545)
    assert at_once(small, threads=2) == MOST_SUBMISSIONS
    assert 4 <= at_once(large, threads=2) <= 12
    assert at_once(large, threads=2) < at_once(large, threads=64) <= 15
    assert at_once(huge, threads=2) == 1
    for task in (small, large):
        assert held_bytes(task) <= 2 * MOST_BYTES
    assert 60 << 20 < held_bytes(huge) < 120 << 20
    assert at_once(Task(name="d", blocks=(Dense("d", size=9),), ring=Ring(64)), threads=1) == MOST_SUBMISSIONS
