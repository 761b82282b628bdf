"""A round of docs/wire-vectors.json, read as docs/wire says: rows in bins, trees, hints, proofs and sums."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, NamedTuple

import msgpack
import pytest

from fsl_async import PeerViolationError
from fsl_async.config import RoundConfig
from tests.support import reference
from tests.support.wire_page import VECTORS, H, K, le, of


@cache
def tables(key: bytes, segment: int, bits: int) -> bytes:
    content = b"fsl-async permutation rounds v1" + bytes([segment]) + key
    return hashlib.shake_256(content).digest(2 * 8 * 2 ** (bits - bits // 2))


def permuted(key: bytes, segment: int, rows: int, value: int) -> int:
    bits = (rows - 1).bit_length()
    high, low = bits // 2, bits - bits // 2
    stream = tables(key, segment, bits)

    def number(i: int, at: int) -> int:
        start = 2 * (i * 2**low + at)
        return int.from_bytes(stream[start : start + 2], "little")

    while True:
        h, w = value >> low, value % 2**low
        for i in (0, 2, 4, 6):
            h ^= number(i, w) % 2**high
            w ^= number(i + 1, h) % 2**low
        value = h * 2**low + w
        if value < rows:
            return value


@pytest.mark.parametrize("case", VECTORS["permutations"], ids=lambda case: str(case["rows"]))
def test_permutations(case):
    for segment, images in enumerate(case["of the first rows, by segment"]):
        shown = range(len(images))
        assert [permuted(of(case["key"]), segment, case["rows"], row) for row in shown] == images


def limits(k: int, m: int) -> tuple[int, int]:
    each = 50 if k <= 3 else 320 if k <= 15 else 150 if k <= 63 else 70 if k <= 255 else 44 if k <= 1023 else 43
    least = (k * each + 99) // 100
    return min(m, least), min(m, 16 * least)


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


class Forest(NamedTuple):
    segments: int
    bins: int
    leaves: int
    positions: int

    @property
    def depth(self) -> int:
        return (self.leaves - 1).bit_length()

    @property
    def trees(self) -> int:
        return self.segments * self.bins


class Round:
    """A round of the examples, read as the page says: one sparse block, a client's parts, what servers make of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.config = msgpack.unpackb(of(case["configuration"]))
        self.task = self.config["task"]
        self.block = self.task["blocks"][0]
        self.bits, self.width, self.rows = self.task["ring"]["bits"], self.block["width"], self.block["rows"]
        self.verified = self.task["security"] == "verified"
        self.counts = 1 if self.task["min_contributors"] else 0
        digest, seed = H("fsl.task", of(case["task"])), self.config["hash_seed"]
        self.expand = K("fsl.expand", digest, seed)
        self.select = K("fsl.select", digest, seed)
        self.placement = K("fsl.placement", digest, seed, le(0, 4))
        self.convert = lambda salt: K("fsl.convert", digest, seed, le(0, 4), le(self.config["number"], 8), salt)
        self.round_id = H("fsl.round", of(case["configuration"]))
        self.seeds = [of(seed) for seed in case["master seeds"]]
        self.forests = [self._bins(), *[Forest(1, 1, self.rows + self.counts, 1)] * self.block["stash"]]

    def _bins(self) -> Forest:
        bins = self.config["bins"][0]

        def cost(p: int) -> int:
            return (-(-self.rows // (bins * p)) - 1).bit_length() * 128 + p * self.width * self.bits

        fitting = [p for p in (4, 2, 1) if p == 1 or p * self.width * self.bits <= 128]
        positions = 1 if self.verified else min(fitting, key=cost)
        return Forest(3, bins, -(-self.rows // (bins * positions)) + self.counts, positions)

    def split_submission(self, part: bytes) -> tuple[bytes, list[dict[str, bytes]], bytes]:
        """Salt, pieces of each forest, digest of the dense share, of a submission on a retrieval's trees."""
        dense = 32 if any(block["type"] == "dense" for block in self.task["blocks"]) else 0
        return part[:16], self.split(part[16 : len(part) - dense], "hint", "proof"), part[len(part) - dense :]

    def split(self, part: bytes, *kinds: str) -> list[dict[str, bytes]]:
        """The pieces of each forest."""
        found = []
        for forest in self.forests:
            sizes = {
                "tree": 16 * forest.depth * forest.trees,
                "select": -(-forest.trees * forest.positions // 8) if forest.positions > 1 else 0,
                "hint": forest.trees * (forest.positions * self.width + self.counts) * self.bits // 8,
                "proof": 16 * forest.trees if self.verified else 0,
            }
            pieces = {}
            for kind in kinds:
                pieces[kind], part = part[: sizes[kind]], part[sizes[kind] :]
                assert len(pieces[kind]) == sizes[kind]
            found.append(pieces)
        assert not part
        return found

    def leaves(self, number: int, pieces: dict[str, bytes], server: int) -> list[list[int]]:
        """The leaves of every tree of a forest, on one server."""
        forest, content = self.forests[number], pieces["tree"]
        found = []
        for tree in range(forest.trees):
            starts = [16 * (level * forest.trees + tree) for level in range(forest.depth)]
            words = [int.from_bytes(content[start : start + 16], "little") for start in starts]
            root = reference.aes(self.seeds[server], number * 2**64 + tree) & ~1 | server
            found.append([reference.leaf(self.expand, words, root, leaf) for leaf in range(forest.leaves)])
        return found

    def row_at(self, number: int, tree: int, leaf: int, slot: int) -> int | None:
        """The row at a position of a forest; None where there is none."""
        forest = self.forests[number]
        if number:
            return leaf if leaf < self.rows else None
        segment, bin_ = divmod(tree, forest.bins)
        return self._inverse(segment).get((leaf * forest.bins + bin_) * forest.positions + slot)

    @cache  # noqa: B019 - as long as a test lasts
    def _inverse(self, segment: int) -> dict[int, int]:
        return {permuted(self.placement, segment, self.rows, row): row for row in range(self.rows)}


@pytest.fixture(params=["verified", "counted", "semi-honest"])
def example(request) -> Round:
    return Round(VECTORS[request.param])


def test_keys_names_and_digests_of_a_round(example):
    case = example.case
    assert H("fsl.task", of(case["task"])).hex() == case["task digest"]
    assert msgpack.packb(example.task) == of(case["task"])
    assert msgpack.packb(example.config) == of(case["configuration"])
    assert example.round_id.hex() == case["round id"]
    assert [example.expand, example.select, example.placement] == [*map(of, case["keys"].values())]
    number = le(example.config["number"], 8)
    for name, carrier in case["carriers"].items():
        assert H("fsl.carrier", example.config["hash_seed"], number, name.encode())[0] & 1 == carrier
    for server in (0, 1):
        parts = (example.seeds[server], example.round_id, case["client"].encode(), bytes([server]))
        assert H("fsl.seed-commit", *parts).hex() == case["commitments"][server]
    shapes = [(f.segments, f.bins, f.leaves, f.positions, f.depth, f.trees) for f in example.forests]
    assert shapes == [tuple(forest.values()) for forest in case["forests"]]


def test_a_retrieval_selects_one_position_of_every_tree(example):
    case = example.case["retrieval"]
    pieces = example.split(of(case["part"]), "tree", "select")
    trees = H("fsl.tree", *(piece["tree"] for piece in pieces))
    assert trees.hex() == example.case["tree digest"]
    selects = [piece["select"] for piece in pieces]
    assert H("fsl.public", trees, *selects).hex() == case["digest"]
    selected = set()
    for number, (forest, piece) in enumerate(zip(example.forests, pieces, strict=True)):
        both = [example.leaves(number, piece, server) for server in (0, 1)]
        hints = int.from_bytes(piece["select"], "little")
        for tree in range(forest.trees):
            hint = hints >> tree * forest.positions & (2**forest.positions - 1)
            differing = []
            for leaf in range(forest.leaves):
                bits = [reference.selected(example.select, nodes[tree][leaf], hint, forest.positions) for nodes in both]
                differing += [(leaf, slot) for slot in range(forest.positions) if (bits[0] ^ bits[1]) >> slot & 1]
            ((leaf, slot),) = differing
            selected.add(example.row_at(number, tree, leaf, slot))
    assert selected >= set(example.case["rows"])


def test_a_submission_adds_its_values_and_nothing_else(example):
    case = example.case["submission"]
    salt, part, dense = example.split_submission(of(case["part"]))
    trees = example.split(of(example.case["retrieval"]["part"]), "tree", "select")
    others = [piece for pieces in part for piece in pieces.values()]
    assert H("fsl.public", b"", salt, *others, dense).hex() == case["digest"]
    size = example.bits // 8
    shares = []
    for server, found in enumerate(case["servers"]):
        sums = [[0] * (example.width + example.counts) for _ in range(example.rows)]
        proofs, counts = [], []
        for number, pieces in enumerate(part):
            nodes = example.leaves(number, trees[number], server)
            counts.append(add_up(example, number, salt, pieces, nodes, sums))
            proofs.append(proof_blocks(example, number, pieces, nodes) if example.verified else b"")
        sign = -1 if server else 1
        opened = found.get("rows opened", range(example.rows))
        shown = [value for row in opened for value in sums[row][: example.width]]
        sparse = b"".join(le(sign * value % 2**example.bits, size) for value in shown)
        share = sparse + dense_share(example, server)
        assert share.hex() == found["share"]
        if example.counts:
            ours = b"".join(le(sign * row[-1] % 2**32, 4) for row in sums)
            assert ours.hex() == found["share of the counts"]
        of_trees = [
            b"".join(le((each + server) % 2**example.bits, size) for each in tree) if example.counts else b""
            for tree in counts
        ]
        groups = b"".join(
            H("fsl.proof-group", *in_segments(forest, blocks), *in_segments(forest, tree))
            for forest, blocks, tree in zip(example.forests, proofs, of_trees, strict=True)
            if blocks or tree
        )
        assert H("fsl.proof", of(example.case["tree digest"]), groups).hex() == found["proof"]
        shares.append(share)
        rows = len(shown) * size
        pieces = [H("fsl.share-piece", piece) for piece in (share[:rows], share[rows:]) if piece]
        assert [piece.hex() for piece in pieces] == found["digests of its pieces"]
        named, counted = (
            H("fsl.share", b"".join(pieces)),
            msgpack.packb([[n, of(d)] for n, d in found["counted"].items()]),
        )
        both = [of(each) for each in found.get("digests of both", ())]
        commitment = (
            example.round_id,
            bytes([server]),
            H("fsl.roster", counted),
            *(both or [b"", b""]),
            named,
            of(found["nonce"]),
        )
        assert (
            H("fsl.share-commit", *commitment).hex() == found["share commitment, counting alice with the digest below"]
        )
    total = [
        (int.from_bytes(shares[0][i : i + size], "little") + int.from_bytes(shares[1][i : i + size], "little"))
        % 2**example.bits
        / 2 ** example.task["ring"]["fraction_bits"]
        for i in range(0, len(shares[0]), size)
    ]
    if example.counts:
        first, second = (of(found["share of the counts"]) for found in case["servers"])
        both = [
            int.from_bytes(a, "little") + int.from_bytes(b, "little")
            for a, b in zip(words(first), words(second), strict=True)
        ]
        assert [row for row, count in enumerate(both) if count % 2**32] == example.case["rows"]
        assert {count % 2**32 for count in both} == {0, 1}
    added = dict(zip(example.case["rows"], case["values"], strict=True))
    expected = [value for row in opened for value in added.get(row, [0.0] * example.width)]
    assert total == expected + ([1.0, 2.0, 3.0] if example.verified else [])
    assert case["servers"][0]["proof"] == case["servers"][1]["proof"]


def words(share: bytes) -> list[bytes]:
    return [share[i : i + 4] for i in range(0, len(share), 4)]


def add_up(
    example: Round, number: int, salt: bytes, pieces: dict[str, bytes], nodes: list[list[int]], sums: list[list[int]]
) -> list[int]:
    """Add one forest's shares, before the server's sign, to the rows; the last elements of every tree, summed."""
    forest, size = example.forests[number], example.bits // 8
    key = example.convert(salt)
    elements = forest.positions * example.width + example.counts
    counts = [0] * forest.trees
    for tree, leaves in enumerate(nodes):
        hint = pieces["hint"][tree * elements * size : (tree + 1) * elements * size]
        hint += bytes(-len(hint) % 16)
        for leaf, node in enumerate(leaves):
            found: list[int] = []
            for plane in range(len(hint) // 16):
                masked = int.from_bytes(hint[16 * plane : 16 * plane + 16], "little")
                found += reference.elements(reference.share(key, node, plane, masked, example.bits), example.bits)
            counts[tree] += found[elements - 1]
            for slot in range(forest.positions):
                row = example.row_at(number, tree, leaf, slot)
                for column in range(example.width + example.counts) if row is not None else ():
                    sums[row][column] += found[slot * example.width + column]
    return counts


def in_segments(forest: Forest, column: bytes) -> list[bytes]:
    """What a forest of one group of bins has for each tree, cut by segments; nothing where there is nothing."""
    size = len(column) // forest.segments
    return [column[size * segment : size * (segment + 1)] for segment in range(forest.segments)] if column else []


def proof_blocks(example: Round, number: int, pieces: dict[str, bytes], nodes: list[list[int]]) -> bytes:
    case = example.case
    parts = (example.round_id, case["client"].encode(), of(case["tree digest"]), *map(of, case["commitments"]))
    tag = (K("fsl.tag-key", *parts), K("fsl.tag-mask", *parts))
    secret = of(case["submission"]["proof key"])
    hashing = K("fsl.proof-key", secret)
    corrections = pieces["proof"]
    return b"".join(
        le(reference.proof(tag, hashing, leaves, int.from_bytes(corrections[16 * tree : 16 * tree + 16], "little")), 16)
        for tree, leaves in enumerate(nodes)
    )


def dense_share(example: Round, server: int) -> bytes:
    case = example.case["submission"]
    share, salt = of(case["dense share"]), of(case["part"])[:16]
    carrier = example.case["carriers"][example.case["client"]]
    if server == carrier or not share:
        return share
    key = H("fsl.dense-mask", le(example.config["number"], 8), salt, key=example.seeds[server])[:16]
    return b"".join(le(reference.aes(key, j), 16) for j in range(-(-len(share) // 16)))[: len(share)]


def test_the_digest_of_a_submission(example):
    case, statements = example.case["submission"], VECTORS["statements"]
    carrier = example.case["carriers"][example.case["client"]]
    share = of(case["dense share"])
    dense = H("fsl.dense-share", share, key=example.seeds[carrier]) if share else b""
    assert example.split_submission(of(case["part"]))[2] == dense
    commitments = map(of, example.case["commitments"])
    identity = of(statements["identity digest"])
    parts = (example.round_id, identity, of(case["digest"]), of(example.case["tree digest"]), *commitments)
    bind = H("fsl.binding", *parts)
    assert bind.hex() == case["bind"]
    assert H("fsl.submission", bind, b"").hex() == case["submission digest"]
