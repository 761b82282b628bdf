"""The updatable distributed point function: a shared function whose value changes while its point stays hidden.

A point function is β at one point α and 0 everywhere else. `gen` splits it into two keys, one for each server; a server
that holds one key learns neither α nor β. `next_hint` gives a new value β' in a later epoch as one short hint, the same
for both servers; `update` puts it into a key. These are the paper's four algorithms:

    Gen(1^λ, α, β)            gen(family, alphas, betas, randomness)          → (key, key)
    Eval(b, k_b, x, e)        evaluate(key, points)                           b and e are the key's own
    Next(k_0, k_1, β', e)     next_hint(key, key, betas, epoch)               → hint
    Update(k_b, hint, e)      update(key, hint)                               → key; e is the hint's own

Everything works on many trees side by side, in arrays whose first axis counts trees. Keys and hints become bytes with
`to_bytes`, and are read with `from_bytes`:

    import os
    from fsl_async import Ring, udpf

    ring = Ring(64, fraction_bits=24)
    family = udpf.Family(domain=1000, ring=ring)
    beta = ring.encode([[0.5]], largest=2**40)                          # one tree, one element
    first, second = udpf.gen(family, [417], beta, os.urandom)           # first.to_bytes() goes to server 0
    shares = [udpf.evaluate(key, [417, 418]) for key in (first, second)]
    ring.decode(ring.add(*shares))                                      # [[[0.5], [0.0]]]

    hint = udpf.next_hint(first, second, ring.encode([[2.0]], largest=2**40), epoch=1)
    first, second = udpf.update(first, hint), udpf.update(second, hint)  # then hint.to_bytes() goes to both servers

The protocols do not call this module, because they spread the same trees over messages; both stand on the same kernels.

Rules:

- An epoch only rises, and one epoch has one hint: two hints of one tree and epoch differ by ±(β - β'), which reveals
  it. `update` refuses a second one; the holder of both keys updates both with a hint before the hint leaves.
- A hint is uniformly random to a server that holds one key: it is masked with the conversion, in that epoch, of the
  other server's leaf at α, which this key does not determine.
- Randomness is an argument; every key pair has a public salt of its own, so that no precomputation serves two.
- Keys and hints name the version of their bytes, their family, their trees and their salt: bytes of another kind, cut
  or extended bytes, and a hint of other trees are refused.

The bytes, which no protocol sends, are little-endian: `UDPF` ‖ version u8 ‖ kind u8 (the server's number, or 2 for a
hint) ‖ ring bits u8 ‖ fraction bits u8 ‖ points u32 ‖ width u32 ‖ trees u32 ‖ epoch u64 ‖ salt (32). A hint goes on
with its elements, tree after tree; a key with its roots (16 each), the words of each level for all trees, and its
present hint's elements. K_expand and K_convert are K(`fsl.expand`, `PURPOSE`, salt) and K(`fsl.convert`, `PURPOSE`,
salt, epoch u64), as docs/wire/client.md defines K.

Source: paper §"Updatable Distributed Point Function"; Boyle, Gilboa, Ishai 2016 for the tree; design §5, §6.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.digests import Buffer, Domain, derive_key, same
from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import Blocks
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements, Ring

__all__ = ["Family", "Hint", "Key", "evaluate", "gen", "next_hint", "update"]

LARGEST_DOMAIN = 2**31
LARGEST_WIDTH = 2**31
LARGEST_EPOCH = 2**64 - 1
BLOCK_BYTES = 16
SALT_BYTES = 32
PURPOSE = b"updatable distributed point function"

MAGIC = b"UDPF"
VERSION = 2
_HINT = 2
"""The kind of a hint's bytes; a key's is its server's number."""
_HEADER = struct.Struct(f"<4sBBBBIIIQ{SALT_BYTES}s")

