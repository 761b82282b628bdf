"""What a server does in each state of a round: a pure function of the state, so that a restarted server does it again.

A message stays among the effects until an answer proves that the peer has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from fsl_async.digests import Domain, digest
from fsl_async.protocols.ending import Send, Stored
from fsl_async.protocols.entries import packed, roster_digest
from fsl_async.protocols.ssa.states import (
    Aborted,
    Chosen,
    Closed,
    Closing,
    Combined,
    Committed,
    Concluded,
    Counts,
    Differed,
    Done,
    Listed,
    Open,
    Proved,
    Revealed,
    Rostered,
    Round,
    Tallied,
    Terms,
    Verified,
)
from fsl_async.wire.messages import Abort, Commitment, Conclusion, Proofs, RosterList, RowCounts, Share


@dataclass(frozen=True)
class AwaitGrace:
    """Report `GraceOver` when the grace period has passed."""


@dataclass(frozen=True)
class Evaluate:
    """Bring exactly these submissions into the accumulators, then report `Evaluated`."""

    roster: Listed


@dataclass(frozen=True)
class CountRows:
    """Leave only these submissions in the sum, form the share of the counts, then report `RowsCounted`."""

    counted: Listed


@dataclass(frozen=True)
class Sum:
    """Leave only these submissions in the sum, form the share, then report `Summed`.

    Where contributors are counted, of the rows that both shares of the counts open.
    """

    counted: Listed
    counts: Counts = ()


@dataclass(frozen=True)
class Apply:
    """Add both shares, apply the update, then report `Applied`."""

    counted: Listed
    excluded: Mapping[str, str]
    share: bytes
    peer_share: bytes
    counts: Counts = ()


Effect: TypeAlias = Send | AwaitGrace | Evaluate | CountRows | Sum | Apply


def effects(state: Round, terms: Terms) -> tuple[Effect, ...]:
    """What a server in this state does, and does again after a restart."""
    match state:
        case Open():
            return ()
        case Closed():
            return (_send_roster(state.entries, terms),)
        case Closing():
            return (AwaitGrace(),)
        case Rostered():
            return (_send_roster(state.entries, terms), Evaluate(state.roster))
        case Proved():
            return (_send_roster(state.entries, terms), *_send_proofs(state.proofs, terms))
        case Verified():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                CountRows(state.counted) if terms.contributors else Sum(state.counted),
            )
        case Tallied():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                _send_counts(state.counts, terms),
            )
        case Chosen():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                _send_counts(state.counts[terms.server], terms),
                Sum(state.counted, state.counts),
            )
        case Committed():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                *(_send_counts(counts, terms) for counts in state.counts[terms.server :][:1]),
                _send_commitment(state, terms),
            )
        case Revealed():
            return (
                _send_commitment(state, terms),
                _send_share(state.share, state.nonce, terms),
            )
        case Combined():
            return (
                _send_share(state.share, state.nonce, terms),
                Apply(state.counted, state.excluded, state.share, state.peer_share, state.counts),
            )
        case Concluded():
            return (
                _send_share(state.share, state.nonce, terms),
                Send(Conclusion(terms.round_id, state.outcome)),
            )
        case Done() | Differed():
            return (Send(Conclusion(terms.round_id, state.outcome)),)
        case Aborted():
            return (Send(Abort(terms.round_id, state.explanation)),)
        case _:
            assert_never(state)


def share_commitment(
    terms: Terms, server: int, counted: Mapping[str, bytes], share: bytes, nonce: bytes, counts: Counts = ()
) -> bytes:
    """What server `server` commits to before shares are revealed: its share of the sum over exactly these clients.

    Where contributors are counted, over exactly the rows that these shares of the counts open.
    """
    roster = roster_digest(counted)
    of_counts = counts or (b"", b"")
    return digest(Domain.SHARE_COMMITMENT, terms.round_id, bytes([server]), roster, *of_counts, share, nonce)


def _send_roster(entries: Listed, terms: Terms) -> Send:
    return Send(RosterList(terms.round_id), packed(entries))


def _send_proofs(proofs: Listed, terms: Terms) -> tuple[Send, ...]:
    return (Send(Proofs(terms.round_id), packed(proofs)),) if terms.verified else ()


def _send_commitment(state: Committed | Revealed, terms: Terms) -> Send:
    commitment = share_commitment(terms, terms.server, state.counted, state.share, state.nonce, state.counts)
    return Send(Commitment(terms.round_id, commitment))


def _send_counts(counts: bytes, terms: Terms) -> Send:
    return Send(RowCounts(terms.round_id), Stored("counts", counts))


def _send_share(share: bytes, nonce: bytes, terms: Terms) -> Send:
    return Send(Share(terms.round_id, nonce), Stored("share", share))
