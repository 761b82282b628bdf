"""What a client and both servers derive alike: keys, roots, masks, commitments and the digests that they compare.

A client's computations (`fsl_async.client`) and a server's (`fsl_async.server`) both import this module and never each
other.

Source: design §6 (roots and masks from master seeds), §8 (seed commitments and κ), §9 (what a submission is known by).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.digests import KEY_BYTES, Buffer, Domain, derive_key, digest
from fsl_async.geometry import Forest
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements
from fsl_async.task import Task
from fsl_async.wire.public_part import ForestKey, Layout, dense_bytes


def seed_commitment(msk: bytes, round_id: bytes, client: str, server: int) -> bytes:
    """c_b = BLAKE2b(msk_b, round, client, b): a client's commitment to the master seed of server b, 32 bytes."""
    return digest(Domain.SEED_COMMITMENT, msk, round_id, client.encode(), bytes([server]))


def forest_roots(msk: bytes, key: ForestKey, forest: Forest, server: int, bins: range | None = None) -> Blocks:
    """One server's roots of a forest's trees, (trees, 2): AES_msk(tree, forest), with the server's number as t.

    Args:
        msk: the server's master seed.
        key: the forest's.
        forest: all of it.
        server: 0 or 1.
        bins: of every segment, those whose roots are asked for; by default all.
    """
    nonce = (key.block << 32) | key.forest
    if bins is None or len(bins) == forest.bins:
        roots = kernels.keystream(msk, nonce, forest.trees)
    else:
        firsts = (segment * forest.bins + bins.start for segment in range(forest.segments))
        roots = np.concatenate([kernels.keystream(msk, nonce, len(bins), first) for first in firsts])
    roots[:, 0] = (roots[:, 0] & ~np.uint64(1)) | np.uint64(server)
    return roots


def expansion_keys(config: RoundConfig) -> kernels.Keys:
    """The keys with which this round's trees expand."""
    return public_schedule(config.tree_key(Domain.EXPAND))


def public_schedule(key: bytes) -> kernels.Keys:
    """The AES key schedule of a public key of the round, from a cache; a secret key must not be put there."""
    return _schedule(key, kernels.active_isa())


@lru_cache(maxsize=256)
def _schedule(key: bytes, isa: str) -> kernels.Keys:
    """Cached by instruction set too, because one call never mixes the schedules of two."""
    del isa
    return kernels.key_schedule(key)


def tag_keys(config: RoundConfig, client: str, tree: bytes, commitments: Sequence[bytes]) -> tuple[bytes, bytes]:
    """κ's two keys, (tag, mask).

    They depend on the trees and on the commitments to both master seeds, so a client cannot search for seeds whose tags
    collide.
    """
    parts = (config.round_id(), client.encode(), tree, *commitments)
    return derive_key(Domain.TAG_KEY, *parts), derive_key(Domain.TAG_MASK_KEY, *parts)


def dense_mask(task: Task, msk: bytes, epoch: int, salt: bytes) -> Elements:
    """The share of all dense blocks that a master seed expands to, one-dimensional.

    The salt is a pseudo-random function of all that a submission hides, so one mask never hides two values.
    """
    size = dense_bytes(task)
    key = digest(Domain.DENSE_MASK, epoch.to_bytes(8, "little"), salt, key=msk)[:KEY_BYTES]
    stream = kernels.keystream(key, nonce=0, count=-(-size // 16))
    return task.ring.from_bytes(stream.tobytes()[:size], size // task.ring.element_bytes)


def dense_digest(share: Buffer, msk: bytes) -> bytes:
    """A commitment to the carrier's dense share, which stands in the public part; empty where there is none.

    It is keyed with the carrier's master seed, so it tells the other server nothing.
    """
    return digest(Domain.DENSE_SHARE, share, key=msk) if share else b""


def digest_of_trees(trees: Sequence[Buffer]) -> bytes:
    """The digest of all forests' trees as they travel.

    Empty where there are no trees, or only trees of a single leaf, which have nothing to correct.
    """
    return digest(Domain.TREE, *trees) if any(trees) else b""


def tree_digest(layout: Layout, part: Buffer) -> bytes:
    """`digest_of_trees` of a public part: it fixes κ, and ties hints to the trees that they are for."""
    pieces = layout.split(memoryview(part))
    return digest_of_trees([piece for (_, kind), piece in pieces.items() if kind == "tree"])


def public_digest(layout: Layout, part: Buffer, tree: bytes) -> bytes:
    """The digest of a public part, which the client gives to the server that is not the carrier.

    Args:
        layout: where the part's pieces are.
        part: its bytes, exactly `layout.size` of them.
        tree: its `tree_digest`, which replaces the trees here so that they are hashed once.
    """
    pieces = layout.split(memoryview(part))
    return digest(Domain.PUBLIC_PART, tree, *(piece for (_, kind), piece in pieces.items() if kind != "tree"))


def binding(round_id: bytes, identity: bytes, public: bytes, tree: bytes, commitments: Sequence[bytes]) -> bytes:
    """The digest of everything that an update depends on, 32 bytes.

    Args:
        round_id: of the round that takes the update.
        identity: the digest of the client's name and keys, so two servers that know one name by different keys never
            agree on a submission.
        public: the digest of the public part, with its salt and the digest of the dense share.
        tree: the digest of the trees that the hints are for, also where the part does not bring them.
        commitments: c₀ and c₁, to the two master seeds.
    """
    return digest(Domain.BINDING, round_id, identity, public, tree, *commitments)


def submission_digest(bind: bytes, bound: bytes) -> bytes:
    """D of design §9, by which receipts, rosters and proofs name a submission.

    Args:
        bind: its `binding`.
        bound: the digest of the private part of its bound's proof; empty where the task has no bound.
    """
    return digest(Domain.SUBMISSION, bind, bound)
