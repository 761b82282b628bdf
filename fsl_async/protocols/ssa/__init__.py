"""A round on one server, from open to done: the server's side of secure submodel aggregation.

Without incident a server goes through `Open`, `Closed`, `Rostered`, `Proved` (if the task is verified), `Verified`,
`Committed`, `Revealed`, `Combined`, `Concluded` and `Done`; through `Tallied` and `Chosen` before `Committed` where
contributors are counted; through `Closing` instead of `Closed` where the peer closes
first, and to `Differed` instead of `Done` where the task's own rule gave the peer another outcome. From any state
before `Committed` it may go to `Aborted`.

Rules:

- One roster per round: the submissions that both servers hold in full, with equal digests. The first server to close
  freezes its list; the other still takes, for a grace period, what the first has and it has not. A peer's second,
  different roster is a violation: the difference of two sums would expose a client.
- A roster (or what verification leaves of it) below the minimum aborts before anything is revealed.
- Where contributors are counted, the servers first exchange their shares of the counts; what each commits to is its
  share of the rows that both counts open, and names the counts. Counts are not committed to before they are exchanged:
  a server that lies about them can open every row in any case, by adding the minimum to each.
- A share is revealed only after the peer has committed to its own; a share that does not match its commitment halts.
- Both servers arrive at the same outcome from the same shares; a peer with another one is a violation. Only where the
  task applies a function of its own may they differ: then neither applies anything.
- A server that has committed cannot abandon the round: it waits and resends. It follows a peer that aborted before
  committing, because then neither share has been revealed, nor ever will be.

The states and events are in `states`, the rules in `transitions`, what a server does in each state in `side_effects`.

Source: paper §"Basic Protocols" (SSA); design §9.
"""

from fsl_async.protocols.ending import (
    CloseRound as CloseRound,
    GaveUp as GaveUp,
    PeerAbort as PeerAbort,
    PeerConclusion as PeerConclusion,
    Send as Send,
    Stored as Stored,
)
from fsl_async.protocols.ssa.side_effects import (
    Apply as Apply,
    AwaitGrace as AwaitGrace,
    CountRows as CountRows,
    Effect as Effect,
    Evaluate as Evaluate,
    Sum as Sum,
    effects as effects,
    share_commitment as share_commitment,
)
from fsl_async.protocols.ssa.states import (
    Aborted as Aborted,
    Applied as Applied,
    Chosen as Chosen,
    Closed as Closed,
    Closing as Closing,
    Combined as Combined,
    Committed as Committed,
    Concluded as Concluded,
    Counts as Counts,
    Differed as Differed,
    Done as Done,
    Evaluated as Evaluated,
    GraceOver as GraceOver,
    Open as Open,
    PeerCommitment as PeerCommitment,
    PeerCounts as PeerCounts,
    PeerProofs as PeerProofs,
    PeerRoster as PeerRoster,
    PeerShare as PeerShare,
    Proved as Proved,
    Revealed as Revealed,
    Rostered as Rostered,
    Round as Round,
    RoundEvent as RoundEvent,
    RowsCounted as RowsCounted,
    Submitted as Submitted,
    Summed as Summed,
    Tallied as Tallied,
    Terms as Terms,
    Verified as Verified,
    heard_in as heard_in,
    needed_in as needed_in,
    roster_sent as roster_sent,
)
from fsl_async.protocols.ssa.transitions import (
    ACCEPTS as ACCEPTS,
    BEFORE_REVEALED as BEFORE_REVEALED,
    BEFORE_VERIFIED as BEFORE_VERIFIED,
    MACHINE as MACHINE,
    TRANSITIONS as TRANSITIONS,
    failed_proofs as failed_proofs,
    step as step,
)