Points = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Family:
    """Which functions: from the points 0 to `domain` - 1 to `width` elements of a ring.

    Args:
        domain: how many points, at most 2^31.
        ring: of the values.
        width: ring elements of one value, at most 2^31.

    Raises:
        MisuseError: the domain or the width is out of range.
    """

    domain: int
    ring: Ring
    width: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.domain <= LARGEST_DOMAIN and 1 <= self.width <= LARGEST_WIDTH):
            raise MisuseError(
                f"1 to {LARGEST_DOMAIN} points and 1 to {LARGEST_WIDTH} elements expected, got {self.domain} points "
                f"and {self.width} elements"
            )

    @property
    def depth(self) -> int:
        """Levels of a tree below its root."""
        return (self.domain - 1).bit_length()

    @property
    def value_bytes(self) -> int:
        """Bytes of one value, hence of one tree's hint."""
        return self.width * self.ring.element_bytes


@dataclass(frozen=True, eq=False)
class Hint:
    """The new values of some trees in one epoch, masked; both servers get the same.

    Attributes:
        family: what kind of functions.
        salt: the trees' own.
        epoch: when the values begin to hold.
        elements: ring elements (trees, width); a ring of 128 bits has a last axis of 2.
    """

    family: Family
    salt: bytes = field(repr=False)
    epoch: int
    elements: Elements = field(repr=False)

    def to_bytes(self) -> bytes:
        """The hint in the form that `from_bytes` reads: 60 bytes, and `family.value_bytes` for each tree."""
        return _header(_HINT, self) + _bytes(self.elements).tobytes()

    @staticmethod
    def from_bytes(data: Buffer) -> Hint:
        """Read a hint.

        Raises:
            MisuseError: the bytes are not exactly one hint of this version.
        """
        header = _read_header(data, _HINT)
        body = _Body(data, header, header.trees * header.family.value_bytes)
        return Hint(header.family, header.salt, header.epoch, body.elements())


@dataclass(frozen=True, eq=False)
class Key:
    """One server's key to some functions.

    Attributes:
        family: what kind of functions.
        server: 0 or 1.
        salt: public; the fixed AES keys of these trees derive from it.
        roots: this server's secret; uint64 (trees, 2), the lowest bit of each its server's number.
        tree: the correction words, the same in both keys.
        hint: what the functions' values are at present, the same in both keys.
    """

    family: Family
    server: int
    salt: bytes = field(repr=False)
    roots: Blocks = field(repr=False)
    tree: kernels.Tree = field(repr=False)
    hint: Hint

    @property
    def epoch(self) -> int:
        """The epoch of the values that the key evaluates to."""
        return self.hint.epoch

    def to_bytes(self) -> bytes:
        """The key in the form that `from_bytes` reads; as secret as the key itself.

        Its size is 60 bytes, and for each tree 16, 16 for each level, and `family.value_bytes`.
        """
        arrays = (self.roots, self.tree.words, self.hint.elements)
        return _header(self.server, self.hint) + b"".join(_bytes(array).tobytes() for array in arrays)

    @staticmethod
    def from_bytes(data: Buffer) -> Key:
        """Read a key.

        Whether it belongs together with the other server's key cannot be seen in it; `next_hint` sees it.

        Raises:
            MisuseError: the bytes are not exactly one key of this version.
        """
        header = _read_header(data, 0, 1)
        family, trees, depth = header.family, header.trees, header.family.depth
        body = _Body(data, header, trees * (BLOCK_BYTES * (1 + depth) + family.value_bytes))
        roots = body.blocks(trees, 2)
        tree = kernels.Tree(body.blocks(depth, trees, 2))
        if (roots[:, 0] & np.uint64(1) != header.kind).any():
            raise MisuseError(f"not a key of server {header.kind}: a root's lowest bit is not its server's number")
        hint = Hint(family, header.salt, header.epoch, body.elements())
        return Key(family, header.kind, header.salt, roots, tree, hint)


