"""Who may take part: whether a server lets in the holder of a key, and under which name.

    revoked key ────────────────────────────────────────> refused
    known key ──────────────────────────────────────────> in, under the name and keys it is known by
    unknown key ── list ────────────────────────────────> refused
                ── token ── a voucher nobody has used ──┐
                ── open ────────────────────────────────┴> enrolled: recorded, then in

Rules: a name belongs to one key for good, and so does a token, on each server; an enrolment is in the store before the
client hears of it, and read back at the start; whatever a stranger sends, the answer is a reason, never an error; where
the operator's list and an enrolment contradict each other, the list holds. The list can be replaced while the server
runs: who is not known any more is let go, and what this server has acknowledged to it by then stays, and counts.

The two servers decide apart. A client that one of them knows otherwise, or not at all, cannot be counted: a
submission's digest has the client's name and keys in it, so the rosters do not meet.
"""

from __future__ import annotations
