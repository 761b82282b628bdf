"""Fingerprints of digests, written so that two people can compare them over the telephone.

Rules: a fingerprint is the first 80 bits of a digest, in groups of four characters without those that sound or look
alike (Crockford's base 32: no I, L, O, U); both servers write the same one.
"""

from __future__ import annotations

__all__ = ["fingerprint"]

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BITS = 80
CHARACTER_BITS = 5
GROUP = 4


def fingerprint(digest: bytes) -> str:
    """The fingerprint of a digest of at least ten bytes; empty if there is no digest.

    Example:
        >>> fingerprint(bytes(range(32)))
        '000G 40R4 0M30 E209'
    """
    if not digest:
        return ""
    number = int.from_bytes(digest[: BITS // 8], "big")
    letters = [ALPHABET[number >> shift & 31] for shift in range(BITS - CHARACTER_BITS, -1, -CHARACTER_BITS)]
    return " ".join("".join(letters[start : start + GROUP]) for start in range(0, len(letters), GROUP))
