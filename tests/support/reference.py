"""Slow, obvious oracles for AES and the distributed point functions.

A block is a Python integer of 128 bits whose lowest byte is the first byte of AES's state; its lowest bit is the
control bit. Nothing here is shared with the package. Sections are those of the design.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from tests.support.reference_tagging import multiply

ONES = 2**128 - 1


# AES-128 (FIPS 197)


@cache
def times(a: int, b: int) -> int:
    """The product of two bytes in GF(2^8), reduced by x^8 + x^4 + x^3 + x + 1."""
    product = 0
    for i in range(8):
        product ^= (b >> i & 1) * (a << i)
    for i in range(14, 7, -1):
        product ^= (product >> i & 1) * (0x11B << (i - 8))
    return product


def s_box_entry(byte: int) -> int:
    """The inverse of a byte (0 for 0), then the affine map of FIPS 197, 5.1.1."""
    inverse = next((x for x in range(256) if times(x, byte) == 1), 0)
    doubled = inverse << 8 | inverse
    return inverse ^ (doubled >> 7 & 255) ^ (doubled >> 6 & 255) ^ (doubled >> 5 & 255) ^ (doubled >> 4 & 255) ^ 0x63


S_BOX = [s_box_entry(byte) for byte in range(256)]


@cache
def expand_key(key: bytes) -> list[bytes]:
    """The eleven round keys."""
    words = [key[i : i + 4] for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        word = words[-1]
        if i % 4 == 0:
            word = bytes(S_BOX[byte] for byte in word[1:] + word[:1])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant = times(constant, 2)
        words.append(bytes(a ^ b for a, b in zip(words[i - 4], word, strict=True)))
    return [b"".join(words[i : i + 4]) for i in range(0, 44, 4)]


def mix_column(a: Sequence[int]) -> list[int]:
    return [times(a[i], 2) ^ times(a[(i + 1) % 4], 3) ^ a[(i + 2) % 4] ^ a[(i + 3) % 4] for i in range(4)]


def aes(key: bytes, block: int) -> int:
    """AES-128 of one block."""
    round_keys = expand_key(key)
    state = [a ^ b for a, b in zip(block.to_bytes(16, "little"), round_keys[0], strict=True)]
    for i in range(1, 11):
        state = [S_BOX[byte] for byte in state]
        state = [state[(place + 4 * (place % 4)) % 16] for place in range(16)]  # rows shift
        if i < 10:
            state = [byte for column in range(0, 16, 4) for byte in mix_column(state[column : column + 4])]
        state = [a ^ b for a, b in zip(state, round_keys[i], strict=True)]
    return int.from_bytes(bytes(state), "little")


# Primitives (section 5)


def pair(low: int, high: int) -> int:
    return high << 64 | low


def hash_block(key: bytes, block: int) -> int:
    """H(x) = π(σ(x)) ^ σ(x), σ(hi‖lo) = (hi ^ lo ‖ hi)."""
    low, high = block % 2**64, block >> 64
    orthomorphism = pair(high, high ^ low)
    return aes(key, orthomorphism) ^ orthomorphism


def root(msk: bytes, server: int, tree: int, nonce: int) -> int:
    return aes(msk, pair(tree, nonce)) & ~1 | server


# Trees (section 6 and docs/adr/0026): both servers' nodes on the path to alpha differ by the same Δ on every level


def child(key: bytes, word: int, node: int, side: int) -> int:
    """One child of a node; the right one is the left one ^ the node."""
    return hash_block(key, node) ^ (node & 1) * word ^ side * node


def generate(key: bytes, roots: tuple[int, int], alpha: int, depth: int) -> tuple[list[int], int, int]:
    """One tree: its correction words and both servers' leaves at alpha."""
    words, (n0, n1), delta = [], roots, roots[0] ^ roots[1]
    for level in range(depth):
        bit = alpha >> (depth - 1 - level) & 1
        words.append(hash_block(key, n0) ^ hash_block(key, n1) ^ (1 - bit) * delta)
        n0, n1 = (child(key, words[-1], node, bit) for node in (n0, n1))
    return words, n0, n1


def leaf(key: bytes, words: list[int], root_: int, x: int) -> int:
    """The block at leaf x."""
    node = root_
    for level, word in enumerate(words):
        node = child(key, word, node, x >> (len(words) - 1 - level) & 1)
    return node


# Hints and shares (section 6). A block is a list of ring elements, lowest first.


def elements(block: int, bits: int) -> list[int]:
    return [block >> i & (2**bits - 1) for i in range(0, 128, bits)]


def joined(values: Sequence[int], bits: int) -> int:
    return sum(value % 2**bits << i * bits for i, value in enumerate(values))


def converted(key: bytes, node: int, plane: int, bits: int) -> list[int]:
    """Plane i of C(n)."""
    return elements(hash_block(key, node ^ plane << 1), bits)


def hint(key: bytes, leaves: tuple[int, int], plane: int, payload: int, bits: int) -> int:
    """h = (-1)^{t1}·(β - C(s0) + C(s1)), one plane."""
    sign = (-1) ** (leaves[1] & 1)
    c0, c1 = (converted(key, node, plane, bits) for node in leaves)
    return joined([sign * (b - x + y) for b, x, y in zip(elements(payload, bits), c0, c1, strict=True)], bits)


def share(key: bytes, node: int, plane: int, hint_: int, bits: int) -> int:
    """C(n) + t·h, one plane, before the server's sign."""
    masked = elements((node & 1) * hint_, bits)
    return joined([c + h for c, h in zip(converted(key, node, plane, bits), masked, strict=True)], bits)


def select_hint(key: bytes, leaves: tuple[int, int], slot: int, positions: int) -> int:
    return 1 << slot ^ (hash_block(key, leaves[0]) ^ hash_block(key, leaves[1])) % 2**positions


def selected(key: bytes, node: int, hint_: int, positions: int) -> int:
    """The selection bits of the positions under a leaf."""
    if positions == 1:
        return node & 1
    return hash_block(key, node) % 2**positions ^ (node & 1) * hint_


# Verified trees (section 8); keys κ = (tag, mask) and q


def tag(keys: tuple[bytes, bytes], node: int, x: int) -> int:
    """T(n, x) = π(n ^ ρ_x) ^ n ^ ρ_x."""
    masked = node ^ aes(keys[1], x)
    return aes(keys[0], masked) ^ masked


def proof(tag_keys: tuple[bytes, bytes], hash_key: bytes, nodes: Sequence[int], correction: int) -> int:
    """The XOR over all leaves x of the product of both halves of v_x ^ q_x, v_x = T(n_x, x) ^ t_x·cs."""
    total = 0
    for x, node in enumerate(nodes):
        v = tag(tag_keys, node, x) ^ (node & 1) * correction
        high, low = divmod(v ^ aes(hash_key, x), 2**64)
        total ^= multiply(low, high)
    return total


# Blocks in and out of arrays


def to_array(blocks: Sequence[int]) -> np.ndarray:
    """uint64 (n, 2), low words first."""
    return np.array([[block % 2**64, block >> 64] for block in blocks], dtype=np.uint64).reshape(-1, 2)


def to_ints(array: np.ndarray) -> list[int]:
    return [pair(int(low), int(high)) for low, high in array.reshape(-1, 2)]
