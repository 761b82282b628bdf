"""The updatable distributed point function by itself: keys for two servers, new values, a point that stays hidden.

Keys and hints cross as bytes. In an epoch after the first, a server needs nothing but one hint of a few bytes for each
function; neither a key nor a hint tells which point has a value, or what the value is.
"""

import os

import numpy as np

from fsl_async import MisuseError, Ring, udpf

POINTS, LARGEST = 1_000, 2**40
RING = Ring(64, fraction_bits=24)
FAMILY = udpf.Family(POINTS, RING, width=2)  # from the points 0 to 999 to pairs of numbers


def values_of(shares: list[np.ndarray]) -> np.ndarray:
    """What both servers' shares add up to: (functions, points, 2)."""
    return RING.decode(RING.add(*shares))


def main() -> None:
    """Two functions, two epochs."""
    hidden = np.array([417, 58])  # the point of each function; everywhere else it is 0
    values = np.array([[0.5, -1.25], [3.0, 0.0]])
    keys = udpf.gen(FAMILY, hidden, RING.encode(values, LARGEST), os.urandom)

    sent = [key.to_bytes() for key in keys]  # one to each server, and never both to one
    servers = [udpf.Key.from_bytes(content) for content in sent]
    everywhere = np.arange(POINTS)
    table = values_of([udpf.evaluate(key, everywhere) for key in servers])
    assert np.array_equal(table[[0, 1], hidden], values)
    assert np.count_nonzero(table.any(axis=2)) == 2

    hint = udpf.next_hint(*keys, RING.encode(-values, LARGEST), epoch=1)
    keys = tuple(udpf.update(key, hint) for key in keys)  # before the hint leaves: one epoch has one hint
    servers = [udpf.update(key, udpf.Hint.from_bytes(hint.to_bytes())) for key in servers]
    assert np.array_equal(values_of([udpf.evaluate(key, [417, 58, 0]) for key in servers])[0, 0], -values[0])
    print(f"a key has {len(sent[0]):,} bytes, the hint of a later epoch {len(hint.to_bytes())}")

    try:
        udpf.Key.from_bytes(sent[0][:-1])
    except MisuseError as error:
        print(f"refused: {error}")


if __name__ == "__main__":
    main()
