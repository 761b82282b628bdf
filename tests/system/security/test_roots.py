"""A server that signs a statement with another list's root, or a proof that is none: the client names it.

What the two servers sign must agree but for what is the client's own, and its own must prove that it is on the list:
`tests/fsl_async/test_merkle.py` has every lie about a place.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fsl_async.errors import PeerViolationError
from fsl_async.merkle import RosterTree, root_of_nobody
from parties import simulate
from parties.errors import OutcomesDifferError
from parties.statement import Statement
from tests.support.cases import in_turn
from tests.support.shop import TASK, all_take_part, forging, meddled, model

Lie = Callable[[Statement], dict[str, Any]]
LIAR = "S0"
OTHERS = RosterTree(dict.fromkeys(("anna", "ben", "carol"), bytes(32)), b"another blinding")


def moved(told: Statement, **changes: Any) -> dict[str, Any]:
    return {"seat": msgspec.structs.replace(told.seat, **changes)}


UNPROVED = "^S0: sent a round's outcome that counts this client, and does not prove that it is on the list"
LIES: dict[str, tuple[Lie, type[PeerViolationError], str]] = {
    "another proof": (lambda told: moved(told, path=bytes(len(told.seat.path))), PeerViolationError, UNPROVED),
    "a proof of another size than any": (lambda told: moved(told, path=bytes(10_000)), PeerViolationError, "length"),
    "another submission": (lambda told: moved(told, digest=bytes(32)), PeerViolationError, UNPROVED),
    "another root": (lambda told: {"root": OTHERS.root}, PeerViolationError, UNPROVED),
    "a root that is none": (lambda told: {"root": b""}, PeerViolationError, "length"),
    "another number of clients": (lambda told: {"participants": 4}, PeerViolationError, UNPROVED),
    "another list, with its proof": (
        lambda told: {"root": OTHERS.root, "seat": OTHERS.seat("carol")},
        OutcomesDifferError,
        "^S0 and S1: have signed different outcomes of round 1: root is",
    ),
    "a list without the client": (
        lambda told: {"root": OTHERS.root, "seat": None, "excluded": "only_s1"},
        OutcomesDifferError,
        "^S0 and S1: have signed different outcomes of round 1: root is",
    ),
    "nobody, and a list": (
        lambda told: {"participants": 0, "seat": None},
        PeerViolationError,
        "with a list of clients although nobody is in its sum",
    ),
}


@in_turn("name", LIES)
async def test_a_statement_that_proves_nothing_is_refused_by_name(name: str) -> None:
    lie, kind, expected = LIES[name]
    async with (
        simulate(TASK, model(), seed=1) as network,
        network.client("anna") as anna,
        network.client("ben") as ben,
        meddled(network.client("carol"), incoming=forging(network, lie, LIAR)) as carol,
    ):
        await all_take_part(anna, ben, carol)
        assert (await network.finish_round()).clients == ("anna", "ben", "carol")
        with pytest.raises(kind, match=expected) as caught:
            await carol.outcome()
        assert caught.value.in_doubt == 1


async def test_all_clients_are_told_of_one_list_and_each_of_its_own_place() -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("anna") as anna, network.client("ben") as ben:
        await all_take_part(anna, ben)
        await network.finish_round()
        told = [await client.outcome() for client in (anna, ben)]
    assert told[0].root == told[1].root != root_of_nobody()
    assert all(outcome.counted for outcome in told)
