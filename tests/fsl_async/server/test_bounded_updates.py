"""A client's whole update within its bound or not, on real trees: what both servers would exchange, and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Ring, RingIntegers, Sparse, Task
from fsl_async.bounds import BoundTerms, accepts, private_part, terms_of
from fsl_async.client.planting import ClientTrees
from fsl_async.derivation import binding
from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import BoundExceededError
from fsl_async.geometry import RowNumbers
from fsl_async.randomness import SeededSource
from fsl_async.ring import Elements
from fsl_async.server.aggregation import Aggregate, Claim, Submission
from fsl_async.server.batch import TreeTotals
from fsl_async.server.slicing import ForestSlice
from fsl_async.server.sums import UnionSum
from fsl_async.wire.public_part import ForestKey, Trees, forests_of
from tests.support.cases import in_turn
from tests.support.machine_scenes import key
from tests.support.rounds import Draw, Round, add

SPARSE = Sparse("a", rows=60, select=4, width=3, stash=1)
BLOCKS = (SPARSE, Dense("d", size=5), Sparse("b", rows=700, select=9, width=1))
METHODS = {"exact 64": (64, "exact"), "exact 128": (128, "exact")}
METHODS |= {f"projected {bits}": (bits, "projected") for bits in (32, 64, 128)}
NORM = 2**12
ROWS = {"a": np.array([0, 3, 11, 59]), "b": np.array([5, 699])}
each_method = pytest.mark.parametrize("method", METHODS)

Update = Mapping[str, Any]


@dataclass
class Scene:
    """One round, and one client's trees in it."""

    method: str
    client: str = "alice"
    blocks: tuple[Sparse | Dense, ...] = BLOCKS
    selection: str = "adaptive"

    def __post_init__(self) -> None:
        bits, proof = METHODS[self.method]
        task = Task(
            name="t",
            blocks=self.blocks,
            ring=Ring(bits, fraction_bits=4),
            min_clients=2,
            max_clients=5,
            bound=NORM / 16,
            bound_proof=proof,  # type: ignore[arg-type]
            selection=self.selection,  # type: ignore[arg-type]
        )
        self.source = SeededSource(7, self.client)
        self.play = Round(task, Draw(1, bits, "verified").model(task), seed=3)
        self.client_trees: ClientTrees = self.play.plant({name: rows for name, rows in ROWS.items() if self.has(name)})

    def has(self, name: str) -> bool:
        return any(block.name == name for block in self.blocks)

    @cached_property
    def terms(self) -> BoundTerms:
        terms = terms_of(self.play.config.shape)
        assert terms is not None
        return terms

    def vector(self, update: Update) -> Elements:
        """The whole update in the order of the wire, as a client has it."""
        task = self.play.config.shape
        blocks = {index: block.name for index, block in task.sparse_blocks()}
        whole = []
        for tree, forest in forests_of(task):
            chosen, values = update.get(blocks[tree.block], (np.zeros(0, dtype=int), np.zeros((0, forest.width))))
            by_row = dict(zip(np.asarray(chosen).tolist(), np.asarray(values, dtype=object), strict=True))
            rows = self.client_trees.rows[tree.block]
            for item in self.client_trees.planted[tree].item:
                none = np.zeros(forest.width, dtype=object)
                whole += [none if item < 0 else by_row.get(int(rows[item]), none)]
        dense = [
            np.asarray(update.get(block.name, np.zeros(block.size)), dtype=object) for _, block in task.dense_blocks()
        ]
        numbers = np.concatenate([*whole, *dense]) if whole or dense else np.zeros(0)
        return task.ring.encode(RingIntegers(np.array([int(number) for number in numbers], dtype=object)), 2**62)

    def bind(self, pair: tuple[Submission, Submission], public: bytes = key(2)) -> bytes:
        return binding(self.play.config.round_id(), key(1), public, pair[0].tree, pair[0].commitments)

    def prove(self, pair: tuple[Submission, Submission], update: Update) -> bytes:
        carrier = self.play.config.carrier(self.client)
        return private_part(self.terms, self.vector(update), pair[1 - carrier].msk, self.bind(pair), self.source)

    def verdict(self, sent: Update, proved: Update | None = None, trees: Trees = Trees.OWN) -> bool:
        """Whether servers count an update with a proof about that update, or about another one."""
        pair = self.play.submissions(self.client, self.client_trees, sent, trees)
        return self.judged(pair, self.prove(pair, sent if proved is None else proved))

    def judged(self, pair: tuple[Submission, Submission], private: bytes, **changes: Any) -> bool:
        """Both servers' entries, made from these submissions, compared as both servers do."""
        first, second = self.entries(pair, private, self.play.start(), **changes)
        return first[:DIGEST_BYTES] == second[:DIGEST_BYTES] and accepts(
            self.terms, first[DIGEST_BYTES:], second[DIGEST_BYTES:]
        )

    def entries(
        self,
        pair: tuple[Submission, Submission],
        private: bytes,
        aggregates: tuple[Aggregate, Aggregate],
        **changes: Any,
    ) -> list[bytes]:
        carrier = self.play.config.carrier(self.client)
        claim = replace(Claim(None, self.bind(pair), key(4)), **changes)
        return [
            add(
                aggregates[server],
                replace(submission, claim=replace(claim, private=memoryview(private) if server == carrier else None)),
            )
            for server, submission in enumerate(pair)
        ]


