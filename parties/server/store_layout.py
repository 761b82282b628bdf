"""The names in a server's store.

standing, model/…, state/…          `parties.server.history`: how far the server has got
union/…, update/…                   `parties.server.history`: the union of later rounds, the last round's sum
past/<number>, past-number/<id>     `parties.server.history`: the rounds that are over
restores                            `parties.server.history`: when the store was made from a copy
session/<client>/…                  `parties.server.sessions`: the trees that outlive their round
enrolment                           `parties.server.admission`: the clients that have enrolled
spent/…                             `parties.server.ledger`: the rounds that are charged to the privacy budget
evidence                            `parties.server.evidence`: what was seen against the protocol
last-toss                           `parties.server.round.toss`: the toss of the last settled round
last-sample                         `parties.server.round.sample`: who asked for the last settled round
round-<number>/…                    `parties.server.round.records`: a round, from its toss until it is erased
"""

from __future__ import annotations

from urllib.parse import quote

PROGRESS = "standing"
"""How far the server has got; a store without it is new."""

RESTORES = "restores"
"""The journal of a store's restores."""


def round_prefix(number: int) -> str:
    """What the names of all records of a round begin with."""
    return f"round-{number:08}"


def client_key(client: str) -> str:
    """A client's name as a part of a key: no slash in it, whatever the name."""
    return quote(client, safe="")
