"""Which rows of a noised sum are kept: those that are more than noise.

Most rows of a sparse sum were touched by nobody, and hold noise alone. A row of noise has a squared norm below
2σ²·χ²_τ(1 - 10^-3) but for one in a thousand; rows up to that are set to 0. It is done with what is public already, so
it costs no privacy.

Both servers must keep the same rows, whatever their processors and libraries are: the quantile is computed in decimal
arithmetic, which is the same everywhere, rounded up to six digits behind the point, and compared in integers.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache
from math import isqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

EXCEEDED_BY: Final = Decimal("0.001")
"""The share of rows of noise alone that are kept."""

SCALE: Final = 10**6

_ARITHMETIC: Final = Context(prec=45)
_LEAST: Final = Decimal("1e-32")
_PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510582")
_STIRLING: Final = (
    (1, 12),
    (-1, 360),
    (1, 1260),
    (-1, 1680),
    (1, 1188),
    (-691, 360360),
    (1, 156),
    (-3617, 122400),
    (43867, 244188),
    (-174611, 125400),
    (77683, 5796),
    (-236364091, 1506960),
    (657931, 300),
    (-3392780147, 93960),
)
"""B₂ₙ / 2n(2n - 1), which divide the odd powers of the argument."""


def kept_rows(rows: npt.NDArray[Any], sigma: int) -> npt.NDArray[np.bool_]:
    """Which rows of an opened sum are more than the noise of both servers.

    Args:
        rows: (m, τ) signed ring integers.
        sigma: the standard deviation of one server's noise.
    """
    most = threshold(rows.shape[1], sigma)
    reach = isqrt(most)
    large = np.any((rows > reach) | (rows < -reach), axis=1).astype(np.bool_)
    if (reach + 1) ** 2 * rows.shape[1] < 2**63:
        small = np.where(large[:, None], 0, rows).astype(np.int64)
        squares = np.einsum("ij,ij->i", small, small)
        return np.asarray(large | (squares > most), dtype=np.bool_)
    kept: npt.NDArray[np.bool_] = np.array(large)
    for index in np.flatnonzero(~large):
        kept[index] = sum(int(value) ** 2 for value in rows[index]) > most
    return kept


def chooses_rows(least: int, sigma: int) -> bool:
    """Whether hardly a row that nobody contributes to has noise enough on its count to be opened.

    Args:
        least: the number of contributors from which on rows are opened.
        sigma: the standard deviation of one server's noise on a row's count.
    """
    return least**2 > threshold(1, sigma)


def threshold(width: int, sigma: int) -> int:
    """The largest squared norm, in ring integers, of a row that is set to 0: 2σ²·χ²_τ(1 - 10^-3).

    Args:
        width: τ, the weights of a row.
        sigma: the standard deviation of one server's noise.
    """
    return 2 * sigma * sigma * quantile(width) // SCALE


@lru_cache(maxsize=64)
def quantile(width: int) -> int:
    """The 99.9 % quantile of the chi-squared distribution with so many degrees of freedom, in millionths, rounded up.

    quantile(1)     # 10827567
    """
    with localcontext(_ARITHMETIC):
        half = Decimal(width) / 2
        log_gamma = _log_gamma(half + 1)
        low, high = 0, 1
        while _exceeds(half, high, log_gamma):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _exceeds(half, middle, log_gamma) else (low, middle)
        return high


def _exceeds(half: Decimal, millionths: int, log_gamma: Decimal) -> bool:
    """Whether more than the share that may is above a number: 1 - P(τ/2, x/2) by the series of P."""
    point = Decimal(millionths) / SCALE / 2
    term = (half * point.ln() - point - log_gamma).exp()
    below, order = term, half
    while term > _LEAST or order < point:
        order += 1
        term = term * point / order
        below += term
    return 1 - below > EXCEEDED_BY


def _log_gamma(argument: Decimal) -> Decimal:
    """The logarithm of Γ, by Stirling's series above 40, to which smaller arguments are raised."""
    product = Decimal(1)
    while argument < 40:
        product *= argument
        argument += 1
    series = sum(
        Decimal(above) / (below * argument**power)
        for power, (above, below) in zip(range(1, 2 * len(_STIRLING), 2), _STIRLING, strict=True)
    )
    return (argument - Decimal("0.5")) * argument.ln() - argument + (2 * _PI).ln() / 2 + series - product.ln()