def gen(
    family: Family, alphas: npt.ArrayLike, betas: Elements, randomness: Randomness, epoch: int = 0
) -> tuple[Key, Key]:
    """Gen: share one point function per tree.

    Args:
        family: what kind of functions.
        alphas: the points; integers (trees,).
        betas: the values at them in the first epoch; ring elements (trees, width).
        randomness: for the roots and the salt.
        epoch: the first epoch.

    Returns:
        The keys of server 0 and server 1.

    Raises:
        MisuseError: a point lies outside the domain, or the values have another type or shape.
    """
    points = _checked_points(family, alphas)
    salt = randomness(SALT_BYTES)
    roots = [_roots(server, len(points), randomness) for server in (0, 1)]
    tree, *leaves = kernels.generate(_expansion_keys(salt), roots[0], roots[1], points, family.depth)
    hint = _make_hint(family, salt, (leaves[0], leaves[1]), betas, epoch)
    return Key(family, 0, salt, roots[0], tree, hint), Key(family, 1, salt, roots[1], tree, hint)


def evaluate(key: Key, points: npt.ArrayLike) -> Elements:
    """Eval: this server's additive shares of every function at some points, in the key's epoch.

    Args:
        key: one server's key.
        points: the same for all trees; integers (points,), in any order.

    Returns:
        Ring elements (trees, points, width). Both servers' shares add up to β at α and to 0 elsewhere.

    Raises:
        MisuseError: a point lies outside the domain.
    """
    chosen, places = np.unique(_checked_points(key.family, points), return_inverse=True)
    ring, trees = key.family.ring, key.tree.count
    evaluation = _evaluation(key)
    leaves = np.zeros((1, len(chosen), trees, 2), dtype=np.uint64)
    shares = np.zeros((1, len(chosen), len(evaluation.hints), trees, 2), dtype=np.uint64)
    kernels.evaluate_leaves(evaluation, chosen, leaves, 0, 0, trees)
    kernels.add_leaves(evaluation, leaves, shares, 0, 0, trees)
    # From (points, planes, trees) to one run of planes for every tree and point.
    flat = np.ascontiguousarray(shares[0].transpose(1, 2, 0, 3)).reshape(len(evaluation.hints), -1, 2)
    elements = _elements(key.family, flat, trees, len(chosen))[:, places]
    return elements if key.server == 0 else ring.negate(elements)


def next_hint(first: Key, second: Key, betas: Elements, epoch: int) -> Hint:
    """Next: the hint that gives every function a new value in a later epoch.

    Args:
        first: server 0's key.
        second: server 1's key.
        betas: the new values; ring elements (trees, width).
        epoch: above the keys' own. Nothing here remembers a hint: `update` both keys before it leaves.

    Raises:
        MisuseError: the keys are not a pair, the epoch does not rise, or the values have another type or shape.
    """
    _check_pair(first, second)
    if epoch <= first.epoch:
        raise MisuseError(f"epoch {epoch} does not rise: the keys are at {first.epoch}; take a later one")
    return _make_hint(first.family, first.salt, _leaves_at_alpha(first, second), betas, epoch)


def update(key: Key, hint: Hint) -> Key:
    """Update: the key with the values of a later epoch; the present hint again changes nothing.

    Raises:
        MisuseError: the hint is of other trees, has another type or shape, its epoch does not rise, or it is a second,
            different one for its epoch.
    """
    if hint.family != key.family or not same(hint.salt, key.salt):
        raise MisuseError("this hint does not belong to this key: it was made for other trees")
    _check_elements(key.family, "hint", hint.elements, key.tree.count)
    if hint.epoch > key.epoch:
        _check_epoch(hint.epoch)
        return replace(key, hint=hint)
    if hint.epoch < key.epoch:
        raise MisuseError(f"epoch {hint.epoch} does not rise: the key is at {key.epoch}; hints come in order")
    if not same(_bytes(hint.elements).data, _bytes(key.hint.elements).data):
        raise MisuseError(
            f"a second, different hint for epoch {key.epoch}: one epoch has one hint; send the same again, or take a "
            "later epoch"
        )
    return key