def update_of(size: int = 50) -> dict[str, Any]:
    """An update of about 25 numbers of that size."""
    return {"a": (ROWS["a"], np.full((4, 3), -size)), "b": (ROWS["b"], np.full((2, 1), size)), "d": np.full(5, size)}


@each_method
@in_turn("client", ["alice", "bob", "carol"])  # each server is someone's carrier
def test_an_honest_update_is_counted_whatever_brings_its_trees(method: str, client: str) -> None:
    scene = Scene(method, client)
    for trees in (Trees.OWN, Trees.RETRIEVAL):
        assert scene.verdict(update_of(), trees=trees)
    assert scene.verdict({})
    assert scene.verdict({"d": [NORM, 0, 0, 0, 0]})


@each_method
def test_every_epoch_of_a_session_has_its_own_proof(method: str) -> None:
    scene = Scene(method, blocks=(SPARSE, Dense("d", size=5)), selection="fixed")
    update = {name: values for name, values in update_of().items() if name != "b"}
    assert scene.verdict(update)
    scene.play.next_epoch()
    assert scene.verdict(update, trees=Trees.SESSION)
    assert not scene.verdict(update | {"d": [2 * NORM, 0, 0, 0, 0]}, proved=update, trees=Trees.SESSION)


@each_method
@in_turn("where", ["a", "b", "d"])
def test_a_proof_about_a_smaller_update_is_not_accepted(method: str, where: str) -> None:
    """In whichever block the excess lies, and however many numbers share it; a proof of itself cannot be made."""
    for size in (NORM + 1, 2**20, 2**26):
        large = update_of(1)
        if where == "d":
            large["d"] = np.array([0, 0, 3 * size, 0, 0])
        else:
            values = np.zeros_like(large[where][1])
            values[-1, -1] = 3 * size
            large[where] = (large[where][0], values)
        scene = Scene(method)
        with pytest.raises(BoundExceededError):
            scene.verdict(large)
        assert not scene.verdict(large, proved=update_of(1))


@each_method
def test_a_proof_made_for_something_else_is_not_accepted(method: str) -> None:
    scene = Scene(method)
    pair = scene.play.submissions("alice", scene.client_trees, update_of(), Trees.OWN)
    private = scene.prove(pair, update_of())
    assert scene.judged(pair, private)
    assert not scene.judged(pair, private, bind=scene.bind(pair, public=key(3)))
    other = scene.play.submissions("alice", scene.play.plant(ROWS), update_of(), Trees.OWN)
    assert not scene.judged(other, private)
    spoilt = bytearray(private)
    spoilt[-1] ^= 1
    assert not scene.judged(pair, bytes(spoilt))


@each_method
def test_servers_that_name_different_submissions_do_not_accept(method: str) -> None:
    """The point of the query depends on the submission's digest and on the servers' toss."""
    scene = Scene(method)
    pair = scene.play.submissions("alice", scene.client_trees, update_of(), Trees.OWN)
    private = scene.prove(pair, update_of())
    first = scene.entries(pair, private, scene.play.start())[0]
    second = scene.entries(pair, private, scene.play.start(), digest=key(5))[1]
    assert not accepts(scene.terms, first[DIGEST_BYTES:], second[DIGEST_BYTES:])
    tosses = (Aggregate(scene.play.config, 0, key(8)), Aggregate(scene.play.config, 1, key(9)))
    first, second = scene.entries(pair, private, tosses)
    assert not accepts(scene.terms, first[DIGEST_BYTES:], second[DIGEST_BYTES:])


@each_method
def test_hints_that_change_after_the_proof_are_noticed(method: str) -> None:
    scene = Scene(method)
    pair = scene.play.submissions("alice", scene.client_trees, update_of(), Trees.OWN)
    private = scene.prove(pair, update_of())
    layout = pair[0].part.layout
    for piece in (piece for piece in layout.pieces if piece.kind == "hint"):
        data = bytearray(pair[0].part.data)
        data[piece.start + 1] ^= 16
        assert not scene.judged(with_data(pair, data), private)


