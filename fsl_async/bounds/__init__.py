"""Proofs that a client's whole update is within a bound, on shares that two servers hold.

docs/bounds-proofs.md has the argument; the servers' own share of the work is in `fsl_async.server` and the parties.
"""

from fsl_async.bounds.masking import private_digest
from fsl_async.bounds.client import ProjectionError, private_part
from fsl_async.bounds.of_task import check_bound, payloads_of, private_bytes, terms_of, verifier_bytes
from fsl_async.bounds.server import accepts, check_answer, check_private, verifier_share
from fsl_async.bounds.terms import BoundTerms, Method

__all__ = [
    "BoundTerms",
    "Method",
    "ProjectionError",
    "accepts",
    "check_answer",
    "check_bound",
    "check_private",
    "payloads_of",
    "private_bytes",
    "private_digest",
    "private_part",
    "terms_of",
    "verifier_bytes",
    "verifier_share",
]
