"""Trees, hints, selection and proofs on every instruction set, against the reference and against what they mean."""

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.errors import MisuseError
from tests.support import reference
from tests.support.cases import in_turn
from tests.support.kernel_cases import (
    CONVERT,
    EXPAND,
    HASH,
    MASK,
    SEGMENTS,
    SELECT,
    TAG,
    Case,
    difference,
    reference_tree,
    roots,
    total_of,
)

EDGES = [(1, 1), (3, 2), (1, 3), (255, 3), (256, 2), (257, 5), (3, 127), (2, 128), (1, 129), (515, 1)]


def sums(case: Case) -> list[np.ndarray]:
    accumulators = [case.accumulator() for _ in (0, 1)]
    for server, accumulator in enumerate(accumulators):
        for segment in range(SEGMENTS):
            kernels.adder(case.evaluation(server), accumulator)(segment, 0, case.bins)
    return accumulators


# Against the reference, exhaustively


@in_turn("depth", [0, 1, 2, 3])
def test_every_leaf_of_every_small_tree(isa: str, depth: int) -> None:
    """All alphas × all leaves of a depth: one tree for each alpha, in three segments."""
    case = Case(bins=2**depth, leaves=2**depth)
    case.alphas = np.tile(np.arange(2**depth, dtype=np.uint32), SEGMENTS)
    case.tree, *case.at_alpha = kernels.generate(case.keys, *case.roots, case.alphas, depth)
    leaves = [case.all_leaves(server) for server in (0, 1)]
    for tree in range(case.trees):
        words, *at_alpha = reference_tree(case, tree)
        assert reference.to_ints(case.tree.words[:, tree]) == words
        assert [reference.to_ints(blocks[tree])[0] for blocks in case.at_alpha] == at_alpha
        segment, bin_ = divmod(tree, case.bins)
        for server in (0, 1):
            root = reference.to_ints(case.roots[server][tree])[0]
            expected = [reference.leaf(EXPAND, words, root, x) for x in range(case.leaves)]
            assert reference.to_ints(leaves[server][segment, :, bin_]) == expected


@in_turn("bits", [32, 64, 128])
@in_turn("planes", [1, 3])
def test_hints_and_shares(isa: str, bits: int, planes: int) -> None:
    case = Case(bins=2, leaves=3, planes=planes, bits=bits, seed=bits)
    accumulators, leaves = sums(case), [case.all_leaves(server) for server in (0, 1)]
    for tree in range(case.trees):
        _, *at_alpha = reference_tree(case, tree)
        segment, bin_ = divmod(tree, case.bins)
        for plane in range(planes):
            payload = reference.to_ints(case.payload[plane, tree])[0]
            hint = reference.hint(CONVERT, tuple(at_alpha), plane, payload, bits)
            assert reference.to_ints(case.hints[plane, tree])[0] == hint
            for server in (0, 1):
                nodes = reference.to_ints(leaves[server][segment, :, bin_])
                expected = [reference.share(CONVERT, node, plane, hint, bits) for node in nodes]
                assert reference.to_ints(accumulators[server][segment, :, plane, bin_]) == expected


@in_turn("positions", [1, 2, 4])
def test_selection_bits(isa: str, positions: int) -> None:
    case = Case(bins=8, leaves=5, seed=positions)
    slots = np.random.default_rng(1).integers(0, positions, case.trees, dtype=np.uint8)
    keys = kernels.key_schedule(SELECT)
    hints = kernels.make_select_hints(keys, *case.at_alpha, slots, positions)
    for server in (0, 1):
        selection = kernels.Selection(case.keys, case.roots[server], case.tree, keys, hints, positions)
        bits = np.zeros((SEGMENTS, case.leaves, positions), dtype=np.uint8)
        leaves = case.all_leaves(server)
        for segment in range(SEGMENTS):
            kernels.evaluate_select(selection, bits, segment, 0, 8)
        spread = np.unpackbits(bits, axis=2, bitorder="little").reshape(SEGMENTS, case.leaves, case.bins, positions)
        for tree in range(case.trees):
            segment, bin_ = divmod(tree, case.bins)
            at_alpha = tuple(reference.to_ints(blocks[tree])[0] for blocks in case.at_alpha)
            if positions > 1:
                assert hints[tree] == reference.select_hint(SELECT, at_alpha, int(slots[tree]), positions)
            for x in range(case.leaves):
                node = reference.to_ints(leaves[segment, x, bin_])[0]
                expected = reference.selected(SELECT, node, int(hints[tree]), positions)
                assert [int(bit) for bit in spread[segment, x, bin_]] == [expected >> i & 1 for i in range(positions)]


