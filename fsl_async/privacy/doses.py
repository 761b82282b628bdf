"""How much noise each server adds: the standard deviations, as whole numbers of ring units.

Rules: a dose is a function of the task alone, never of data; it is computed in integers, so that it is the same on both
servers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

COUNTS_SHARE: Final = 10
"""Where contributors are counted, their counts take one part in so many of a round's Rényi divergence."""


@dataclass(frozen=True)
class Doses:
    """The standard deviations of one server's noise, in ring integers.

    Attributes:
        values: of the noise on every weight.
        counts: of the noise on every row's count of contributors; 0 where they are not counted.
    """

    values: int
    counts: int = 0


def doses(noise: float, bound: int, counted_rows: int = 0) -> Doses:
    """The doses that keep a round within a Rényi divergence of α/(2z²).

        doses(12.7, 2**17)                      # Doses(values=1664615, counts=0)
        doses(12.7, 2**17, counted_rows=50)     # the counts take a tenth, the values nine tenths

    Args:
        noise: z.
        bound: b, the L2 norm that no client's update exceeds, as a ring integer.
        counted_rows: how many rows a client can be counted in, if contributors are counted: its counts have a norm of
            at most the square root of it.
    """
    exact = _ratio(noise)
    if not counted_rows:
        return Doses(_ceiling_of_root((exact[0] * bound) ** 2, exact[1] ** 2))
    values = _ceiling_of_root(COUNTS_SHARE * (exact[0] * bound) ** 2, (COUNTS_SHARE - 1) * exact[1] ** 2)
    return Doses(values, _ceiling_of_root(COUNTS_SHARE * exact[0] ** 2 * counted_rows, exact[1] ** 2))


def _ratio(number: float) -> tuple[int, int]:
    return float(number).as_integer_ratio()


def _ceiling_of_root(numerator: int, denominator: int) -> int:
    """The smallest whole number from 1 on whose square is at least numerator/denominator: the same everywhere."""
    return max(1, 1 + math.isqrt(-(-numerator // denominator) - 1)) if numerator else 1
