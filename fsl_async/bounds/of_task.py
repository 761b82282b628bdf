"""The terms of a task's bound."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile

from fsl_async.blocks import Dense, Plain, Sparse
from fsl_async.bounds.refusals import Wanted
from fsl_async.bounds.terms import BoundTerms
from fsl_async.geometry import SEGMENTS
from fsl_async.options.fields import TaskFields
from fsl_async.wire.public_part import forests_of


@lru_cache(maxsize=64)
def terms_of(shape: TaskFields) -> BoundTerms | None:
    """What a client proves of its update in rounds of this shape; None where nothing is bounded.

    Args:
        shape: a task, or what a round carries of it (`RoundConfig.shape`).

    Raises:
        MisuseError: the bound cannot be proved, or an honest client would be left out too often; the message says
            which fraction bits, ring or method would do.
    """
    if shape.bound is None:
        return None
    in_trees = sum(forest.trees * forest.width for _, forest in forests_of(shape))
    dense = sum(block.size for block in shape.blocks if isinstance(block, Dense))
    sparse = [block for block in shape.blocks if isinstance(block, Sparse)]
    touched = sum(block.select * block.width for block in sparse)
    # A client changes no more of a block that moves plainly than it would with trees: the task has counted that.
    always = sum(block.size for block in shape.blocks if isinstance(block, Dense) and not isinstance(block, Plain))
    return Wanted(
        method=shape.bound_proof,
        bound=shape.bound,
        ring_bits=shape.ring.bits,
        fraction_bits=shape.ring.fraction_bits,
        weights=in_trees + dense,
        largest_weight=shape.largest_weight_integer,
        weight_place=in_trees + _dense_before(shape, shape.weights),
        nonzero=max(1, touched + always),
        payloads=payloads_of(shape),
        max_clients=shape.max_clients,
    ).terms()


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
