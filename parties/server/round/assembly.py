"""Where the two halves of a client's request meet on a server: its own message, and the public part from the carrier.

The desk knows digests; the parts themselves are in the store (see `parties.server.round.records`). Rules: a request
waits for its other half only as long as the round is open, and is told what it waited for; a half that contradicts what
is known is refused; whatever a client sends again is harmless. A part that the peer forwards is judged here before it
is stored: one to a request, and of clients that have not come themselves no more than the round has places; so what is
stored because the peer says so is bounded, and what is read back after a restart never contradicts itself.
"""

from __future__ import annotations
