"""Write docs/bound-vectors.json: proofs of bounds, made by the library from fixed seeds (docs/wire, Proofs of bounds).

Run it with the environment's python (`make docs`). tests/fsl_async/bounds/test_vectors.py fails while the file is out
of date, and checks it against a reference on Python's integers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fsl_async import Ring, RingIntegers
from fsl_async.bounds import private_part, verifier_share
from fsl_async.bounds.masking import query_point
from fsl_async.bounds.terms import BoundTerms, Method
from fsl_async.randomness import SeededSource

FILE = Path(__file__).with_name("bound-vectors.json")

WEIGHTS = [700, -1, 0, 0, 12, -655, 3]


def fixed(name: str, size: int = 32) -> bytes:
    """Bytes that stand for what is drawn."""
    return SeededSource(17, name)(size)


def example(method: Method, ring_bits: int, carrier: int, largest_weight: int = 0) -> dict[str, Any]:
    """One update, what travels of its proof, and both servers' answers; bytes as hexadecimal text."""
    place = WEIGHTS.index(12) if largest_weight else 0
    terms = BoundTerms(method, ring_bits, 0, 1_000, len(WEIGHTS), 256, largest_weight, place)
    ring = Ring(ring_bits)
    weights = ring.encode(RingIntegers(np.array(WEIGHTS, dtype=object)), 1_000)
    second = ring.from_bytes(fixed("share of S1", len(WEIGHTS) * ring.element_bytes), len(WEIGHTS))
    shares = (ring.add(weights, second), second)
    seeds, bind = (fixed("msk of S0", 16), fixed("msk of S1", 16)), fixed("binding")
    query, submission = fixed("toss"), fixed("submission")
    private = private_part(terms, weights, seeds[1 - carrier], bind, SeededSource(17, method))
    answers = [
        verifier_share(terms, s, shares[s], private if s == carrier else None, seeds[s], bind, query, submission)
        for s in (0, 1)
    ]
    return {
        "method": method,
        "l": ring_bits,
        "b": terms.norm,
        "N": 0 if terms.exact else terms.projections,
        "L": largest_weight,
        "place": place,
        "weights": WEIGHTS,
        "shares": [share.tobytes().hex() for share in shares],
        "msk": [seed.hex() for seed in seeds],
        "bind": bind.hex(),
        "carrier": carrier,
        "query": query.hex(),
        "submission": submission.hex(),
        "t": str(query_point(terms, query, submission)),
        "private": private.hex(),
        "answers": [answer.hex() for answer in answers],
    }


def text() -> str:
    """The file's content."""
    examples = [
        example("exact", 64, 0),
        example("exact", 64, 1),
        example("exact", 128, 0),
        example("projected", 32, 1),
        example("projected", 64, 0),
        example("projected", 128, 1),
        example("exact", 64, 0, largest_weight=20),
        example("exact", 128, 1, largest_weight=20),
        example("projected", 32, 0, largest_weight=20),
        example("projected", 64, 1, largest_weight=20),
    ]
    return json.dumps(examples, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
