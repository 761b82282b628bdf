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
last-sample                         `parties.server.round.drawing`: who asked for the last settled round
round-<number>/…                    `parties.server.round.records`: a round, from its toss until it is erased

The names of a round's blobs, below `round-<number>`:

parts/<client>/<purpose>-<query>/<digest>    a public part
dense/<client>/<digest>                      the carrier's share of dense blocks
bound/<client>/<digest>                      the private part of the proof of a bound, on the carrier
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from fsl_async.errors import StorageError
from parties.storage.store import DAMAGED

Purpose: TypeAlias = Literal["retrieve", "submit"]

PROGRESS = "standing"
"""How far the server has got; a store without it is new."""

RESTORES = "restores"
"""The journal of a store's restores."""

_PART_NAME = re.compile(r"round-\d{8,}/parts/([^/]+)/(retrieve|submit)-(\d{1,9})/((?:[0-9a-f]{2})+)")


class RequestKey(NamedTuple):
    """Which request: whose, for what, and which of several."""

    client: str
    purpose: Purpose
    query: int


class KnownPart(NamedTuple):
    """A public part that is kept."""

    key: RequestKey
    digest: bytes


def round_prefix(number: int) -> str:
    """What the names of all records of a round begin with."""
    return f"round-{number:08}"


def client_key(client: str) -> str:
    """A client's name as a part of a key: no slash in it, and not of dots alone, whatever the name."""
    key = quote(client, safe="")
    return key if key.strip(".") else key.replace(".", "%2E")


def part_name(prefix: str, key: RequestKey, part: bytes) -> str:
    """Under which name a public part lies."""
    return f"{prefix}/parts/{client_key(key.client)}/{key.purpose}-{key.query}/{part.hex()}"


def known_part(name: str) -> KnownPart:
    """The public part that lies under a name.

    Raises:
        StorageError: it is no public part's.
    """
    match = _PART_NAME.fullmatch(name)
    if match is None:
        raise StorageError(f"{name} in the store names no public part; it is damaged: {DAMAGED}")
    purpose: Purpose = "retrieve" if match[2] == "retrieve" else "submit"
    return KnownPart(RequestKey(unquote(match[1]), purpose, int(match[3])), bytes.fromhex(match[4]))


def dense_name(prefix: str, client: str, name: bytes) -> str:
    """Under which name a share of dense blocks lies."""
    return f"{prefix}/dense/{client_key(client)}/{name.hex()}"


def bound_name(prefix: str, client: str, name: bytes) -> str:
    """Under which name the private part of a bound's proof lies."""
    return f"{prefix}/bound/{client_key(client)}/{name.hex()}"
