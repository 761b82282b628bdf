"""AES of many blocks in one call of OpenSSL, and masks that stand for bits.

OpenSSL uses the processor's AES instructions, and where there are none, code without tables.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.isa import Keys, PlainKeys

ONE = np.uint64(1)
BLOCK_BYTES = 16
TILE = 2**14
"""Blocks that are at work at a time: with what is made of them they stay in the second-level cache."""


def encrypt_row(keys: Keys, row: Blocks) -> None:
    """AES-128 of every block of a row, in place."""
    for start in range(0, len(row), TILE):
        row[start : start + TILE] = encrypted(keys, row[start : start + TILE])


def hash_row(keys: Keys, row: Blocks) -> None:
    """H of every block of a row, in place."""
    for start in range(0, len(row), TILE):
        row[start : start + TILE] = hashed(keys, row[start : start + TILE])


def encrypted(keys: Keys, blocks: Blocks) -> Blocks:
    """AES-128 of blocks of shape (…, 2)."""
    plain = np.ascontiguousarray(blocks).reshape(-1)
    cipher = np.empty(len(plain) + 2, dtype=np.uint64)  # OpenSSL asks for room for a block more than it writes
    # Every block is pseudo-random or a counter, and none comes twice for one key: ECB is the block cipher itself.
    encryptor = Cipher(algorithms.AES(_key_of(keys)), modes.ECB()).encryptor()  # noqa: S305
    encryptor.update_into(plain.view(np.uint8).data, cipher.view(np.uint8).data)
    return cipher[:-2].reshape(blocks.shape)


def _key_of(keys: Keys) -> bytes:
    """The key itself, which is the first round key of the other lane's schedules."""
    return keys.key if isinstance(keys, PlainKeys) else keys.schedule[0, :2].tobytes()


def hashed(keys: Keys, blocks: Blocks) -> Blocks:
    """H(x) = AES(σ(x)) ^ σ(x), σ(hi‖lo) = (hi ^ lo ‖ hi), of blocks of shape (…, 2)."""
    orthomorphism = np.empty(blocks.shape, dtype=np.uint64)
    orthomorphism[..., 0] = blocks[..., 1]
    np.bitwise_xor(blocks[..., 0], blocks[..., 1], out=orthomorphism[..., 1])
    image = encrypted(keys, orthomorphism)
    image ^= orthomorphism
    return image


def control_mask(blocks: Blocks) -> Blocks:
    """All ones where a block's control bit (its lowest) is 1, all zeros elsewhere: shape (…, 1)."""
    mask: Blocks = np.negative(blocks[..., :1] & ONE)
    return mask
