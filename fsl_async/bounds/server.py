"""A server's side: its answer to the query of one client's proof, and what both answers say together.

Rules: one proof is queried once, so the answer is stored before it is sent, and sent again as the same bytes; the
verdict is a function of both answers, the same on both servers.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.bounds.masking import integer_masks, proof_mask, query_point
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import Query, holds
from fsl_async.bounds.terms import BoundTerms
from fsl_async.digests import DIGEST_BYTES, Buffer, Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.ring import Elements


def check_private(terms: BoundTerms, private: Buffer, client: str) -> None:
    """Check what the carrier got, before it acknowledges it.

    Raises:
        PeerViolationError: it has another size than the task implies, or an element is not below the prime.
    """
    if len(private) != terms.private_bytes:
        message = f"proved its bound with {len(private)} bytes, the task implies {terms.private_bytes}"
        raise PeerViolationError(client, message)
    try:
        terms.field.unpack(private[terms.integer_bytes :])
    except ValueError as error:
        raise PeerViolationError(client, f"proved its bound with a malformed proof: {error}") from error


@dataclass(frozen=True, repr=False)
class _Share:
    """A server's share of what travelled privately: integers whose sums are the masked values, and proof elements."""

    integers: list[int]
    proof: list[int]


def verifier_share(
    terms: BoundTerms,
    server: int,
    elements: Elements,
    private: Buffer | None,
    msk: bytes,
    bind: bytes,
    query: bytes,
    submission: bytes,
) -> bytes:
    """This server's answer, `terms.verifier_bytes` bytes; it may be sent to the other server.

    Args:
        terms: of the proof.
        server: 0 or 1.
        elements: this server's share of the update, (n,) as `Ring` has them: x of server 0, z of server 1, where the
            update is x - z. So server 1 gives the totals of its trees with a positive sign, dense shares negated.
        private: the private part, checked, on the carrier; None on the other server.
        msk: this server's own master seed; the carrier's is not used.
        bind: `binding` of the submission.
        query: the servers' secret toss.
        submission: the digest that names the submission.
    """
    share = _received(terms, private) if private is not None else _expanded(terms, msk, bind)
    asked = Query(terms.wires, query_point(terms, query, submission))
    if terms.exact:
        words, integers = asked.of_words(elements), asked.of_integers(share.integers, terms.weights)
        added = [integer + (-word if server else word) for word, integer in zip(words, integers, strict=True)]
        return terms.field.pack(asked.answer(added, share.proof))
    link = _link(terms, server, elements, share, private is not None, bind)
    return link + terms.field.pack(asked.answer(asked.of_integers(share.integers, 0), share.proof))


def accepts(terms: BoundTerms, ours: Buffer, theirs: Buffer) -> bool:
    """Whether both servers' answers together say that the update is within the bound."""
    if len(ours) != terms.verifier_bytes or len(theirs) != terms.verifier_bytes:
        return False
    split = 0 if terms.exact else DIGEST_BYTES
    try:
        answers = [terms.field.unpack(answer[split:]) for answer in (ours, theirs)]
    except ValueError:
        return False
    total = [(left + right) % terms.field.prime for left, right in zip(*answers, strict=True)]
    return same(ours[:split], theirs[:split]) and holds(terms.wires, total, terms.limit)


def check_answer(terms: BoundTerms, answer: Buffer, peer: str) -> None:
    """Check the form of the other server's answer, which an honest server always keeps.

    Raises:
        PeerViolationError: it has another size than the task implies, or an element is not below the prime.
    """
    if len(answer) != terms.verifier_bytes:
        message = f"answered a bound's query with {len(answer)} bytes, the task implies {terms.verifier_bytes}"
        raise PeerViolationError(peer, message)
    try:
        terms.field.unpack(answer[0 if terms.exact else DIGEST_BYTES :])
    except ValueError as error:
        raise PeerViolationError(peer, f"answered a bound's query with a malformed answer: {error}") from error


def _received(terms: BoundTerms, private: Buffer) -> _Share:
    size = terms.mask_bytes
    integers = range(0, terms.integer_bytes, size)
    return _Share(
        [int.from_bytes(private[at : at + size], "little") - terms.offset for at in integers],
        terms.field.unpack(private[terms.integer_bytes :]),
    )


def _expanded(terms: BoundTerms, msk: bytes, bind: bytes) -> _Share:
    return _Share([-mask for mask in integer_masks(terms, msk, bind)], proof_mask(terms, msk, bind))


def _link(terms: BoundTerms, server: int, elements: Elements, share: _Share, carrier: bool, bind: bytes) -> bytes:
    """A digest that is the same on both servers exactly if the masked integers are the update's projections mod 2^l.

    Each server can predict it for an honest client, so it tells nothing.
    """
    projected = project(bind, terms.projections, elements, terms.ring_bits)
    differences = [(-own if server else own) - value for own, value in zip(projected, share.integers, strict=False)]
    whole = (1 << terms.ring_bits) - 1
    sign = 1 if carrier else -1
    content = b"".join(
        (sign * difference & whole).to_bytes(terms.ring_bits // 8, "little") for difference in differences
    )
    return digest(Domain.BOUND_LINK, bind, content)