# ---- hints and leaves


def _make_hint(family: Family, salt: bytes, leaves: tuple[Blocks, Blocks], betas: Elements, epoch: int) -> Hint:
    """(-1)^{t₁}·(β - C_e(s₀) + C_e(s₁)) of every tree."""
    _check_epoch(epoch)
    first, second = leaves
    _check_elements(family, "betas", betas, len(first))
    payload = kernels.payload_planes(_bytes(betas).reshape(len(first), family.value_bytes))
    planes = kernels.make_hints(_convert_keys(salt, epoch), first, second, payload, family.ring.bits)
    return Hint(family, salt, epoch, _elements(family, planes, len(first)))


def _leaves_at_alpha(first: Key, second: Key) -> tuple[Blocks, Blocks]:
    """Both servers' leaf blocks at α, by walking down side by side: only on the way to α do the two differ."""
    keys = _expansion_keys(first.salt)
    nodes = np.stack([first.roots, second.roots])
    for level in range(first.tree.depth):
        lefts = _left_children(keys, nodes, first.tree.words[level])
        rights = lefts ^ nodes
        goes_left, goes_right = ((child[0] != child[1]).any(axis=1) for child in (lefts, rights))
        if (goes_left == goes_right).any():
            raise MisuseError("these two keys do not belong together: their roots are of different trees")
        nodes = np.where(goes_right[:, None], rights, lefts)
    return nodes[0], nodes[1]


def _left_children(keys: kernels.Keys, nodes: Blocks, words: Blocks) -> Blocks:
    """The left children of both servers' nodes: uint64 (2, trees, 2)."""
    hashes: Blocks = kernels.hash_blocks(keys, nodes.reshape(-1, 2)).reshape(nodes.shape)
    return hashes ^ words * (nodes[..., :1] & np.uint64(1))


def _roots(server: int, trees: int, randomness: Randomness) -> Blocks:
    roots = np.frombuffer(randomness(BLOCK_BYTES * trees), dtype="<u8").reshape(trees, 2).copy()
    roots[:, 0] = (roots[:, 0] & ~np.uint64(1)) | np.uint64(server)
    return roots


def _evaluation(key: Key) -> kernels.Evaluation:
    family = key.family
    return kernels.Evaluation(
        keys=_expansion_keys(key.salt),
        roots=key.roots,
        tree=key.tree,
        convert=_convert_keys(key.salt, key.epoch),
        hints=kernels.payload_planes(_bytes(key.hint.elements).reshape(key.tree.count, family.value_bytes)),
        element_bits=family.ring.bits,
    )


def _expansion_keys(salt: bytes) -> kernels.Keys:
    return kernels.key_schedule(derive_key(Domain.EXPAND, PURPOSE, salt))


def _convert_keys(salt: bytes, epoch: int) -> kernels.Keys:
    return kernels.key_schedule(derive_key(Domain.CONVERT, PURPOSE, salt, epoch.to_bytes(8, "little")))


# ---- keys and hints as bytes


class _Header(NamedTuple):
    kind: int
    family: Family
    trees: int
    epoch: int
    salt: bytes


def _header(kind: int, hint: Hint) -> bytes:
    family = hint.family
    parameters = (family.ring.bits, family.ring.fraction_bits, family.domain, family.width, len(hint.elements))
    return _HEADER.pack(MAGIC, VERSION, kind, *parameters, hint.epoch, hint.salt)


