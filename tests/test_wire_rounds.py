"""A round of docs/wire-vectors.json, read as docs/wire says: rows in bins, trees, hints, proofs and sums."""

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from fsl_async import PeerViolationError
from fsl_async.config import RoundConfig
from tests.support import reference
from tests.support.reference_hashing import permute
from tests.support.wire_page import VECTORS, Block, Forest, H, K, Round, digest_of_trees, le, limits, of


@pytest.mark.parametrize("case", VECTORS["permutations"], ids=lambda case: str(case["rows"]))
def test_permutations(case):
    for segment, images in enumerate(case["of the first rows, by segment"]):
        shown = range(len(images))
        assert [permute(of(case["key"]), segment, case["rows"], row) for row in shown] == images


@pytest.mark.parametrize("case", VECTORS["bins"], ids=lambda case: f"{case['k']}-of-{case['m']}")
def test_how_many_bins(case):
    assert (case["least"], case["most"]) == limits(case["k"], case["m"])


@pytest.mark.parametrize("name", VECTORS["refused bins"])
def test_bins_that_are_refused(name):
    """By what the page says, and by the library."""
    config = msgpack.unpackb(of(VECTORS["refused bins"][name]))
    (block,) = (block for block in config["task"]["blocks"] if block["type"] == "sparse")
    least, most = limits(block["select"], block["rows"])
    assert len(config["bins"]) != 1 or not least <= config["bins"][0] <= most
    with pytest.raises(PeerViolationError, match="bins"):
        RoundConfig.parse(of(VECTORS["refused bins"][name]), "S0")


class Example(Round):
    """A round of the examples: one client's parts, and what both servers make of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(of(case["configuration"]))
        self.case, self.client, self.tree_digest = case, case["client"], of(case["tree digest"])
        self.seeds = [of(seed) for seed in case["master seeds"]]
        self.told = self.commitments(self.seeds, self.client)
        self.rows = case["rows"] if len(self.blocks) > 1 else [case["rows"]]
        self.trees = self.split(of(case["retrieval"]["part"]), "tree", "select")

    def of_forests(self, parts: list[list[dict[str, bytes]]]) -> Iterator[tuple[Block, Forest, dict[str, bytes]]]:
        """Every forest, in the order of the wire, with its pieces in these parts and those of its trees."""
        for block, pieces, trees in zip(self.blocks, parts, self.trees, strict=True):
            for forest, own, brought in zip(block.forests, pieces, trees, strict=True):
                yield block, forest, brought | own

    def leaves(self, block: Block, forest: Forest, content: bytes, server: int) -> list[list[int]]:
        """The leaves of every tree of a forest, on one server."""
        found = []
        for tree in range(forest.trees):
            starts = [16 * (level * forest.trees + tree) for level in range(forest.depth)]
            words = [int.from_bytes(content[start : start + 16], "little") for start in starts]
            root = block.root(self.seeds[server], server, forest, tree)
            found.append([reference.leaf(self.expand, words, root, leaf) for leaf in range(forest.leaves)])
        return found

    def submission(self) -> tuple[bytes, list[list[dict[str, bytes]]], bytes]:
        """Salt, pieces, and digest of the dense share, of the submission on the retrieval's trees."""
        part = of(self.case["submission"]["part"])
        end = len(part) - (32 if self.has_dense else 0)
        return part[:16], self.split(part[16:end], "hint", "proof"), part[end:]

    def numbers(self, share: bytes, size: int) -> list[int]:
        """Elements of so many bytes."""
        return [int.from_bytes(share[at : at + size], "little") for at in range(0, len(share), size)]


@pytest.fixture(params=["verified", "counted", "semi-honest", "two blocks"])
def example(request) -> Example:
    return Example(VECTORS[request.param])


