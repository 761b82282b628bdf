"""The terms of a task's bound, and which bounds it may ask for.

Allowed are those whose proofs hold, and whose honest clients are counted but for 2^-40. A refusal says what is wrong,
and which fraction bits, ring or method would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from math import floor, log2

from fsl_async.blocks import Dense, Plain, Sparse
from fsl_async.bounds.terms import BoundTerms, Method
from fsl_async.errors import MisuseError
from fsl_async.geometry import SEGMENTS, bin_limits
from fsl_async.options.fields import TaskFields
from fsl_async.wire.public_part import forests_of

ERROR_BITS = 40
"""An honest client is not counted with probability at most 2^-40."""

LONGEST_LIST = 2**29
"""Bytes of a server's answers about all clients of a round: they travel in one message, and are stored as one event."""

ROOM = 1024
"""The lemma of projections needs a guaranteed norm of at most 2^l / 1024."""


@dataclass(frozen=True)
class Wanted:
    """What a task says of its bound, as plain numbers.

    Args:
        method: "exact" or "projected".
        bound: the L2 norm in the values' units.
        ring_bits: l.
        fraction_bits: of the ring.
        weights: n, as of `BoundTerms`.
        nonzero: how many of them an honest client's update may touch: Σ k·τ, and all of the dense blocks.
        payloads: how many of a client's payloads may meet in one row: 3 + σ.
        max_clients: the task's.
        largest_weight: as of `BoundTerms`.
        weight_place: as of `BoundTerms`.
    """

    method: Method
    bound: float
    ring_bits: int
    fraction_bits: int
    weights: int
    nonzero: int
    payloads: int
    max_clients: int
    largest_weight: int = 0
    weight_place: int = 0

    def terms(self) -> BoundTerms:
        """The terms, refused if they do not hold.

        Raises:
            MisuseError: see the module.
        """
        terms = self._terms()
        problem = self._problem(terms)
        if problem:
            raise MisuseError(f"task: bound={self.bound!r}: {problem}; {self._advice()}")
        return terms

    @property
    def _norm(self) -> int:
        return floor(Fraction(self.bound) * (1 << self.fraction_bits))

    def _terms(self) -> BoundTerms:
        return BoundTerms(
            self.method,
            self.ring_bits,
            self.fraction_bits,
            self._norm,
            self.weights,
            largest_weight=self.largest_weight,
            weight_place=self.weight_place,
        )

    def _problem(self, terms: BoundTerms) -> str | None:
        """What is wrong with the terms; None if nothing is."""
        ring = f"Ring({self.ring_bits}, fraction_bits={self.fraction_bits})"
        if terms.norm < 1:
            return f"it is below {2.0**-self.fraction_bits}, the smallest value of {ring}"
        if terms.exact and self.nonzero * terms.norm**2 << 2 * ERROR_BITS > 4**self.ring_bits:
            error = self.ring_bits - log2(self.nonzero) / 2 - log2(terms.norm)
            return (
                f"it is {terms.norm:,} units of {ring}, and honest updates of {self.nonzero:,} weights would not be "
                f"counted with probability 2^{-error:.1f}, where 2^-{ERROR_BITS} is allowed"
            )
        if not terms.exact and ROOM**2 * terms.guaranteed_square > 4**self.ring_bits:
            return f"what projections guarantee ({terms.slack:.2f} times as much) exceeds 1/{ROOM} of what {ring} holds"
        if terms.largest_sum >= terms.field.prime:
            return f"it is {terms.norm:,} units of {ring}, and its proof could wrap in the field"
        if self.max_clients**2 * self.payloads * terms.guaranteed_square >= 4 ** (self.ring_bits - 1):
            return f"the sum of {self.max_clients:,} updates of that size could wrap in {ring}"
        if self.max_clients * terms.verifier_bytes > LONGEST_LIST:
            return (
                f"a server's answers about the proofs of {self.max_clients:,} clients take "
                f"{self.max_clients * terms.verifier_bytes:,} bytes, and {LONGEST_LIST:,} are the most in one message"
            )
        return None

    def _advice(self) -> str:
        remedies = [remedy for other, remedy in self._others() if not other._problem(other._terms())]
        return "use " + ", or ".join(remedies or ["a larger bound" if self._norm < 1 else "a smaller bound"])

    def _others(self) -> Iterator[tuple[Wanted, str]]:
        """Other settings to try, and what to call them."""
        fewer, more = range(self.fraction_bits - 1, -1, -1), range(self.fraction_bits + 1, self.ring_bits - 1)
        for bits in fewer if self._norm else more:
            other = replace(self, fraction_bits=bits)
            if not other._problem(other._terms()):
                yield other, f"Ring({self.ring_bits}, fraction_bits={bits})"
                break
        for bits in (64, 128):
            if bits > self.ring_bits:
                yield replace(self, ring_bits=bits), f"Ring({bits}, fraction_bits={self.fraction_bits})"
        if self.method == "exact":
            projected = replace(self, method="projected")
            yield projected, f'bound_proof="projected", which guarantees {projected._terms().slack:.2f} times the bound'


