"""A round on one server, from open to done: the server's side of secure submodel aggregation.

Without incident a server goes through `Open`, `Closed`, `Rostered`, `Proved` (if the task is verified), `Verified`,
`Committed`, `Revealed`, `Combined`, `Concluded` and `Done`; through `Closing` instead of `Closed` where the peer closes
first. From any state before `Committed` it may go to `Aborted`.

Rules:

- One roster per round: the submissions that both servers hold in full, with equal digests. The first server to close
  freezes its list; the other still takes, for a grace period, what the first has and it has not. A peer's second,
  different roster is a violation: the difference of two sums would expose a client.
- A roster (or what verification leaves of it) below the minimum aborts before anything is revealed.
- A share is revealed only after the peer has committed to its own; a share that does not match its commitment halts.
- A server that has committed cannot abandon the round: it waits and resends. It follows a peer that aborted before
  committing, because then neither share has been revealed, nor ever will be.

The states and events are in `states`, the rules in `transitions`, what a server does in each state in `side_effects`.

Source: paper §"Basic Protocols" (SSA); design §9.
"""

from fsl_async.protocols.round.side_effects import (
    Apply,
    AwaitGrace,
    Effect,
    Evaluate,
    Send,
    SendShare,
    Sum,
    effects,
    share_commitment,
)
from fsl_async.protocols.round.states import (
    Aborted,
    Applied,
    Closed,
    CloseRound,
    Closing,
    Combined,
    Committed,
    Concluded,
    Done,
    Evaluated,
    GaveUp,
    GraceOver,
    Open,
    PeerAbort,
    PeerCommitment,
    PeerConclusion,
    PeerProofs,
    PeerRoster,
    PeerShare,
    Proved,
    Revealed,
    Rostered,
    Round,
    Submitted,
    Summed,
    Terms,
    Verified,
    heard_in,
)
from fsl_async.protocols.round.transitions import (
    ACCEPTS,
    BEFORE_REVEALED,
    MACHINE,
    TRANSITIONS,
    step,
)

__all__ = [
    "ACCEPTS",
    "BEFORE_REVEALED",
    "MACHINE",
    "TRANSITIONS",
    "Aborted",
    "Applied",
    "Apply",
    "AwaitGrace",
    "CloseRound",
    "Closed",
    "Closing",
    "Combined",
    "Committed",
    "Concluded",
    "Done",
    "Effect",
    "Evaluate",
    "Evaluated",
    "GaveUp",
    "GraceOver",
    "Open",
    "PeerAbort",
    "PeerCommitment",
    "PeerConclusion",
    "PeerProofs",
    "PeerRoster",
    "PeerShare",
    "Proved",
    "Revealed",
    "Rostered",
    "Round",
    "Send",
    "SendShare",
    "Submitted",
    "Sum",
    "Summed",
    "Terms",
    "Verified",
    "effects",
    "heard_in",
    "share_commitment",
    "step",
]