def test_keys_names_and_digests_of_a_round(example):
    case = example.case
    assert example.task_digest.hex() == case["task digest"]
    assert msgpack.packb(example.task) == of(case["task"])
    assert msgpack.packb(example.config) == of(case["configuration"])
    assert example.round_id.hex() == case["round id"]
    placements = [block.placement for block in example.blocks]
    assert [example.expand, example.select, *placements] == [*map(of, case["keys"].values())]
    assert {name: example.carrier(name) for name in case["carriers"]} == case["carriers"]
    assert [each.hex() for each in example.told] == case["commitments"]
    forests = [forest for block in example.blocks for forest in block.forests]
    shapes = [(f.segments, f.bins, f.leaves, f.positions, f.depth, f.trees) for f in forests]
    assert shapes == [tuple(forest.values()) for forest in case["forests"]]


def test_a_retrieval_selects_one_position_of_every_tree(example):
    pieces = [piece for _, _, piece in example.of_forests(example.trees)]
    assert digest_of_trees(pieces) == example.tree_digest
    public = H("fsl.public", example.tree_digest, *(piece["select"] for piece in pieces))
    assert public.hex() == example.case["retrieval"]["digest"]
    selected = set()
    for block, forest, piece in example.of_forests(example.trees):
        both = [example.leaves(block, forest, piece["tree"], server) for server in (0, 1)]
        hints, p = int.from_bytes(piece["select"], "little"), forest.positions
        for tree in range(forest.trees):
            hint, differing = hints >> tree * p & (2**p - 1), []
            for leaf in range(forest.leaves):
                bits = [reference.selected(example.select, nodes[tree][leaf], hint, p) for nodes in both]
                differing += [(leaf, slot) for slot in range(p) if (bits[0] ^ bits[1]) >> slot & 1]
            ((leaf, slot),) = differing
            selected.add((block.index, block.row_at(forest, tree, leaf, slot)))
    assert selected >= {(index, row) for index, rows in enumerate(example.rows) for row in rows}


def test_a_submission_adds_its_values_and_nothing_else(example):
    case, size = example.case["submission"], example.bits // 8
    salt, part, dense = example.submission()
    others = [piece for pieces in part for forest in pieces for piece in forest.values()]
    assert H("fsl.public", b"", salt, *others, dense).hex() == case["digest"]
    shares = [share_of(example, server, found, salt, part) for server, found in enumerate(case["servers"])]
    pairs = zip(*(example.numbers(share, size) for share in shares), strict=True)
    total = [(a + b) % 2**example.bits / 2**example.fraction_bits for a, b in pairs]
    values = case["values"] if len(example.blocks) > 1 else [case["values"]]
    expected = []
    for block, rows, of_rows in zip(example.blocks, example.rows, values, strict=True):
        opened, added = case["servers"][0].get("rows opened", range(block.rows)), dict(zip(rows, of_rows, strict=True))
        expected += [value for row in opened for value in added.get(row, [0.0] * block.width)]
    assert total == expected + case["values of the dense block"]
    assert bool(case["values of the dense block"]) == bool(example.dense)
    if example.counts:
        both = (example.numbers(of(found["share of the counts"]), 4) for found in case["servers"])
        counts = [(a + b) % 2**32 for a, b in zip(*both, strict=True)]
        assert counts == [int(row in example.rows[0]) for row in range(example.blocks[0].rows)]
    assert case["servers"][0]["proof"] == case["servers"][1]["proof"]


