"""Verified trees: a client that sends anything but point functions is left out, and the sum of the others is exact."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task, kernels
from fsl_async.client.planting import ClientTrees
from fsl_async.derivation import expansion_keys, forest_roots, tree_digest
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.wire.public_part import ForestKey, Part, Trees, forests_of
from tests.support.cases import in_turn
from tests.support.rounds import Draw, Plaintext, Round, add, in_bytes

ROWS = np.array([0, 3, 11, 59])
KEY = ForestKey(0, 0)


Pair = tuple[Submission, Submission]


def round_of(bits: int, seed: int = 1, security: str = "verified", **changes: Any) -> Round:
    fields = {"rows": 60, "select": 4, "width": 2, "stash": 1} | changes
    blocks = [Sparse("a", **fields), Dense("d", size=3)]
    task = Task(name="t", blocks=blocks, ring=Ring(bits), security=security)  # type: ignore[arg-type]
    return Round(task, Draw(seed, bits, security).model(task), seed)


def update_of(value: int = 5) -> dict[str, Any]:
    return {"a": (ROWS, np.full((4, 2), value)), "d": np.full(3, value)}


def with_part(play: Round, pair: Pair, data: bytes) -> Pair:
    """The same pair with another public part, from which both servers take the trees' digest anew."""
    part = Part(pair[0].part.layout, memoryview(data))
    tree = tree_digest(part.layout, part.data)
    first, second = (dataclasses.replace(submission, part=part, trees=part, tree=tree) for submission in pair)
    return first, second


# ---- honest trees


@in_turn("trees", [Trees.OWN, Trees.RETRIEVAL])
@in_turn("seed", range(5))
def test_honest_trees_are_accepted(bits: int, seed: int, trees: Trees) -> None:
    draw = Draw(seed, bits, "verified", most_weights=2**12)
    task = draw.task()
    play = Round(task, draw.model(task), seed)
    rows = draw.rows(task)
    first, second = play.add(play.submissions("alice", play.plant(rows), draw.update(task, rows), trees))
    assert first == second
    assert len(first) == 32


def test_proofs_depend_on_the_key_that_clients_never_learn() -> None:
    play = round_of(64)
    pair = play.submissions("alice", play.plant({"a": ROWS}), update_of())
    first, _ = play.add(pair)
    others = [add(Aggregate(play.config, server, b"another key"), pair[server]) for server in (0, 1)]
    assert others[0] == others[1] != first


# ---- one bit anywhere


