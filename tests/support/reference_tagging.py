"""A slow, obvious oracle for tags of retrieved rows: GF(2^64) by shifting and adding.

A polynomial over GF(2) is a Python integer whose bit i is the coefficient of x^i. Nothing here is shared with the
package.
"""

from collections.abc import Iterable, Sequence

MODULUS = 1 << 64 | 1 << 4 | 1 << 3 | 1 << 1 | 1


def multiply(a: int, b: int) -> int:
    """The product of two polynomials, not reduced: b's bits choose shifted copies of a."""
    product = 0
    for i in range(64):
        if b >> i & 1:
            product ^= a << i
    return product


def reduce(product: int) -> int:
    """A polynomial of degree 127 at most, modulo x^64 + x^4 + x^3 + x + 1: one coefficient after the other goes."""
    for i in range(127, 63, -1):
        if product >> i & 1:
            product ^= MODULUS << (i - 64)
    return product


def words_of(row: bytes) -> list[int]:
    """A row as little-endian words of eight bytes, zeros at its end."""
    return [int.from_bytes(row[i : i + 8], "little") for i in range(0, len(row), 8)]


def answer(leaves: Sequence[int], rows: Sequence[bytes]) -> bytes:
    """One tree's answer: the XOR of the rows under the leaves whose lowest bit is 1."""
    answered = 0
    for leaf, row in zip(leaves, rows, strict=True):
        if leaf & 1:
            answered ^= int.from_bytes(row, "little")
    return answered.to_bytes(len(rows[0]), "little")


def tag(covered: Iterable[tuple[int, bytes]], words: int) -> list[int]:
    """One block's tag: over all trees, over (leaf block, row under it), the sum of high word of the block times row.

    A row's words stand 128 bits apart in one polynomial, so that one multiplication does them all: no product of two
    words reaches the next one's.
    """
    total = 0
    for leaf, row in covered:
        total ^= multiply(sum(word << 128 * i for i, word in enumerate(words_of(row))), leaf >> 64)
    return [reduce(total >> 128 * i & (1 << 128) - 1) for i in range(words)]


def matches(
    keys: Sequence[int], answers: tuple[Sequence[bytes], Sequence[bytes]], tags: tuple[list[int], list[int]]
) -> bool:
    """Whether the sum over all trees of Δ times the row both answers make is the sum of both tags."""
    total = [a ^ b for a, b in zip(*tags, strict=True)]
    for key, ours, theirs in zip(keys, *answers, strict=True):
        row = bytes(a ^ b for a, b in zip(ours, theirs, strict=True))
        for i, word in enumerate(words_of(row)):
            total[i] ^= reduce(multiply(key, word))
    return not any(total)
