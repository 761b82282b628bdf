"""The discrete Gaussian's law."""

import math


def law(sigma: int, reach: int) -> dict[int, float]:
    """The probabilities of the whole numbers up to a reach on both sides."""
    weights = {x: math.exp(-x * x / (2 * sigma * sigma)) for x in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}
