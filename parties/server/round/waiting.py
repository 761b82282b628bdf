"""What a round waits for, by its state: a text for people, and whether the timer for a silent peer runs."""

from __future__ import annotations

from fsl_async.protocols import round as protocol

FORWARDED_AGAIN = "submissions that {peer} forwards again"

WAITING = {
    protocol.Open: "clients",
    protocol.Closing: "submissions that {peer} has",
    protocol.Closed: "{peer}'s list of submissions",
    protocol.Rostered: "evaluation",
    protocol.Proved: "{peer}'s proof digests",
    protocol.Verified: "our share of the sum",
    protocol.Committed: "{peer}'s commitment",
    protocol.Revealed: "{peer}'s share",
    protocol.Combined: "the update",
    protocol.Concluded: "{peer}'s outcome",
}


def awaits_peer(state: protocol.Round, lacks_parts: bool) -> bool:
    """Whether the round cannot continue before the peer sends something, and may still be aborted.

    Args:
        state: the round's.
        lacks_parts: whether a restart has lost public parts that the peer has yet to forward again.
    """
    return isinstance(state, protocol.Closed | protocol.Proved) or _cannot_evaluate(state, lacks_parts)


def waiting_for(state: protocol.Round, lacks_parts: bool, peer: str) -> str:
    """What has to come before the round continues; empty if the round is over.

    Args:
        state: the round's.
        lacks_parts: as above.
        peer: the other server's name.
    """
    awaited = FORWARDED_AGAIN if _cannot_evaluate(state, lacks_parts) else WAITING.get(type(state), "")
    return awaited.format(peer=peer)


def _cannot_evaluate(state: protocol.Round, lacks_parts: bool) -> bool:
    return lacks_parts and isinstance(state, protocol.Rostered | protocol.Verified)