def flipped(data: memoryview, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("kind", ["tree", "proof"])
def test_any_bit_of_trees_and_tag_corrections_counts(bits: int, kind: str) -> None:
    play = round_of(bits)
    pair = play.submissions("alice", play.plant({"a": ROWS}), update_of())
    chance = random.Random(bits)
    pieces = [piece for piece in pair[0].part.layout.pieces if piece.kind == kind]
    assert {piece.key for piece in pieces} == {key for key, _ in forests_of(play.config.shape)}
    for piece in pieces:
        for bit in chance.sample(range(8 * piece.start, 8 * piece.stop), 12):
            first, second = play.add(with_part(play, pair, flipped(pair[0].part.data, bit)))
            assert first != second, f"bit {bit} of {piece}"


def test_a_flipped_bit_of_a_hint_changes_a_value_and_is_not_the_proof_s_concern(bits: int) -> None:
    """The proof says that one row at most is touched per bin; not by how much."""
    play = round_of(bits)
    pair = play.submissions("alice", play.plant({"a": ROWS}), update_of())
    piece = next(piece for piece in pair[0].part.layout.pieces if piece.kind == "hint")
    first, second = play.add(with_part(play, pair, flipped(pair[0].part.data, 8 * piece.start)))
    assert first == second


@pytest.mark.parametrize("server", [0, 1])
def test_another_master_seed_than_the_trees_counts(server: int) -> None:
    play = round_of(64)
    pair = list(play.submissions("alice", play.plant({"a": ROWS}), update_of()))
    pair[server] = dataclasses.replace(pair[server], msk=b"another seed !!!")
    first, second = play.add((pair[0], pair[1]))
    assert first != second


def test_proofs_are_bound_to_client_round_and_commitments() -> None:
    """What one client has proved, another cannot present, nor the same client again."""
    play = round_of(64)
    client_trees = play.plant({"a": ROWS})
    pair = play.submissions("alice", client_trees, update_of())
    changes: list[dict[str, Any]] = [
        {"client": "bob"},
        {"commitments": (pair[0].commitments[1], pair[0].commitments[0])},
        {"tree": b"x" * 32},
    ]
    for change in changes:
        stolen = tuple(dataclasses.replace(submission, **change) for submission in pair)
        first, second = play.add((stolen[0], stolen[1]))
        assert first != second, change
    play.next_epoch()
    first, second = play.add(pair)
    assert first != second


# ---- a client that proves what it has made, and knows κ


def evaluated(play: Round, client_trees: ClientTrees, key: ForestKey = KEY) -> tuple[np.ndarray, np.ndarray]:
    """Both servers' blocks at every leaf of a forest: (segments, leaves, bins, 2)."""
    forest = dict(forests_of(play.config.shape))[key]
    blocks = []
    for server in (0, 1):
        view = kernels.Selection(
            keys=expansion_keys(play.config),
            roots=forest_roots(client_trees.seeds.msk[server], key, forest, server),
            tree=client_trees.planted[key].tree,
            select=expansion_keys(play.config),
            select_hints=np.zeros(forest.trees, dtype=np.uint8),
            positions=1,
        )
        leaves = np.zeros((forest.segments, forest.leaves, forest.bins, 2), dtype=np.uint64)
        for segment in range(forest.segments):
            chosen = np.arange(forest.leaves, dtype=np.uint32)
            kernels.evaluate_leaves(view, chosen, leaves, segment, 0, forest.bins)
        blocks.append(leaves)
    return blocks[0], blocks[1]


def is_point_function(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether under every bin at most one leaf differs, and there the control bits do."""
    differs = (first != second).any(axis=-1)
    bits_differ = (first[..., 0] ^ second[..., 0]) & np.uint64(1) == 1
    return bool((differs.sum(axis=1) <= 1).all() and (bits_differ == differs).all())


def with_tree(
    client_trees: ClientTrees, tree: kernels.Tree, leaves: tuple[np.ndarray, np.ndarray] | None = None
) -> ClientTrees:
    planted = client_trees.planted[KEY]
    changed = dataclasses.replace(planted, tree=tree, leaves=leaves or planted.leaves)
    return dataclasses.replace(client_trees, planted=client_trees.planted | {KEY: changed})


def at_alpha(client_trees: ClientTrees, blocks: np.ndarray) -> np.ndarray:
    """The blocks at every tree's chosen leaf."""
    planted = client_trees.planted[KEY]
    segments, _, bins, _ = blocks.shape
    tree = np.arange(segments * bins)
    return np.ascontiguousarray(blocks[tree // bins, planted.alphas, tree % bins])


def malformed(play: Round, client_trees: ClientTrees, chance: random.Random) -> ClientTrees:
    """One to three changes to the correction words of the bins, and the tag corrections that fit them best."""
    tree = client_trees.planted[KEY].tree
    words = tree.words.copy()
    for _ in range(chance.choice((1, 1, 2, 3))):
        level, number = chance.randrange(tree.depth), chance.randrange(tree.count)
        match chance.randrange(3):
            case 0:
                words[level, number, chance.randrange(2)] ^= np.uint64(1 << chance.randrange(64))
            case 1:
                words[level, number, 0] ^= np.uint64(1)  # the control bit
            case 2:
                words[level, number] = 0
    changed = with_tree(client_trees, kernels.Tree(words))
    first, second = (at_alpha(changed, blocks) for blocks in evaluated(play, changed))
    return with_tree(changed, kernels.Tree(words), (first, second))


@in_turn("seed", range(4))
@in_turn("rows", [25, 60, 200])  # of two, three and ten leaves
def test_a_malformed_tree_is_accepted_only_if_it_is_a_point_function_after_all(rows: int, seed: int) -> None:
    """The cheat redoes its proof for the trees it sends, which is the best it can do without the servers' key."""
    play = round_of(64, seed, rows=rows, stash=0)
    chance = random.Random(seed)
    verdicts = []
    for number in range(25):
        client_trees = malformed(play, play.plant({"a": ROWS % rows}), chance)
        first, second = play.add(play.submissions(f"client {number}", client_trees, {}))
        sound = is_point_function(*evaluated(play, client_trees))
        assert (first == second) == sound, f"seed {seed}, cheat {number}: a point function: {sound}"
        verdicts.append(sound)
    assert not all(verdicts)


def test_honest_trees_are_point_functions() -> None:
    play = round_of(64)
    client_trees = play.plant({"a": ROWS})
    first, second = evaluated(play, client_trees)
    assert is_point_function(first, second)
    differs = (first != second).any(axis=-1)
    assert (differs.sum(axis=1) == 1).all()  # dummies too: every bin looks alike
    planted = client_trees.planted[KEY]
    assert (at_alpha(client_trees, first) == planted.leaves[0]).all()
    assert (at_alpha(client_trees, second) == planted.leaves[1]).all()


def test_two_points_in_one_bin_are_refused() -> None:
    """The cheat that the proof is there for: a tree whose last level leaves both children different on both servers."""
    play = round_of(64, stash=0)
    client_trees = play.plant({"a": ROWS})
    tree = client_trees.planted[KEY].tree
    words = tree.words.copy()
    words[-1, :, 1] ^= np.uint64(2)
    cheat = with_tree(client_trees, kernels.Tree(words))
    blocks = evaluated(play, cheat)
    assert ((blocks[0] != blocks[1]).any(axis=-1).sum(axis=1) == 2).any()
    cheat = with_tree(cheat, cheat.planted[KEY].tree, (at_alpha(cheat, blocks[0]), at_alpha(cheat, blocks[1])))
    first, second = play.add(play.submissions("mallory", cheat, update_of()))
    assert first != second


# ---- in a round


def test_taking_a_cheat_out_leaves_an_exact_sum(bits: int) -> None:
    play = round_of(bits)
    plaintext = Plaintext(play.task)
    client_trees = play.plant({"a": ROWS})
    honest, cheat = (
        play.submissions("alice", client_trees, update_of(5)),
        play.submissions("mallory", client_trees, update_of(7)),
    )
    piece = next(piece for piece in cheat[0].part.layout.pieces if piece.kind == "tree")
    cheat = with_part(play, cheat, flipped(cheat[0].part.data, 8 * piece.start + 3))
    plaintext.add(update_of(5))
    play.add(honest)
    first, second = play.add(cheat)
    assert first != second
    for server, aggregate in enumerate(play.aggregates):
        aggregate.negate()
        add(aggregate, cheat[server])
        aggregate.negate()
    assert in_bytes(play.total()) == plaintext.elements()


def test_without_verification_a_cheat_spoils_the_sum() -> None:
    """What semi-honest means: nothing is proved, and nothing is noticed."""
    play = round_of(64, security="semi-honest")
    pair = play.submissions("mallory", play.plant({"a": ROWS}), {})
    piece = next(piece for piece in pair[0].part.layout.pieces if piece.kind == "tree")
    first, second = play.add(with_part(play, pair, flipped(pair[0].part.data, 8 * piece.start + 3)))
    assert first == second
    assert in_bytes(play.total()) != Plaintext(play.task).elements()