def _read_header(data: Buffer, *kinds: int) -> _Header:
    what = "hint" if _HINT in kinds else "key"
    if len(data) < _HEADER.size:
        raise MisuseError(f"not a {what}: {len(data)} bytes are fewer than its header's {_HEADER.size}")
    magic, version, kind, bits, fraction_bits, domain, width, trees, epoch, salt = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise MisuseError(f"not a {what}: it begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise MisuseError(f"a {what} of version {version}; this release reads version {VERSION}")
    if kind not in kinds:
        raise MisuseError(f"not a {what}: its kind is {kind}, expected {' or '.join(map(str, kinds))}")
    if trees < 1:
        raise MisuseError(f"not a {what}: it has no tree")
    return _Header(kind, Family(domain, Ring(bits, fraction_bits), width), trees, epoch, salt)


class _Body:
    """What follows a header, taken piece by piece; nothing is allocated before its size is known to be right."""

    def __init__(self, data: Buffer, header: _Header, size: int) -> None:
        if len(data) != _HEADER.size + size:
            raise MisuseError(
                f"{_HEADER.size + size} bytes expected, as the header says ({header.trees} trees over "
                f"{header.family.domain} points, {header.family.value_bytes} bytes each), got {len(data)}: the bytes "
                "are cut, extended or altered"
            )
        self._header = header
        self._rest = np.frombuffer(data, dtype=np.uint8, offset=_HEADER.size)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def blocks(self, *shape: int) -> Blocks:
        return np.frombuffer(self.take(8 * math.prod(shape)).tobytes(), dtype="<u8").reshape(shape).copy()

    def elements(self) -> Elements:
        family = self._header.family
        return family.ring.from_bytes(self._rest.tobytes(), self._header.trees, family.width, writable=True)


# ---- elements in and out


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _elements(family: Family, planes: Blocks, *shape: int) -> Elements:
    """Planes of payloads as elements (*shape, width)."""
    payloads = kernels.payload_of_planes(planes, family.value_bytes)
    return family.ring.from_bytes(payloads.tobytes(), *shape, family.width, writable=True)


# ---- what callers hand in


def _checked_points(family: Family, points: npt.ArrayLike) -> Points:
    array: npt.NDArray[Any] = np.asarray(points)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise MisuseError(f"points: integers expected, at least one, got {array.dtype} of shape {array.shape}")
    outside = (array < 0) | (array >= family.domain)
    if outside.any():
        raise MisuseError(f"points: {array[outside][0]} lies outside the domain, 0 to {family.domain - 1}")
    return array.astype(np.uint32)


def _check_elements(family: Family, name: str, elements: Elements, trees: int) -> None:
    like = family.ring.zeros(0, family.width)
    shape = (trees, *like.shape[1:])
    if not isinstance(elements, np.ndarray) or elements.dtype != like.dtype or elements.shape != shape:
        got = f"{elements.dtype} {elements.shape}" if isinstance(elements, np.ndarray) else type(elements).__name__
        raise MisuseError(f"{name}: {like.dtype} {shape} expected for {trees} trees, got {got}; see `Ring.encode`")


def _check_epoch(epoch: int) -> None:
    if not 0 <= epoch <= LARGEST_EPOCH:
        raise MisuseError(f"an epoch is a number from 0 to {LARGEST_EPOCH}, not {epoch}")


def _check_pair(first: Key, second: Key) -> None:
    """Refuse keys of different trees, swapped, or updated with different hints."""
    if (first.server, second.server) != (0, 1):
        raise MisuseError(f"server 0's key, then server 1's expected, got those of {first.server} and {second.server}")
    if first.family != second.family or not same(first.salt, second.salt):
        raise MisuseError("these two keys do not belong together: they were made apart")
    if first.epoch != second.epoch:
        raise MisuseError(f"one key is at epoch {first.epoch}, the other at {second.epoch}; `update` both")
    if not np.array_equal(first.tree.words, second.tree.words):
        raise MisuseError("these two keys do not belong together: their correction words differ")
    if not np.array_equal(first.hint.elements, second.hint.elements):
        raise MisuseError(f"these two keys have different hints for epoch {first.epoch}, though one epoch has one hint")