def test_a_tree_with_two_leaves_whose_total_is_nothing_is_left_out() -> None:
    """Its hint makes two large payloads cancel out, so a proof of its bound fits; the proof of the trees does not."""
    scene = Scene("exact 64", blocks=(Sparse("a", rows=60, select=4),))
    pair = scene.play.submissions("alice", scene.client_trees, {}, Trees.OWN)
    pieces = {piece.kind: piece for piece in pair[0].part.layout.pieces if piece.key == (0, 0)}
    forest = next(forest for _, forest in forests_of(scene.play.config.shape))
    last_word = pieces["tree"].start + (forest.depth - 1) * forest.trees * 16
    data = bytearray(pair[0].part.data)
    data[last_word + 9] ^= 1
    assert difference_of(scene, with_data(pair, data))[0] != 0
    for _ in range(2):  # the total falls, or rises, with the hint
        off = int(difference_of(scene, with_data(pair, data))[0])
        place = slice(pieces["hint"].start, pieces["hint"].start + 8)
        data[place] = ((int.from_bytes(data[place], "little") + off) % 2**64).to_bytes(8, "little")
        if difference_of(scene, with_data(pair, data))[0] == 0:
            break
        data[place] = ((int.from_bytes(data[place], "little") - 2 * off) % 2**64).to_bytes(8, "little")
    changed = with_data(pair, data)
    assert not difference_of(scene, changed).any()
    first, second = scene.entries(changed, scene.prove(changed, {}), scene.play.start())
    assert accepts(scene.terms, first[DIGEST_BYTES:], second[DIGEST_BYTES:])
    assert first[:DIGEST_BYTES] != second[:DIGEST_BYTES]


def with_data(pair: tuple[Submission, Submission], data: bytearray) -> tuple[Submission, Submission]:
    """The same pair with another public part."""
    part = replace(pair[0].part, data=memoryview(bytes(data)))
    first, second = (replace(submission, part=part, trees=part) for submission in pair)
    return first, second


def difference_of(scene: Scene, pair: tuple[Submission, Submission]) -> Elements:
    """The update that the servers hold shares of."""
    vectors = []
    for server, submission in enumerate(pair):
        aggregate = Aggregate(scene.play.config, server, key(9))
        totals = TreeTotals(scene.play.task.ring, dict(forests_of(scene.play.config.shape)))
        part = submission.part.layout.split(submission.part.data)
        for tree, forest in forests_of(scene.play.config.shape):
            evaluation = aggregate._evaluation(submission, tree, ForestSlice(forest, range(forest.bins)), part)
            add = aggregate._bins[0].adder(tree.forest, evaluation, totals.of(tree))
            for segment in range(forest.segments):
                add(segment, 0, forest.bins)
        vectors.append(totals.payloads(ForestKey(0, 0)))
    return scene.play.task.ring.subtract(vectors[0], vectors[1]).reshape(-1)


@each_method
def test_the_verdict_is_the_same_after_a_resend_and_when_others_are_in_the_sum(method: str) -> None:
    """A server may add a submission anew after a restart: its entry is the same bytes."""
    scene = Scene(method)
    pair = scene.play.submissions("alice", scene.client_trees, update_of(), Trees.OWN)
    private = scene.prove(pair, update_of())
    fresh, used = scene.play.start(), scene.play.start()
    entries = scene.entries(pair, private, fresh)
    scene.entries(pair, private, used)
    assert scene.entries(pair, private, used) == entries


def test_what_is_added_is_what_is_bounded_where_a_round_is_aligned_on_a_union() -> None:
    """Leaves outside the union are neither added nor bounded; an update at one of them is not in the sum either."""
    scene = Scene("exact 64", blocks=(SPARSE,), selection="fixed")
    update = {"a": (ROWS["a"], np.full((4, 3), 50))}
    inside = {"a": (ROWS["a"][1:], np.full((3, 3), 50))}
    pair = scene.play.submissions("alice", scene.client_trees, update, Trees.SESSION)
    union: RowNumbers = np.array([3, 7, 11, 40, 59], dtype=np.uint32)
    aligned = aligned_on(scene, union)
    entries = scene.entries(pair, scene.prove(pair, inside), aligned)
    assert accepts(scene.terms, *(entry[DIGEST_BYTES:] for entry in entries))
    shares = [np.frombuffer(aggregate.share(), dtype=np.uint64).reshape(60, 3) for aggregate in aligned]
    total = (shares[0] + shares[1]).view(np.int64)
    assert {row: total[row].tolist() for row in np.flatnonzero(total.any(axis=1))} == {
        row: [50, 50, 50] for row in (3, 11, 59)
    }
    entries = scene.entries(pair, scene.prove(pair, update), aligned_on(scene, union))
    assert not accepts(scene.terms, *(entry[DIGEST_BYTES:] for entry in entries))


def aligned_on(scene: Scene, union: RowNumbers) -> tuple[Aggregate, Aggregate]:
    """Empty sums of the same round, aligned on a union of the only block's rows."""
    first, second = scene.play.start()
    for aggregate in (first, second):
        aggregate._unions = {0: UnionSum(scene.play.config, 0, scene.play.config.shape.sparse(0), union)}
    return first, second
