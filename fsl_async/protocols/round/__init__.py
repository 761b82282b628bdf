"""A round on one server, from open to done: the server's side of secure submodel aggregation.

    OPEN ──CloseRound──> CLOSED ──PeerRoster──> ROSTERED ──Evaluated──> PROVED ──PeerProofs──> VERIFIED ──┐
      │                                          ^  ^  └────(semi-honest: no proofs)────────────^        Summed
      ├──PeerRoster, all here────────────────────┘  │                                                     v
      └──PeerRoster, some on their way──> CLOSING ──┘  (the last Submitted, or GraceOver)             COMMITTED
                                                                                                          │
    DONE <──PeerConclusion── CONCLUDED <──Applied── COMBINED <──PeerShare── REVEALED <──PeerCommitment────┘

    any state before COMMITTED: GaveUp, PeerAbort or too few clients ──> ABORTED; COMMITTED: PeerAbort ──> ABORTED

Rules:

- One roster per round: the submissions that both servers hold in full, with equal digests. The first server to close
  freezes its list; the other still takes, for a grace period, what the first has and it has not. A peer's second,
  different roster is a violation: the difference of two sums would expose a client.
- A roster (or what verification leaves of it) below the minimum aborts before anything is revealed.
- A share is revealed only after the peer has committed to its own; a share that does not match its commitment halts.
- Whoever has COMMITTED does not give up any more: it waits and resends. It follows a peer that gave up before it had
  committed itself, for then neither share has been revealed, nor ever will be.

The states and events are in `states`, the table and `step` in `transitions`, what a server does in each state in
`side_effects`.

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
)
from fsl_async.protocols.round.transitions import (
    ACCEPTS,
    BEFORE_REVEALED,
    INITIAL,
    TRANSITIONS,
    step,
)

__all__ = [
    "ACCEPTS",
    "BEFORE_REVEALED",
    "INITIAL",
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
    "share_commitment",
    "step",
]
