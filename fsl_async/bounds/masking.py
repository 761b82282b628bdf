"""What hides what travels of a proof, and where it is queried.

Rules: every mask depends on the submission's binding (`derivation.binding`), and that on its salt, which is fresh for
every proof that is made; so no mask hides two values. The query's point depends on the servers' secret toss, so a
client cannot know it.
"""

from __future__ import annotations

from itertools import count

from fsl_async.bounds.field import expand_bytes
from fsl_async.bounds.terms import BoundTerms
from fsl_async.digests import KEY_BYTES, Buffer, Domain, digest


def private_digest(private: Buffer, msk: bytes) -> bytes:
    """A commitment to the private part, keyed with the carrier's master seed, so that it tells nobody else anything."""
    return digest(Domain.BOUND_PART, private, key=msk)


def integer_masks(terms: BoundTerms, msk: bytes, bind: bytes) -> list[int]:
    """Z_k of every masked integer: the part of the server that is not the carrier, negated."""
    size = terms.mask_bytes
    stream = expand_bytes(_key(Domain.BOUND_MASK, msk, bind), terms.integer_bytes)
    top = 2 ** (8 * size - 1) - 1
    return [int.from_bytes(stream[at : at + size], "little") & top for at in range(0, len(stream), size)]


def proof_mask(terms: BoundTerms, msk: bytes, bind: bytes) -> list[int]:
    """The proof's share of the server that is not the carrier."""
    return terms.field.expand(_key(Domain.BOUND_PROOF, msk, bind), terms.wires.proof_elements)


def fresh_seeds(terms: BoundTerms, content: Buffer, msk: bytes, bind: bytes, random: bytes) -> list[int]:
    """The wires' seeds, drawn: should the randomness ever repeat, they still differ for another update or binding."""
    key = digest(Domain.BOUND_SEEDS, random, bind, content, key=msk)[:KEY_BYTES]
    return terms.field.expand(key, terms.wires.count)


def query_point(terms: BoundTerms, query: bytes, submission: bytes) -> int:
    """The point t at which one submission's proof is queried: the first that is above 2G.

    Args:
        terms: of the proof.
        query: the servers' secret toss.
        submission: the digest that names the submission.
    """
    for counter in count():
        halves = [digest(Domain.BOUND_QUERY, query, submission, bytes([counter, half])) for half in (0, 1)]
        point = int.from_bytes(b"".join(halves), "little") % terms.field.prime
        if point > 2 * terms.wires.calls:
            return point
    raise AssertionError("counting has no end")


def _key(domain: Domain, msk: bytes, bind: bytes) -> bytes:
    return digest(domain, bind, key=msk)[:KEY_BYTES]
