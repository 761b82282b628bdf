"""What a round waits for, by its state: a text for people, and whether the timer for a silent peer runs."""

from __future__ import annotations

from fsl_async.protocols import psr, ssa
from fsl_async.protocols.reconciliation import Round

FORWARDED_AGAIN = "submissions that {peer} forwards again"

WAITING: dict[type[Round], str] = {
    ssa.Open: "clients",
    ssa.Closing: "submissions that {peer} has",
    ssa.Closed: "{peer}'s list of submissions",
    ssa.Rostered: "evaluation",
    ssa.Proved: "{peer}'s proof digests",
    ssa.Verified: "our share of the sum",
    ssa.Tallied: "{peer}'s counts of contributors",
    ssa.Chosen: "our share of the sum",
    ssa.Committed: "{peer}'s commitment",
    ssa.Revealed: "{peer}'s share",
    ssa.Combined: "the update",
    ssa.Concluded: "{peer}'s outcome",
    psr.Open: "the end of its time",
    psr.Closed: "{peer} to close it, too",
    psr.Concluded: "{peer}'s outcome",
}


def awaits_peer(state: Round, lacks_parts: bool) -> bool:
    """Whether the round cannot continue before the peer sends something, and may still be aborted.

    Args:
        state: the round's.
        lacks_parts: whether a restart has lost public parts that the peer has yet to forward again.
    """
    return isinstance(state, ssa.Closed | ssa.Proved | ssa.Tallied | psr.Closed) or _cannot_evaluate(state, lacks_parts)


def waiting_for(state: Round, lacks_parts: bool, peer: str) -> str:
    """What has to come before the round continues; empty if the round is over.

    Args:
        state: the round's.
        lacks_parts: as above.
        peer: the other server's name.
    """
    awaited = FORWARDED_AGAIN if _cannot_evaluate(state, lacks_parts) else WAITING.get(type(state), "")
    return awaited.format(peer=peer)


def _cannot_evaluate(state: Round, lacks_parts: bool) -> bool:
    return lacks_parts and isinstance(state, ssa.Rostered | ssa.Verified | ssa.Chosen)
