"""A round of private submodel retrieval on one server, from open to done: it answers retrievals, and nothing else.

Without incident a server goes through `Open`, `Closed`, `Concluded` and `Done`; from `Open` to `Concluded` where the
peer closes first. From `Open` or `Closed` it may go to `Aborted`.

Rules:

- A server answers retrievals while it is `Open`. What it answers is no part of the state: an answer depends on the
  round's configuration and on the request alone, so a retrieval that is asked again gets the same answer.
- A round ends when its time is over or when an operator ends it, and only once both servers have closed it: the next
  round's seed is fresh, and is tossed by both.
- There is nothing to agree on but that it is over: no client is counted, and the model stays as it was. So each server
  knows its outcome from the beginning, and a peer with another one is a violation.
- While the peer has not closed, a server may abort the round, and the peer follows. A server that has concluded does
  not abort: the peer may have done the same, and be done.

States, events, rules, and what a server does in each state are in `transitions`.

Source: paper §"Basic Protocols" (PSR); design §7.
"""

from fsl_async.protocols.ending import (
    CloseRound as CloseRound,
    GaveUp as GaveUp,
    PeerAbort as PeerAbort,
    PeerConclusion as PeerConclusion,
    Send as Send,
)
from fsl_async.protocols.psr.transitions import (
    ACCEPTS as ACCEPTS,
    Aborted as Aborted,
    Closed as Closed,
    Concluded as Concluded,
    Done as Done,
    MACHINE as MACHINE,
    Open as Open,
    PeerClosed as PeerClosed,
    Round as Round,
    RoundEvent as RoundEvent,
    TRANSITIONS as TRANSITIONS,
    Terms as Terms,
    effects as effects,
    heard_in as heard_in,
    step as step,
)
