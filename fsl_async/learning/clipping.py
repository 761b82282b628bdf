"""Updates made as short as a task's bound allows: what a client does before it submits.

Rule: what is returned leaves room for the rounding of every value to the task's ring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError

SPARE = 2.0**-10
"""How much shorter than the bound an update is made, relatively, where the ring's unit is not said."""

FLOATS = 2.0**-20
"""More than the scale of an update can err by itself."""


def clipped(update: Mapping[str, Any], bound: float, unit: float = 0.0) -> dict[str, Any]:
    """Scale an update down until its L2 norm, over all blocks together, is within a bound; a shorter one stays.

        await client.submit(clipped({"items": (rows, values), "head": head}, task.bound))

    Args:
        update: what `Client.submit` takes: by sparse block, a pair of rows and values; by dense block, values.
        bound: the largest norm, above 0, as in the task's `bound`.
        unit: the ring's smallest value, 2^-fraction_bits, for an update as long as can be: each of n values may be
            rounded by half of it, so √n / 2 of it are left. Without it a thousandth of the bound is left, which is
            more for n values where the bound is above 512·√n units.

    Returns:
        The same blocks and rows; values are float64 where they were scaled, and as they were otherwise.

    Raises:
        MisuseError: the bound is not above what rounding takes, or a value is not a finite number.
    """
    values = {name: np.asarray(part[1] if isinstance(part, tuple) else part) for name, part in update.items()}
    for name, array in values.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise MisuseError(f"block {name!r}: finite numbers expected")
    spare = unit / 2 * math.sqrt(sum(array.size for array in values.values())) if unit else bound * SPARE
    room = bound - spare
    if not 0 < room < float("inf"):
        raise MisuseError(f"a bound above what rounding takes expected, {spare:g}, not {bound!r}")
    length = _norm(list(values.values()))
    if length <= room:
        return dict(update)
    scale = room * (1 - FLOATS) / length
    scaled = {name: array.astype(np.float64) * scale for name, array in values.items()}
    return {name: (part[0], scaled[name]) if isinstance(part, tuple) else scaled[name] for name, part in update.items()}


def _norm(arrays: list[npt.NDArray[Any]]) -> float:
    """√Σ w², scaled by the largest so that no square overflows."""
    largest = max((float(np.abs(array.astype(np.float64)).max()) for array in arrays if array.size), default=0.0)
    if not largest:
        return 0.0
    squares = sum(float(np.square(array.astype(np.float64) / largest).sum()) for array in arrays)
    return largest * math.sqrt(squares)