def test_proofs(isa: str) -> None:
    case = Case(bins=3, leaves=5)
    verification = verification_of(case)
    masks = kernels.keystream(MASK, nonce=0, count=case.leaves)
    for tree in range(case.trees):
        x = int(case.alphas[tree])
        tags = [reference.tag((TAG, MASK), reference.to_ints(blocks[tree])[0], x) for blocks in case.at_alpha]
        assert reference.to_ints(verification.corrections[tree])[0] == tags[0] ^ tags[1]
    assert reference.to_ints(masks) == [reference.aes(MASK, x) for x in range(case.leaves)]
    for server in (0, 1):
        leaves, proofs = case.all_leaves(server), proofs_of(case, verification, server)
        for tree in range(case.trees):
            nodes = reference.to_ints(leaves[tree // case.bins, :, tree % case.bins])
            correction = reference.to_ints(verification.corrections[tree])[0]
            expected = reference.proof((TAG, MASK), HASH, nodes, correction)
            assert reference.to_ints(proofs[tree])[0] == expected


def test_tag_corrections_of_many_trees_are_those_of_each(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(bins=37, leaves=5, planes=1, bits=64, seed=3)
    at_once = verification_of(case).corrections
    monkeypatch.setattr("fsl_async.kernels.trees.generation.TILE", 10)
    np.testing.assert_array_equal(verification_of(case).corrections, at_once)


def test_trees_travel_as_their_words() -> None:
    """Whether these lie in memory side by side, as generated ones do, or not."""
    tree = Case(7, leaves=9, planes=1, bits=64).tree
    assert bytes(tree.to_bytes()) == tree.words.tobytes()
    some = kernels.Tree(tree.words[:, 2:5])
    assert bytes(some.to_bytes()) == some.words.tobytes()


def verification_of(case: Case) -> kernels.Verification:
    masks, hash_keys = (kernels.keystream(key, nonce=0, count=case.leaves) for key in (MASK, HASH))
    tag = kernels.key_schedule(TAG)
    corrections = kernels.tag_corrections(tag, *case.at_alpha, masks[case.alphas])
    return kernels.Verification(tag, masks, hash_keys, corrections)


def proofs_of(case: Case, verification: kernels.Verification, server: int) -> np.ndarray:
    proofs = np.zeros((case.trees, 2), dtype=np.uint64)
    accumulator, plain = case.accumulator(), case.accumulator()
    for segment in range(SEGMENTS):
        evaluation = case.evaluation(server)
        kernels.verifying_adder(evaluation, verification, accumulator, proofs)(segment, 0, case.bins)
        kernels.adder(evaluation, plain)(segment, 0, case.bins)
    assert (accumulator == plain).all()
    return proofs


# By what they mean, on shapes at the edges


@in_turn("bins, leaves", EDGES)
def test_shares_add_up(isa: str, bins: int, leaves: int) -> None:
    case = Case(bins, leaves, planes=2, bits=(32, 64, 128)[leaves % 3], seed=bins)
    first, second = sums(case)
    assert (difference(first, second, case.bits) == case.expected()).all(), case


@in_turn("bins, leaves", EDGES)
def test_selections_differ_at_alpha_alone(isa: str, bins: int, leaves: int) -> None:
    case = Case(bins, leaves)
    bits = np.zeros((2, SEGMENTS, leaves, -(-bins // 8)), dtype=np.uint8)
    for server in (0, 1):
        for segment in range(SEGMENTS):
            kernels.evaluate_select(case.selection(server), bits[server], segment, 0, bins)
    spread = np.unpackbits(bits[0] ^ bits[1], axis=2, bitorder="little")
    assert (spread[:, :, bins:] == 0).all()
    marked = spread[:, :, :bins].argmax(axis=1).reshape(-1)
    assert (spread.sum(axis=1)[:, :bins] == 1).all()
    assert (marked == case.alphas).all(), case


@in_turn("positions", [2, 4])
@in_turn("bins", [4, 7, 255, 257, 300])
def test_slots_differ_at_alpha_alone(isa: str, positions: int, bins: int) -> None:
    case = Case(bins, 3, seed=bins)
    slots = np.random.default_rng(bins).integers(0, positions, case.trees, dtype=np.uint8)
    keys = kernels.key_schedule(SELECT)
    hints = kernels.make_select_hints(keys, *case.at_alpha, slots, positions)
    bits = np.zeros((2, SEGMENTS, 3, -(-bins * positions // 8)), dtype=np.uint8)
    for server in (0, 1):
        selection = kernels.Selection(case.keys, case.roots[server], case.tree, keys, hints, positions)
        for segment in range(SEGMENTS):
            kernels.evaluate_select(selection, bits[server], segment, 0, bins)
    spread = np.unpackbits(bits[0] ^ bits[1], axis=2, bitorder="little")
    assert (spread[:, :, bins * positions :] == 0).all()
    spread = spread[:, :, : bins * positions].reshape(SEGMENTS, 3, bins, positions)
    expected = np.zeros_like(spread)
    tree = np.arange(case.trees)
    expected[tree // bins, case.alphas, tree % bins, slots] = 1
    assert (spread == expected).all(), case


@in_turn("bins, leaves", EDGES)
def test_honest_proofs_are_equal(isa: str, bins: int, leaves: int) -> None:
    case = Case(bins, leaves)
    verification = verification_of(case)
    assert (proofs_of(case, verification, 0) == proofs_of(case, verification, 1)).all(), case


def test_tampered_tree_is_found(isa: str) -> None:
    """A correction word with one bit changed makes two leaves differ somewhere under that node."""
    case = Case(bins=17, leaves=8)
    verification = verification_of(case)
    case.tree.words[1, :, 1] ^= np.uint64(1 << 40)
    equal = (proofs_of(case, verification, 0) == proofs_of(case, verification, 1)).all(axis=1)
    assert not equal.any()


@in_turn("width", [1, 5, 16, 64])
@in_turn("bits", [32, 64, 128])
def test_rows_of_many_elements(width: int, bits: int) -> None:
    case = Case(bins=19, leaves=5, planes=-(-width * bits // 128), bits=bits, seed=width)
    first, second = sums(case)
    assert (difference(first, second, bits) == case.expected()).all(), case


def test_ranges_of_bins_do_not_touch_each_other() -> None:
    case = Case(bins=600, leaves=6)
    whole, cut = case.accumulator(), case.accumulator()
    for segment in range(SEGMENTS):
        kernels.adder(case.evaluation(0), whole)(segment, 0, 600)
        for start, stop in ((0, 0), (590, 600), (0, 3), (3, 259), (259, 590), (600, 600)):
            kernels.adder(case.evaluation(0), cut)(segment, start, stop)
    assert (whole == cut).all()


def test_ranges_of_selection_bits() -> None:
    case = Case(bins=601, leaves=6)
    whole = np.zeros((SEGMENTS, 6, 76), dtype=np.uint8)
    cut = np.zeros_like(whole)
    for segment in range(SEGMENTS):
        kernels.evaluate_select(case.selection(0), whole, segment, 0, 601)
        for start, stop in ((592, 601), (0, 8), (8, 592), (8, 8)):
            kernels.evaluate_select(case.selection(0), cut, segment, start, stop)
    assert (whole == cut).all()


def test_accumulators_keep_what_is_in_them() -> None:
    case = Case(bins=20, leaves=3, bits=128)
    once, twice = case.accumulator(), case.accumulator()
    for segment in range(SEGMENTS):
        kernels.adder(case.evaluation(0), once)(segment, 0, 20)
        for _ in range(2):
            kernels.adder(case.evaluation(0), twice)(segment, 0, 20)
    assert (difference(twice, once, 128) == once).all()


def test_deep_tree(isa: str) -> None:
    """A stash slot: one tree over many rows."""
    leaves = 5000
    keys = kernels.key_schedule(EXPAND)
    alphas = np.array([4711], dtype=np.uint32)
    both = [roots(server, 1) for server in (0, 1)]
    tree, *_ = kernels.generate(keys, *both, alphas, 13)
    bits = np.zeros((2, 1, leaves, 1), dtype=np.uint8)
    for server in (0, 1):
        selection = kernels.Selection(keys, both[server], tree, keys, np.zeros(1, dtype=np.uint8), 1)
        kernels.evaluate_select(selection, bits[server], 0, 0, 1)
    assert np.flatnonzero(bits[0] ^ bits[1]).tolist() == [4711]


def test_chosen_leaves(isa: str) -> None:
    case = Case(bins=21, leaves=29)
    chosen = np.array([0, 3, 4, 4, 11, 27, 28], dtype=np.uint32)
    some = np.zeros((SEGMENTS, len(chosen), 21, 2), dtype=np.uint64)
    for segment in range(SEGMENTS):
        kernels.evaluate_leaves(case.evaluation(1), chosen, some, segment, 0, 21)
    assert (some == case.all_leaves(1)[:, chosen]).all()


def test_later_epoch_from_kept_leaves(isa: str) -> None:
    case = Case(bins=21, leaves=5, planes=2, bits=64)
    accumulator = case.accumulator()
    for segment in range(SEGMENTS):
        kernels.add_leaves(case.evaluation(0), case.all_leaves(0), accumulator, segment, 0, 21)
    assert (accumulator == sums(case)[0]).all()


# Totals


@in_turn("bins, leaves", EDGES)
def test_totals_are_sums_over_leaves(isa: str, bins: int, leaves: int) -> None:
    bits = (32, 64, 128)[leaves % 3]
    case = Case(bins, leaves, planes=2, bits=bits, seed=bins)
    verification, proofs = verification_of(case), np.zeros((case.trees, 2), dtype=np.uint64)
    shares = []
    for server in (0, 1):
        evaluation, plain = case.evaluation(server), sums(case)[server]
        walked, verified, kept = (case.totals() for _ in range(3))
        cells = [case.accumulator() for _ in range(3)]
        for segment in range(SEGMENTS):
            part = (segment, 0, bins)
            kernels.adder(evaluation, cells[0], walked)(*part)
            kernels.verifying_adder(evaluation, verification, cells[1], proofs, verified)(*part)
            kernels.add_leaves(evaluation, case.all_leaves(server), cells[2], *part, kept)
        assert all((sum_ == plain).all() for sum_ in cells)
        assert all((totals.sums == total_of(plain, bits)).all() for totals in (walked, verified, kept))
        shares.append(walked.sums)
    assert (difference(shares[0], shares[1], bits) == case.payload).all(), case


def test_totals_of_ranges() -> None:
    """Ranges write their own trees' totals, and overwrite what was there; the accumulator's content is not in them."""
    case = Case(bins=600, leaves=6, planes=3, bits=32)
    whole, cut = case.totals(), case.totals()
    cut.sums[:] = 7
    accumulator = case.accumulator()
    for segment in range(SEGMENTS):
        kernels.adder(case.evaluation(0), accumulator, whole)(segment, 0, 600)
        for start, stop in ((0, 0), (590, 600), (0, 3), (3, 259), (259, 590), (600, 600)):
            kernels.adder(case.evaluation(0), accumulator, cut)(segment, start, stop)
    assert (whole.sums == cut.sums).all()


def test_totals_do_not_show_shares() -> None:
    assert repr(Case(bins=1, leaves=1).totals()) == "Totals(...)"


def test_totals_of_another_shape_are_refused() -> None:
    case = Case(bins=9, leaves=5, planes=2)
    for shape in ((1, case.trees, 2), (2, case.trees - 1, 2)):
        totals = kernels.Totals(np.zeros(shape, dtype=np.uint64))
        with pytest.raises(MisuseError, match="totals: expected uint64"):
            kernels.adder(case.evaluation(0), case.accumulator(), totals)(0, 0, 9)


@pytest.mark.slow
def test_instruction_sets_agree() -> None:
    before, results = kernels.active_isa(), []
    for name in kernels.isa_names():
        kernels.select_isa(name)
        results.append(sums(Case(bins=33, leaves=7))[0])
    kernels.select_isa(before)
    assert all((result == results[0]).all() for result in results)


def test_inputs_that_are_views_of_messages() -> None:
    """Pieces of a message: read-only, and not aligned."""
    case = Case(bins=9, leaves=5)
    expected = sums(case)[0]

    def piece(array: np.ndarray) -> np.ndarray:
        return np.frombuffer(b"x" + array.tobytes(), dtype=array.dtype, offset=1).reshape(array.shape)

    case.tree = kernels.Tree(piece(case.tree.words))
    case.hints, case.roots = piece(case.hints), [piece(array) for array in case.roots]
    assert (sums(case)[0] == expected).all()
