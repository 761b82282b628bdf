"""A server's side: its answer to the query of one client's proof, and what both answers say together.

Rules: one proof is queried once, so the answer is stored before it is sent, and sent again as the same bytes; the
verdict is a function of both answers, the same on both servers.
"""

from __future__ import annotations

from fsl_async.bounds.field import unsigned
from fsl_async.bounds.masking import integer_masks, proof_mask, query_point
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import Query, holds
from fsl_async.bounds.terms import SQUARES, BoundTerms
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
    integers, proof = _received(terms, private) if private is not None else _expanded(terms, msk, bind)
    asked = Query(terms.wires, query_point(terms, query, submission))
    if terms.exact:
        link, first = b"", terms.weights
        of_update = [-word if server else word for word in asked.of_words(elements)]
    else:
        link, first = _link(terms, server, elements, integers, private is not None, bind), terms.projections
        of_update = asked.of_integers(integers[:first], 0)
    squares = integers[terms.linked :]
    parts = [of_update, asked.of_integers(squares[:SQUARES], first)]
    if terms.largest_weight:
        apart = [_of_weight(terms, server, elements, integers), *squares[SQUARES:]]
        parts.append(asked.of_integers(apart, terms.wires.first_apart))
    return link + terms.field.pack(asked.answer([sum(added) for added in zip(*parts, strict=True)], proof))


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
    return same(ours[:split], theirs[:split]) and holds(terms.wires, total, *terms.limits)


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


def _received(terms: BoundTerms, private: Buffer) -> tuple[list[int], list[int]]:
    """The carrier's share of what travelled privately: integers whose sums are the masked values, proof elements."""
    size = terms.mask_bytes
    places = range(0, terms.integer_bytes, size)
    integers = [int.from_bytes(private[at : at + size], "little") - terms.offset for at in places]
    return integers, terms.field.unpack(private[terms.integer_bytes :])


def _expanded(terms: BoundTerms, msk: bytes, bind: bytes) -> tuple[list[int], list[int]]:
    """The same on the other server."""
    return [-mask for mask in integer_masks(terms, msk, bind)], proof_mask(terms, msk, bind)


def _of_weight(terms: BoundTerms, server: int, elements: Elements, integers: list[int]) -> int:
    """This server's share of 2v - L: of the integer that is linked to the words, or of the words themselves."""
    if terms.exact:
        word = _word_of_weight(terms, elements)
        own = -word if server else word
    else:
        own = integers[terms.projections]
    return 2 * own - (0 if server else terms.largest_weight)


def _word_of_weight(terms: BoundTerms, elements: Elements) -> int:
    return unsigned(elements[terms.weight_place : terms.weight_place + 1], terms.ring_bits)[0]


def _link(terms: BoundTerms, server: int, elements: Elements, integers: list[int], carrier: bool, bind: bytes) -> bytes:
    """A digest, the same on both servers exactly if the linked integers are mod 2^l what they stand for.

    They stand for the update's projections, and for its weight where there is one.

    Each server can predict it for an honest client, so it tells nothing.
    """
    projected = project(bind, terms.projections, elements, terms.ring_bits)
    if terms.largest_weight:
        projected.append(_word_of_weight(terms, elements))
    differences = [(-own if server else own) - value for own, value in zip(projected, integers, strict=False)]
    whole = (1 << terms.ring_bits) - 1
    sign = 1 if carrier else -1
    content = b"".join(
        (sign * difference & whole).to_bytes(terms.ring_bits // 8, "little") for difference in differences
    )
    return digest(Domain.BOUND_LINK, bind, content)
