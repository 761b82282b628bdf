"""Ring elements as Python integers: unsigned words as servers hold them, signed weights as a client means them."""

from __future__ import annotations

import numpy as np

from fsl_async.ring import Elements


def unsigned(elements: Elements, ring_bits: int) -> list[int]:
    """Each element as a number from 0 to 2^l - 1; elements as `Ring` has them."""
    if ring_bits != 128:
        words: list[int] = elements.tolist()
        return words
    low, high = elements[..., 0].tolist(), elements[..., 1].tolist()
    return [(top << 64) | bottom for bottom, top in zip(low, high, strict=True)]


def signed(elements: Elements, ring_bits: int) -> list[int]:
    """Each element as a number from -2^(l-1) to 2^(l-1) - 1."""
    if ring_bits != 128:
        numbers: list[int] = elements.view(f"<i{ring_bits // 8}").tolist()
        return numbers
    half = 1 << (ring_bits - 1)
    return [word - 2 * half if word >= half else word for word in unsigned(elements, ring_bits)]


def content(elements: Elements) -> memoryview:
    """The elements' bytes."""
    return np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data
