"""The ways in which a malicious client falsifies one tree of a submission, or binds it to something else."""

from dataclasses import replace

import numpy as np

from fsl_async import kernels
from fsl_async.derivation import expansion_keys

from .forgeries import MALLORY, Forgery, Grown, Malformation, Workshop, round_of


def _one_tree(forgery: Forgery, rng: np.random.Generator, *, depth: int = 1) -> tuple[Grown, int]:
    """Some tree of a forgery, with at least so many levels."""
    keys = [key for key, forest in forgery.forests.items() if forest.depth >= depth]
    key = keys[rng.integers(len(keys))]
    return forgery.grown[key], int(rng.integers(forgery.forests[key].trees))


def _block(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2**64, 2, dtype=np.uint64)


def _bit_of_a_block(rng: np.random.Generator, first: int) -> np.ndarray:
    place = int(rng.integers(first, 128))
    return np.array([1 << place if place < 64 else 0, 1 << place - 64 if place >= 64 else 0], dtype=np.uint64)


def _seed_bit(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    level = workshop.rng.integers(len(grown.words))
    grown.words[level, tree] ^= _bit_of_a_block(workshop.rng, 1)
    return forgery.prove(workshop.rng)


def _control(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    grown.words[workshop.rng.integers(len(grown.words)), tree, 0] ^= np.uint64(1)
    return forgery.prove(workshop.rng)


def _all_seed_bits(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    grown.words[workshop.rng.integers(len(grown.words)), tree] ^= np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64)
    return forgery.prove(workshop.rng)


def _borrowed_word(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    level = workshop.rng.integers(len(grown.words))
    other = tree + 1 + int(workshop.rng.integers(grown.words.shape[1] - 1)) if grown.words.shape[1] > 1 else tree
    grown.words[level, tree] = grown.words[level - 1, other % grown.words.shape[1]]
    return forgery.prove(workshop.rng)


def _random_words(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    for level in range(len(grown.words)):
        grown.words[level, tree] = _block(workshop.rng)
    return forgery.prove(workshop.rng)


def _truncated(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    level = workshop.rng.integers(len(grown.words))
    grown.words[level:, tree] = 0
    return forgery.prove(workshop.rng)


def _levels_exchanged(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng, depth=2)
    one, other = workshop.rng.choice(len(grown.words), 2, replace=False)
    grown.words[[one, other], tree] = grown.words[[other, one], tree]
    return forgery.prove(workshop.rng)


def _bins_swapped(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng)
    other = int(workshop.rng.integers(grown.words.shape[1]))
    grown.words[:, [tree, other]] = grown.words[:, [other, tree]]
    return forgery.prove(workshop.rng)


def _two_points(forgery: Forgery, workshop: Workshop) -> Forgery:
    """The last level's word leaves both leaves under the marked node different, one in control bit as well."""
    grown, tree = _one_tree(forgery, workshop.rng)
    grown.words[-1, tree] ^= _block(workshop.rng)
    return forgery.prove(workshop.rng)


def _two_subtrees(forgery: Forgery, workshop: Workshop) -> Forgery:
    """The first level corrects neither side: both halves of the tree differ."""
    grown, tree = _one_tree(forgery, workshop.rng)
    grown.words[0, tree] = _block(workshop.rng)
    return forgery.prove(workshop.rng)


def _wrong_root(forgery: Forgery, workshop: Workshop) -> Forgery:
    """One tree is planted on roots that do not come from the master seeds."""
    key = list(forgery.grown)[workshop.rng.integers(len(forgery.grown))]
    tree, forest = int(workshop.rng.integers(forgery.forests[key].trees)), forgery.forests[key]
    roots = [np.stack([_block(workshop.rng)]) for _ in (0, 1)]
    for server in (0, 1):
        roots[server][:, 0] = roots[server][:, 0] & ~np.uint64(1) | np.uint64(server)
    alpha = workshop.rng.integers(0, forest.leaves, 1, dtype=np.uint32)
    alien, _, _ = kernels.generate(expansion_keys(forgery.config), *roots, alpha, forest.depth)
    grown = forgery.grown[key]
    grown.words[:, tree] = alien.words[:, 0]
    return forgery.prove(workshop.rng)


def _wrong_seed(forgery: Forgery, workshop: Workshop) -> Forgery:
    """A server gets another master seed than the trees were planted with, and everything is bound to that one."""
    seeds = list(forgery.msk)
    seeds[workshop.rng.integers(2)] = workshop.randomness(16)
    return replace(forgery, msk=(seeds[0], seeds[1])).prove(workshop.rng)


def _seeds_exchanged(forgery: Forgery, workshop: Workshop) -> Forgery:
    return replace(forgery, msk=(forgery.msk[1], forgery.msk[0])).prove(workshop.rng)


def _earlier_round(forgery: Forgery, workshop: Workshop) -> Forgery:
    """Everything of a submission to the round before, its seeds bound to this round and its proof made anew."""
    return replace(workshop.submission(workshop.earlier), config=forgery.config).prove(workshop.rng)


def _another_session(forgery: Forgery, workshop: Workshop) -> Forgery:
    """This round's seeds, hints and name; the trees are those of another session."""
    other = workshop.submission(workshop.earlier)
    return replace(forgery, grown=other.grown).prove(workshop.rng)


def _other_client(forgery: Forgery, workshop: Workshop) -> Forgery:
    """Another client's submission, whole, handed in under the forger's own name."""
    return replace(forgery, client=MALLORY)


def _earlier_epoch(forgery: Forgery, workshop: Workshop) -> Forgery:
    """Sound trees of this hash seed with the proof they had in another round on the same seed."""
    later = round_of(workshop.task, 3, session=2)
    corrections = replace(forgery, config=later, grown={k: g.copy() for k, g in forgery.grown.items()})
    proved = corrections.prove(workshop.rng)
    for key, grown in forgery.grown.items():
        grown.corrections = proved.grown[key].corrections
    return forgery


def _correction_bit(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng, depth=0)
    grown.corrections[tree] ^= _bit_of_a_block(workshop.rng, 0)
    return forgery


def _correction_missing(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng, depth=0)
    grown.corrections[tree] = 0
    return forgery


def _correction_of_another_bin(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, tree = _one_tree(forgery, workshop.rng, depth=0)
    other = int(workshop.rng.integers(len(grown.corrections)))
    grown.corrections[[tree, other]] = grown.corrections[[other, tree]]
    return forgery


def _corrections_shifted(forgery: Forgery, workshop: Workshop) -> Forgery:
    grown, _ = _one_tree(forgery, workshop.rng, depth=0)
    grown.corrections = np.ascontiguousarray(np.roll(grown.corrections, 1, axis=0))
    return forgery


MALFORMATIONS = (
    Malformation("a bit of a seed correction word flipped", _seed_bit),
    Malformation("a control correction flipped", _control),
    Malformation("all seed bits of a correction word flipped", _all_seed_bits),
    Malformation("a correction word of another bin's", _borrowed_word),
    Malformation("all correction words random", _random_words),
    Malformation("correction words cut off from a level on", _truncated),
    Malformation("two levels exchanged", _levels_exchanged),
    Malformation("the trees of two bins exchanged", _bins_swapped),
    Malformation("two points in a bin, correction for one of them", _two_points),
    Malformation("two halves of a tree differ, correction for one bad leaf", _two_subtrees),
    Malformation("a tree on other roots than the master seeds'", _wrong_root),
    Malformation("another master seed for one server", _wrong_seed),
    Malformation("the servers' master seeds exchanged", _seeds_exchanged),
    Malformation("a submission of an earlier round, bound anew", _earlier_round),
    Malformation("hints of this session, trees of another", _another_session),
    Malformation("another client's submission under one's own name", _other_client, trees=False),
    Malformation("tag corrections of another round on the same trees", _earlier_epoch, trees=False),
    Malformation("a bit of a tag correction flipped", _correction_bit, trees=False),
    Malformation("a tag correction left out", _correction_missing, trees=False),
    Malformation("tag corrections of two bins exchanged", _correction_of_another_bin, trees=False),
    Malformation("all tag corrections shifted by a bin", _corrections_shifted, trees=False),
)
