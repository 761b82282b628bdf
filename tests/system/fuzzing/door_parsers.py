"""What a core and its doors say to each other, and what doors say to the other server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsl_async.errors import PeerViolationError
from fsl_async.wire.codec import Message
from fsl_async.wire.door_bundles import MOST_BUNDLED, Outgoing, unbundled
from fsl_async.wire.door_messages import (
    AdmitKey,
    Admitted,
    Answered,
    Ask,
    Begin,
    CoreHello,
    CoreToDoor,
    Deposited,
    Dismissed,
    DoorHello,
    DoorToCore,
    Forwarded,
    ForwardOrder,
    Granted,
    Kept,
    Leave,
    Leaving,
    Offer,
    RoundOpened,
    TurnedAway,
    Withdraw,
)
from fsl_async.wire.forward_messages import (
    FromKeeper,
    FromSender,
    OfferPart,
    PartFollows,
    PartLater,
    PartTaken,
    PartUnwanted,
    PartWanted,
)

from .message_parsers import _reader, _words, _written
from .parser import Parser

__all__ = ["PARSERS"]

DIGEST = bytes(range(32))

HELLOS: list[tuple[Message, bytes]] = [
    (DoorHello(release="0.1.0", task=DIGEST, door="door-1", host="here", process=7), b""),
    (CoreHello(longest_answer=2**20, connections=4), b""),
]
OF_DOORS: list[tuple[Message, bytes]] = [
    (AdmitKey(call=1, key=DIGEST, payload=b"payload", origin="192.0.2.1"), b""),
    (Leave(1), b""),
    (Ask(call=2, visit=1, request=b"request"), b""),
    (Begin(call=3, visit=1, request=b"request", size=2**20), b""),
    (Deposited(call=3, part=DIGEST, tree=DIGEST, size=2**20), b""),
    (Withdraw(call=3, why="broken-off"), b""),
    (Offer(call=4, visit=2, round_id=DIGEST, client="alice", purpose="submit", query=0, part=DIGEST, size=9), b""),
    (Kept(call=4, part=DIGEST, tree=DIGEST), b""),
    (Forwarded(2**63 - 1), b""),
]
OF_CORES: list[tuple[Message, bytes]] = [
    (Admitted(call=1, name="alice", welcome=b"alice", peer=False), b""),
    (TurnedAway(call=1, kind="no-place", reason="all places are taken"), b""),
    (Answered(2), b"\x81\xa4type\xa4busy"),
    (Granted(call=3, seed=bytes(16)), b""),
    (RoundOpened(number=12, round_id=DIGEST), b"configuration"),
    (Dismissed(visit=1, reason="not listed"), b""),
    (
        ForwardOrder(order=1, round_id=DIGEST, number=12, client="alice", purpose="submit", query=0, part=DIGEST),
        b"",
    ),
    (Leaving("the server is about to stop"), b""),
]
OF_SENDERS: list[tuple[Message, bytes]] = [
    (
        OfferPart(number=1, round_id=DIGEST, client="alice", purpose="retrieve", query=2, part=DIGEST, size=2**20),
        b"",
    ),
    (PartFollows(1), b"part"),
]
OF_KEEPERS: list[tuple[Message, bytes]] = [
    (PartWanted(1), b""),
    (PartUnwanted(2), b""),
    (PartLater(3), b""),
    (PartTaken(2**40), b""),
]
PEER = (PeerViolationError,)


def _bundled(messages: Sequence[tuple[Message, bytes]]) -> bytes:
    outgoing = Outgoing()
    for message, bulk in messages:
        outgoing.add(message, bulk)  # type: ignore[arg-type]
    return b"".join(map(bytes, outgoing.take()))


def _bundle_reader(union: Any) -> Any:
    def read(data: bytes) -> None:
        received = unbundled(data, union, "S1")
        assert 1 <= len(received) <= MOST_BUNDLED
        assert sum(len(bulk) for _, bulk in received) < len(data)
        again = unbundled(_bundled([(message, bytes(bulk)) for message, bulk in received[:8]]), union, "S1")
        assert again == received[: len(again)]

    return read


def _bundles(messages: Sequence[tuple[Message, bytes]]) -> list[bytes]:
    return [*(_bundled([each]) for each in messages), _bundled(messages)]


PARSERS = tuple(
    Parser(name, _reader(union), lambda seeds=seeds: _written(seeds), PEER, "S1", tokens=_words(seeds))  # type: ignore[misc]
    for name, union, seeds in (
        ("hello-of-doors", DoorHello | CoreHello, HELLOS),
        ("from-sender", FromSender, OF_SENDERS),
        ("from-keeper", FromKeeper, OF_KEEPERS),
    )
) + tuple(
    Parser(
        name,
        _bundle_reader(union),
        lambda seeds=seeds: _bundles(seeds),  # type: ignore[misc]
        PEER,
        "S1",
        tokens=_words(seeds),
    )
    for name, union, seeds in (("from-door", DoorToCore, OF_DOORS), ("from-core", CoreToDoor, OF_CORES))
)