def share_of(example: Example, server: int, found: dict[str, Any], salt: bytes, part: Any) -> bytes:
    """One server's share, proof and words about it, as the example has them."""
    case, size, sign = example.case["submission"], example.bits // 8, -1 if server else 1
    sums = [[[0] * (block.width + example.counts) for _ in range(block.rows)] for block in example.blocks]
    groups = b""
    for block, forest, pieces in example.of_forests(part):
        nodes = example.leaves(block, forest, pieces["tree"], server)
        counts = add_up(example, block, forest, salt, pieces["hint"], nodes, sums[block.index])
        blocks = proof_blocks(example, pieces["proof"], nodes) if example.proved else b""
        last = b"".join(le((each + server) % 2**example.bits, size) for each in counts) if example.counts else b""
        groups += (
            H("fsl.proof-group", *in_segments(forest, blocks), *in_segments(forest, last)) if blocks + last else b""
        )
    assert H("fsl.proof", example.tree_digest, groups).hex() == found["proof"]
    shown, dense = [], of(case["dense share"])
    for block, of_rows in zip(example.blocks, sums, strict=True):
        opened = found.get("rows opened", range(block.rows))
        values = [value for row in opened for value in of_rows[row][: block.width]]
        shown.append(b"".join(le(sign * value % 2**example.bits, size) for value in values))
    if server != example.carrier(example.client):
        dense = example.dense_mask(example.seeds[server], salt, len(dense))
    share = b"".join([*shown, dense])
    assert share.hex() == found["share"]
    if example.counts:
        assert b"".join(le(sign * row[-1] % 2**32, 4) for row in sums[0]).hex() == found["share of the counts"]
    pieces = [H("fsl.share-piece", piece) for piece in (*shown, dense) if piece]
    assert [piece.hex() for piece in pieces] == found["digests of its pieces"]
    counted = msgpack.packb([[name, of(digest)] for name, digest in found["counted"].items()])
    both = [of(each) for each in found.get("digests of both", ("", ""))]
    said = (bytes([server]), H("fsl.roster", counted), *both, H("fsl.share", b"".join(pieces)), of(found["nonce"]))
    commitment = H("fsl.share-commit", example.round_id, *said).hex()
    assert commitment == found["share commitment, counting alice with the digest below"]
    return share


def add_up(
    example: Example,
    block: Block,
    forest: Forest,
    salt: bytes,
    hints: bytes,
    nodes: list[list[int]],
    sums: list[list[int]],
) -> list[int]:
    """Add one forest's shares, before the server's sign, to the rows; the last elements of every tree, summed."""
    key, counts, size = block.convert(salt), [0] * forest.trees, forest.payload * forest.element
    for tree, leaves in enumerate(nodes):
        hint = hints[tree * size : (tree + 1) * size]
        planes = example.numbers(hint + bytes(-len(hint) % 16), 16)
        for leaf, node in enumerate(leaves):
            found: list[int] = []
            for plane, masked in enumerate(planes):
                found += reference.elements(reference.share(key, node, plane, masked, example.bits), example.bits)
            counts[tree] += found[forest.payload - 1]
            for slot in range(forest.positions):
                row = block.row_at(forest, tree, leaf, slot)
                for column in range(block.width + example.counts) if row is not None else ():
                    sums[row][column] += found[slot * block.width + column]
    return counts


def in_segments(forest: Forest, column: bytes) -> list[bytes]:
    """What a forest of one group of bins has for each tree, cut by segments, empty where it has nothing."""
    size = len(column) // forest.segments
    return [column[size * segment : size * (segment + 1)] for segment in range(forest.segments)]


def proof_blocks(example: Example, corrections: bytes, nodes: list[list[int]]) -> bytes:
    tag = example.tag_keys(example.client, example.tree_digest, example.told)
    hashing = K("fsl.proof-key", of(example.case["submission"]["proof key"]))
    found = zip(nodes, example.numbers(corrections, 16), strict=True)
    return b"".join(le(reference.proof(tag, hashing, leaves, correction), 16) for leaves, correction in found)


def test_the_digest_of_a_submission(example):
    case, identity = example.case["submission"], of(VECTORS["statements"]["identity digest"])
    share = of(case["dense share"])
    dense = H("fsl.dense-share", share, key=example.seeds[example.carrier(example.client)]) if share else b""
    assert example.submission()[2] == dense
    parts = (identity, of(case["digest"]), example.tree_digest, example.told)
    assert example.bind(*parts).hex() == case["bind"]
    assert example.submission_digest(*parts).hex() == case["submission digest"]
