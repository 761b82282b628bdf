"""How everything is hashed and every key derived: BLAKE2b with a domain tag of its own for every purpose.

Rules: every digest and every derived key names its `Domain`; parts are length-prefixed, so no two lists of parts give
the same input; received data is compared by the digest of the bytes that came, never of a re-encoding. In a long part's
place stands its BLAKE3 digest, seven times as fast: it lets other threads go on meanwhile, and copies nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum
from typing import TypeAlias

from blake3 import blake3

Buffer: TypeAlias = bytes | bytearray | memoryview

DIGEST_BYTES = 32
KEY_BYTES = 16

LONG_PART = 1024
"""The most bytes of a part that BLAKE2b itself takes in; it is a rule of the wire."""


class Domain(Enum):
    """What a digest or a key is for; the value is BLAKE2b's `person` parameter (at most 16 bytes)."""

    TASK = b"fsl.task"
    ROUND = b"fsl.round"
    MODEL = b"fsl.model"
    STATE = b"fsl.state"
    TREE = b"fsl.tree"
    PUBLIC_PART = b"fsl.public"
    DENSE_SHARE = b"fsl.dense-share"
    SEED_COMMITMENT = b"fsl.seed-commit"
    SUBMISSION = b"fsl.submission"
    TOSS_COMMITMENT = b"fsl.toss-commit"
    HASH_SEED = b"fsl.hash-seed"
    PROOF_KEY = b"fsl.proof-key"
    PROOF = b"fsl.proof"
    PROOF_GROUP = b"fsl.proof-group"
    TAG_KEY = b"fsl.tag-key"
    TAG_MASK_KEY = b"fsl.tag-mask"
    COUNTS = b"fsl.counts"
    SHARE = b"fsl.share"
    SHARE_PIECE = b"fsl.share-piece"
    SHARE_COMMITMENT = b"fsl.share-commit"
    ROSTER = b"fsl.roster"
    ROSTER_BLIND = b"fsl.roster-blind"
    ROSTER_SALT = b"fsl.roster-salt"
    ROSTER_LEAF = b"fsl.roster-leaf"
    ROSTER_NODE = b"fsl.roster-node"
    ROSTER_ROOT = b"fsl.roster-root"
    OUTCOME = b"fsl.outcome"
    STATEMENT = b"fsl.statement"
    ASKED = b"fsl.asked"
    SAMPLE = b"fsl.sample"
    SAMPLE_KEY = b"fsl.sample-key"
    SAMPLE_RANK = b"fsl.sample-rank"
    RECEIPT = b"fsl.receipt"
    EXPAND = b"fsl.expand"
    CONVERT = b"fsl.convert"
    SALT = b"fsl.salt"
    DENSE_MASK = b"fsl.dense-mask"
    SELECT = b"fsl.select"
    PLACEMENT = b"fsl.placement"
    CARRIER = b"fsl.carrier"
    UNION = b"fsl.union"
    IDENTITY = b"fsl.identity"
    UPDATE = b"fsl.update"
    ENROLMENT = b"fsl.enrolment"
    VOUCHER = b"fsl.voucher"
    SERVED = b"fsl.served"
    HELD = b"fsl.held"
    TOKEN = b"fsl.token"
    STORED = b"fsl.stored"
    SIMULATION = b"fsl.simulation"
    LAYOUT = b"fsl.layout"
    NOISE = b"fsl.noise"
    BINDING = b"fsl.binding"
    BOUND_PART = b"fsl.bound-part"
    BOUND_MASK = b"fsl.bound-mask"
    BOUND_PROOF = b"fsl.bound-proof"
    BOUND_SEEDS = b"fsl.bound-seeds"
    BOUND_SQUARES = b"fsl.bound-square"
    BOUND_QUERY = b"fsl.bound-query"
    BOUND_MATRIX = b"fsl.bound-matrix"
    BOUND_LINK = b"fsl.bound-link"


def digest(domain: Domain, *parts: Buffer, key: bytes = b"") -> bytes:
    """BLAKE2b-256 of the length-prefixed parts, under the domain's tag and an optional key of up to 64 bytes."""
    content = bytearray()
    for part in parts:
        content += len(part).to_bytes(8, "little")
        content += part if len(part) <= LONG_PART else blake3(part).digest()
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES, person=domain.value, key=key).digest()


def derive_key(domain: Domain, *parts: Buffer) -> bytes:
    """A 16-byte AES key for one purpose; the parts say which (round, block, epoch, …)."""
    return digest(domain, *parts)[:KEY_BYTES]


def same(left: Buffer, right: Buffer) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(left, right)
