"""The tasks that are put under fire: each way of selecting, proving and aligning, small enough for quick rounds."""

import msgspec

from fsl_async import Dense, Ring, Sparse, Task

CLIENTS = 5

_ADAPTIVE = Task(
    name="soak",
    blocks=(Sparse("items", rows=2048, width=2, select=16), Dense("head", size=24)),
    ring=Ring(64, fraction_bits=8),
    min_clients=2,
    max_clients=CLIENTS + 1,
)
_replace = msgspec.structs.replace

SCENES = {
    "adaptive": _ADAPTIVE,
    "fixed": _replace(_ADAPTIVE, selection="fixed"),
    "semi-honest": _replace(_ADAPTIVE, security="semi-honest", updates="any", ring=Ring(32, fraction_bits=8)),
    "fixed, semi-honest": _replace(
        _ADAPTIVE,
        selection="fixed",
        security="semi-honest",
        ring=Ring(128, fraction_bits=8),
        blocks=(Sparse("items", rows=4096, select=24), Dense("head", size=24), Sparse("shops", rows=1024, select=8)),
    ),
    "union": _replace(_ADAPTIVE, alignment="union", security="semi-honest"),
    "fixed, union": _replace(_ADAPTIVE, alignment="union", selection="fixed"),
}


def names(count: int = CLIENTS) -> list[str]:
    """What the clients are called."""
    return [f"client-{number}" for number in range(count)]
