"""The keyed permutations P_s of [0, m) that lay a block's rows out as segments.

P_s is an alternating Feistel network on n = ⌈log₂ m⌉ bits, a high half of ⌊n/2⌋ and a low half of ⌈n/2⌉ bits that
take turns, as in FF1 (NIST SP 800-38G), with eight rounds. A result outside [0, m) goes through the network again
until it is inside (cycle walking), fewer than twice on average because m > 2^(n-1). The halves are so short that
each round function is a *table* of pseudo-random values, drawn once per key and segment; an evaluation is eight
look-ups in a few kilobytes.

The key is public: every party computes the same permutation. It must not be known when rows are chosen, because they
could be chosen to meet in one bin; afterwards it need not be secret. Look-ups depend on the rows, so somebody who
watches the caches of a client's own machine sees as much as from the client's accesses to its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.lane import passes

Positions: TypeAlias = npt.NDArray[np.uint32]
Rounds: TypeAlias = npt.NDArray[np.uint16]
Walk: TypeAlias = Callable[[Rounds, int, int, Positions, Positions], None]

ROUNDS = 8
MOST_ROWS = 2**32
TABLE_DOMAIN = b"fsl-async permutation rounds v1"


class Permutation:
    """P_s for one key, one segment and one number of rows.

    Args:
        key: the block's hash seed, public, of any length.
        segment: s, 0 to 255.
        rows: m, from 1 to 2^32.

    Raises:
        MisuseError: `segment` or `rows` is out of range.
    """

    def __init__(self, key: bytes, segment: int, rows: int) -> None:
        if not 1 <= rows <= MOST_ROWS:
            raise MisuseError(f"permutation: expected 1 to {MOST_ROWS} rows, got {rows}")
        if not 0 <= segment <= 255:
            raise MisuseError(f"permutation: expected a segment from 0 to 255, got {segment}")
        self.rows = rows
        self.segment = segment
        bits = (rows - 1).bit_length()
        self._low_bits = bits - bits // 2
        self._rounds = _round_tables(key, segment, bits)

    def __repr__(self) -> str:
        return f"Permutation(segment={self.segment}, rows={self.rows})"

    def forward(self, rows: Positions) -> Positions:
        """P_s of each row: uint32[n], every one below m, to uint32[n].

        Raises:
            MisuseError: the array is not one-dimensional uint32, or a value is m or more.
        """
        return self._apply(passes().forward, rows)

    def inverse(self, positions: Positions) -> Positions:
        """The rows that stand at the given positions: uint32[n], every one below m, to uint32[n].

        Raises:
            MisuseError: the array is not one-dimensional uint32, or a value is m or more.
        """
        return self._apply(passes().inverse, positions)

    def table(self) -> Positions:
        """P_s of all rows in order, uint32[m]."""
        return self.forward(_numbers(self.rows))

    def inverse_table(self) -> Positions:
        """The row at each position in order, uint32[m]."""
        return self.inverse(_numbers(self.rows))

    def _apply(self, kernel: Walk, values: Positions) -> Positions:
        if values.dtype != np.uint32 or values.ndim != 1:
            raise MisuseError(f"expected uint32[n], got {values.dtype} of shape {values.shape}")
        if len(values) and int(values.max()) >= self.rows:
            raise MisuseError(f"expected values below {self.rows}, got {int(values.max())}")
        moved = np.empty_like(values, order="C")
        kernel(self._rounds, self._low_bits, self.rows, values, moved)
        return moved


def _numbers(rows: int) -> Positions:
    """0 to rows - 1; `numpy.arange` takes no end that its dtype does not hold."""
    return np.concatenate([np.arange(rows - 1, dtype=np.uint32), np.array([rows - 1], dtype=np.uint32)])


def _round_tables(key: bytes, segment: int, bits: int) -> Rounds:
    """The eight round functions, uint16[8, 2^⌈bits/2⌉]; even ones give ⌊bits/2⌋ bits, odd ones ⌈bits/2⌉.

    Odd rounds are read at the ⌊bits/2⌋ bits of the high half, so for odd `bits` at the first half of their row only.
    """
    high_bits, low_bits = bits // 2, bits - bits // 2
    stream = hashlib.shake_256(TABLE_DOMAIN + bytes([segment]) + key).digest(2 * ROUNDS << low_bits)
    tables = np.frombuffer(stream, dtype="<u2").astype(np.uint16).reshape(ROUNDS, 1 << low_bits)
    tables[0::2] &= np.uint16((1 << high_bits) - 1)
    tables[1::2] &= np.uint16((1 << low_bits) - 1)
    return tables