def check_bound(task: TaskFields) -> None:
    """Refuse a bound that no round of the task can prove, as `terms_of` does; its trees are the fewest of any round."""
    sparse = [block for block in task.blocks if isinstance(block, Sparse)]
    _wanted(task, sum((SEGMENTS * bin_limits(block)[0] + block.stash) * block.width for block in sparse)).terms()


@lru_cache(maxsize=64)
def terms_of(shape: TaskFields) -> BoundTerms | None:
    """What a client proves of its update in rounds of this shape; None where nothing is bounded.

    Args:
        shape: what a round carries of its task (`RoundConfig.shape`).

    Raises:
        MisuseError: the bound cannot be proved, or an honest client would be left out too often; the message says
            which fraction bits, ring or method would do.
    """
    if shape.bound is None:
        return None
    return _wanted(shape, sum(forest.trees * forest.width for _, forest in forests_of(shape))).terms()


def _wanted(shape: TaskFields, in_trees: int) -> Wanted:
    """The bound of a task or of a round's shape, whose trees have so many weights."""
    dense = sum(block.size for block in shape.blocks if isinstance(block, Dense))
    sparse = [block for block in shape.blocks if isinstance(block, Sparse)]
    touched = sum(block.select * block.width for block in sparse)
    # A client changes no more of a block that moves plainly than it would with trees: the task has counted that.
    always = sum(block.size for block in shape.blocks if isinstance(block, Dense) and not isinstance(block, Plain))
    return Wanted(
        method=shape.bound_proof,
        bound=shape.bound or 0.0,
        ring_bits=shape.ring.bits,
        fraction_bits=shape.ring.fraction_bits,
        weights=in_trees + dense,
        largest_weight=shape.largest_weight_integer,
        weight_place=in_trees + _dense_before(shape, shape.weights),
        nonzero=max(1, touched + always),
        payloads=payloads_of(shape),
        max_clients=shape.max_clients,
    )


def _dense_before(shape: TaskFields, name: str | None) -> int:
    """How many elements of dense blocks come before a block's."""
    dense = [block for block in shape.blocks if isinstance(block, Dense)]
    return sum(block.size for block in takewhile(lambda block: block.name != name, dense))


def payloads_of(shape: TaskFields) -> int:
    """How many of a client's payloads can meet in one row: so the root of it is the most by which a norm can grow."""
    stashes = [block.stash for block in shape.blocks if isinstance(block, Sparse)]
    return SEGMENTS + max(stashes) if stashes else 1


def private_bytes(shape: TaskFields) -> int:
    """Bytes of the private part of a bound's proof; 0 where nothing is bounded."""
    terms = terms_of(shape)
    return 0 if terms is None else terms.private_bytes


def verifier_bytes(shape: TaskFields) -> int:
    """Bytes of a server's share of a bound's proof; 0 where nothing is bounded."""
    terms = terms_of(shape)
    return 0 if terms is None else terms.verifier_bytes
