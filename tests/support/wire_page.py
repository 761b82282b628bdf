"""What decoders written from docs/wire share: the examples, digests, records, and a round's keys and forests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgpack
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests import ROOT
from tests.support import reference
from tests.support.reference_hashing import permute

CLIENT, SERVERS = (
    (ROOT / "docs" / "wire" / f"{name}.md").read_text(encoding="utf-8") for name in ("client", "servers")
)
VECTORS = json.loads((ROOT / "docs" / "wire-vectors.json").read_text(encoding="utf-8"))


def of(text: str) -> bytes:
    return bytes.fromhex(text)


def le(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def H(tag: str, *parts: bytes, key: bytes = b"") -> bytes:  # noqa: N802 - as on the page
    content = b"".join(le(len(part), 8) + (part if len(part) <= 1024 else blake3(part).digest()) for part in parts)
    return hashlib.blake2b(content, digest_size=32, person=tag.encode().ljust(16, b"\0"), key=key).digest()


def K(tag: str, *parts: bytes) -> bytes:  # noqa: N802
    return H(tag, *parts)[:16]


# ---- the channel

DATA, CLOSE, PING = range(3)
FULL = 65_535 - 16 - 1
"""The body of a full record."""


def pad(content: bytes, size: int) -> bytes:
    return (len(content).to_bytes(2, "big") + content).ljust(size, b"\0")


def unpad(padded: bytes, size: int) -> bytes:
    length = int.from_bytes(padded[:2], "big")
    assert len(padded) == size
    assert not any(padded[2 + length :])
    return padded[2 : 2 + length]


class Direction:
    """One direction of a channel."""

    def __init__(self, key: bytes) -> None:
        self.key, self.nonce = key, 0

    def _step(self) -> tuple[AESGCM, bytes]:
        cipher, nonce = AESGCM(self.key), self.nonce.to_bytes(12, "big")
        self.nonce += 1
        if self.nonce % 1_024 == 0:
            self.key = cipher.encrypt(bytes(4) + b"\xff" * 8, bytes(32), b"")[:32]
        return cipher, nonce

    def seal(self, kind: int, body: bytes = b"") -> bytes:
        """One record."""
        cipher, nonce = self._step()
        sealed = cipher.encrypt(nonce, bytes([kind]) + body, b"")
        return len(sealed).to_bytes(2, "big") + sealed

    def message(self, content: bytes) -> bytes:
        """The records of one message."""
        stream = len(content).to_bytes(8, "big") + content
        return b"".join(self.seal(DATA, stream[start : start + FULL]) for start in range(0, len(stream), FULL))

    def open(self, stream: bytes) -> Iterator[tuple[int, bytes]]:
        """The types and bodies of whole records."""
        while stream:
            length = int.from_bytes(stream[:2], "big")
            assert 17 <= length <= 65_535
            sealed, stream = stream[2 : 2 + length], stream[2 + length :]
            cipher, nonce = self._step()
            plain = cipher.decrypt(nonce, sealed, b"")
            yield plain[0], plain[1:]


def read_message(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Head and bulk."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(content)
    return unpacker.unpack(), content[unpacker.tell() :]


# ---- rows in bins


def limits(k: int, m: int) -> tuple[int, int]:
    """The fewest and the most bins of a segment."""
    each = 50 if k <= 3 else 320 if k <= 15 else 150 if k <= 63 else 70 if k <= 255 else 44 if k <= 1023 else 43
    least = (k * each + 99) // 100
    return min(m, least), min(m, 16 * least)


class Forest(NamedTuple):
    """Some trees of one block: its bins, or one stash slot.

    Attributes:
        number: of the forest among those of its block; 0 is the bins.
        element: bytes of a ring element.
    """

    number: int
    segments: int
    bins: int
    leaves: int
    positions: int
    width: int
    counts: int
    element: int

    @property
    def depth(self) -> int:
        return (self.leaves - 1).bit_length()

    @property
    def trees(self) -> int:
        return self.segments * self.bins

    @property
    def payload(self) -> int:
        """Elements under one leaf."""
        return self.positions * self.width + self.counts

    def sizes(self, *, proved: bool) -> dict[str, int]:
        """The bytes of each of its pieces."""
        return {
            "tree": 16 * self.depth * self.trees,
            "select": -(-self.trees * self.positions // 8) if self.positions > 1 else 0,
            "hint": self.trees * self.payload * self.element,
            "proof": 16 * self.trees if proved else 0,
        }


class Block:
    """A sparse block of a round: its keys and forests.

    Attributes:
        index: its number among the sparse blocks.
        rows: those of the round: the union's in a round that is aligned on one.
    """

    def __init__(self, round_: Round, index: int, told: Mapping[str, Any], rows: int, select: int, bins: int) -> None:
        self.index, self.name, self.rows, self.select = index, told["name"], rows, select
        self.width = 1 if round_.protocol == "psu" else told["width"]
        self.plain = bins == 0
        self.placement = K("fsl.placement", round_.task_digest, round_.hash_seed, le(index, 4))
        self._round = round_
        counts, element = round_.counts, round_.bits // 8
        p = self._positions(bins)
        slot = (1, 1, rows + counts, 1, self.width, counts, element)
        self.forests = [] if self.plain else [Forest(0, 3, bins, -(-rows // (bins * p)) + counts, p, *slot[4:])]
        self.forests += [Forest(1 + number, *slot) for number in range(0 if self.plain else told["stash"])]

    def _positions(self, bins: int) -> int:
        task, bits = self._round.task, self.width * self._round.bits
        if self.plain or task["security"] == "verified" or task["selection"] == "fixed":
            return 1
        bits = 1 if self._round.protocol == "psr" else bits
        if 2 * bits > 128:
            return 1
        costs = {p: (-(-self.rows // (bins * p)) - 1).bit_length() * 128 + p * bits for p in (4, 2, 1)}
        return min((p for p in costs if p == 1 or p * bins <= self.rows), key=costs.__getitem__)

    @property
    def authenticated(self) -> bool:
        return all(forest.positions == 1 for forest in self.forests)

    def convert(self, salt: bytes) -> bytes:
        """The key of C(n)."""
        parts = (self._round.task_digest, self._round.hash_seed, le(self.index, 4), le(self._round.number, 8), salt)
        return K("fsl.convert", *parts)

    def place(self, row: int, segment: int) -> tuple[int, int, int]:
        """Bin, leaf and slot of a row in a segment."""
        y, bins = permute(self.placement, segment, self.rows, row), self.forests[0].bins
        slot, y = y % self.forests[0].positions, y // self.forests[0].positions
        return y % bins, y // bins, slot

    @cached_property
    def _rows_at(self) -> dict[tuple[int, int, int, int], int]:
        return {(segment, *self.place(row, segment)): row for segment in range(3) for row in range(self.rows)}

    def row_at(self, forest: Forest, tree: int, leaf: int, slot: int) -> int | None:
        """The row at a position of a forest; None where there is none."""
        if forest.number:
            return leaf if leaf < self.rows else None
        return self._rows_at.get((*divmod(tree, forest.bins), leaf, slot))

    def root(self, seed: bytes, server: int, forest: Forest, tree: int) -> int:
        return reference.aes(seed, self.index * 2**96 + forest.number * 2**64 + tree) & ~1 | server


class Round:
    """A round, by its configuration's canonical bytes."""

    def __init__(self, config: bytes) -> None:
        self.config = msgpack.unpackb(config)
        self.task = self.config["task"]
        self.protocol, self.number = self.config["protocol"], self.config["number"]
        self.hash_seed, self.round_id = self.config["hash_seed"], H("fsl.round", config)
        self.task_digest = H("fsl.task", msgpack.packb(self.task))
        self.bits = 64 if self.protocol == "psu" else self.task["ring"]["bits"]
        self.fraction_bits = 0 if self.protocol == "psu" else self.task["ring"]["fraction_bits"]
        self.proved = self.task["security"] == "verified" and self.protocol != "psr"
        self.counts = 1 if self.task["min_contributors"] else 0
        self.expand = K("fsl.expand", self.task_digest, self.hash_seed)
        self.select = K("fsl.select", self.task_digest, self.hash_seed)
        self.blocks = [*self._blocks()]
        self.dense = [block for block in self.task["blocks"] if block["type"] == "dense" and self.protocol == "ssa"]
        self.has_dense = bool(self.dense) or any(block.plain for block in self.blocks)

    def _blocks(self) -> Iterator[Block]:
        sparse = [block for block in self.task["blocks"] if block["type"] == "sparse"]
        unions = self.config["union"] or [None] * len(sparse)
        for index, (told, union, bins) in enumerate(zip(sparse, unions, self.config["bins"], strict=True)):
            rows, select = told["rows"], told["select"]
            if union and (self.task["selection"] == "adaptive" or bins == 0):
                rows = max(1, union["size"])
            yield Block(self, index, told, rows, min(rows, select), bins)

    def carrier(self, name: str) -> int:
        return H("fsl.carrier", self.hash_seed, le(self.number, 8), name.encode())[0] & 1

    def commitments(self, seeds: list[bytes], name: str) -> list[bytes]:
        return [H("fsl.seed-commit", seed, self.round_id, name.encode(), bytes([b])) for b, seed in enumerate(seeds)]

    def tag_keys(self, name: str, trees: bytes, commitments: list[bytes]) -> tuple[bytes, bytes]:
        """κ, where the trees were planted in this round."""
        parts = (self.round_id, name.encode(), trees, *commitments)
        return K("fsl.tag-key", *parts), K("fsl.tag-mask", *parts)

    def dense_mask(self, seed: bytes, salt: bytes, size: int) -> bytes:
        key = H("fsl.dense-mask", le(self.number, 8), salt, key=seed)[:16]
        return b"".join(le(reference.aes(key, j), 16) for j in range(-(-size // 16)))[:size]

    def submission_digest(self, identity: bytes, public: bytes, trees: bytes, commitments: list[bytes]) -> bytes:
        """That of a submission without a bound."""
        return H("fsl.submission", self.bind(identity, public, trees, commitments), b"")

    def bind(self, identity: bytes, public: bytes, trees: bytes, commitments: list[bytes]) -> bytes:
        return H("fsl.binding", self.round_id, identity, public, trees, *commitments)

    def split(self, part: bytes, *kinds: str) -> list[list[dict[str, bytes]]]:
        """The pieces of a public part: for each block, those of each forest by their kind."""
        found: list[list[dict[str, bytes]]] = []
        for block in self.blocks:
            found.append([])
            for forest in block.forests:
                sizes, pieces = forest.sizes(proved=self.proved), {}
                for kind in kinds:
                    pieces[kind], part = part[: sizes[kind]], part[sizes[kind] :]
                    assert len(pieces[kind]) == sizes[kind]
                found[-1].append(pieces)
        assert not part
        return found


def digest_of_trees(pieces: list[dict[str, bytes]]) -> bytes:
    """By the `tree` pieces of all forests."""
    trees = [piece["tree"] for piece in pieces]
    return H("fsl.tree", *trees) if any(trees) else b""


# ---- what a round came to


def unpack_union(packed: bytes) -> list[int]:
    if packed[0] == 0:
        bits = int.from_bytes(packed[1:], "little")
        return [row for row in range(bits.bit_length()) if bits >> row & 1]
    rows, gap, digits = [], 0, 0
    for byte in packed[1:]:
        gap, digits = gap | (byte & 127) << 7 * digits, digits + 1
        if byte < 128:
            rows.append((rows[-1] if rows else -1) + gap + 1)
            gap = digits = 0
    return rows


def check_seat(name: str, seat: Mapping[str, Any], count: int, root: bytes) -> None:
    """That a client's seat leads to the root of so many names, in exactly the length that they imply."""
    node, path = H("fsl.roster-leaf", seat["salt"], name.encode(), seat["digest"]), seat["path"]
    place, level = seat["place"], count
    assert 0 <= place < count
    while level > 1:
        if place ^ 1 < level:
            other, path = path[:32], path[32:]
            node = H("fsl.roster-node", *((other, node) if place & 1 else (node, other)))
        place, level = place // 2, (level + 1) // 2
    assert not path
    assert H("fsl.roster-root", le(count, 8), node) == root
