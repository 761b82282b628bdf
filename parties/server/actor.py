"""A server's actor: it has the rounds, one after the other, and only it changes what a round's state is.

Its inbox takes the peer's messages and our own computations' results, so there is nothing to lock. Everybody else (see
`parties.server.server`) reads rounds, waits on them, and posts to the inbox.

    listener ──> conversations ────┐
    peer link ─────────────────────┼──> inbox ──> actor ──> toss ──> round ──> toss ──> …
    compute tasks ─────────────────┘

Rules: what the actor takes is recorded before it is adopted (see `parties.server.round.run`); a settled round is one
commit; where it records something and finds no room, it waits; a peer that breaks the protocol ends it, and with it the
server.
"""

from __future__ import annotations
