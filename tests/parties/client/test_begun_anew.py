"""Servers that have begun anew, or were put back, and a client that remembers more than they do: it says so at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Enter, Message, Opened
from parties import BeganAnewError, Client, simulate
from parties.commands.report import ExitCode, exit_code
from parties.errors import OutcomeUnknownError
from parties.storage.store import MemoryStore
from tests.support.shop import TASK, Shop, assert_exact, honest_round, interrupt_submissions, meddled, model, take_part


@asynccontextmanager
async def servers(like: Shop | None = None) -> AsyncIterator[Shop]:
    """Two servers with empty stores; with the keys of others, if those are given."""
    async with trio.open_nursery() as nursery:
        shop = Shop.in_memory(nursery)
        if like:
            shop.identities, shop.known, shop.registry = like.identities, like.known, like.registry
        await shop.open()
        yield shop
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("submits", [True, False], ids=["having submitted", "having retrieved"])
async def test_a_client_that_remembers_a_lost_round_says_how_to_forget_it(
    submits: bool, autojump_clock: trio.abc.Clock
) -> None:
    store = MemoryStore()
    async with servers() as first:
        for _ in range(3):
            await others(first)
            async with client_of(first, store) as carol:
                await (take_part(carol) if submits else carol.retrieve({"items": [1]}))
            await first.finish_round()
    async with servers(like=first) as second, client_of(second, store) as carol:
        calls = (lambda: carol.retrieve({"items": [1]}), lambda: carol.submit({}), lambda: carol.submit({}, wait=True))
        for call in calls:
            with pytest.raises(BeganAnewError, match=r"neither server knows round 3, .*`forget_rounds`") as caught:
                await call()
            assert exit_code(caught.value) == ExitCode.MISUSE
        await carol.forget_rounds()
        await take_part(carol, again=True)
        await others(second)
        assert_exact(await second.finish_round(), "anna", "ben", "carol")
        assert (await carol.outcome()).counted


async def test_a_submission_that_was_pending_is_first_told_to_be_in_doubt(autojump_clock: trio.abc.Clock) -> None:
    store = MemoryStore()
    async with servers() as first, client_of(first, store, watch=interrupt_submissions) as carol:
        with pytest.raises(KeyboardInterrupt):
            await carol.submit({})
    async with servers(like=first) as second, client_of(second, store) as carol:
        with pytest.raises(OutcomeUnknownError) as caught:
            await carol.submit({})
        assert caught.value.in_doubt == 1
        with pytest.raises(BeganAnewError):
            await carol.submit({})


def client_of(shop: Shop, store: MemoryStore, **more: Any) -> Client:
    return shop.client("carol", store=store, **more)


async def others(shop: Shop) -> None:
    for name in ("anna", "ben"):
        async with shop.client(name) as client:
            await take_part(client)


@pytest.mark.parametrize("server", ["S0", "S1"])
async def test_one_server_that_knows_less_is_named_and_not_believed(
    server: str, autojump_clock: trio.abc.Clock
) -> None:
    async def forgets(address: str, message: Message, data: bytes) -> bytes:
        if address == server and isinstance(message, Enter) and message.known:
            return b"".join(encode(Enter(message.after, bytes(32))))
        return data

    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), outgoing=forgets) as carol:
        await take_part(carol)
        await honest_round(network, "carol")
        with pytest.raises(PeerViolationError, match=f"{server}: does not know round 1 any more") as caught:
            await carol.submit({})
        assert not isinstance(caught.value, MisuseError)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_round_that_comes_again_is_refused(number: int, autojump_clock: trio.abc.Clock) -> None:
    """The same number, or a lower one, and another configuration."""

    async def again(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Opened) and RoundConfig.parse(message.config, address).number > 2:
            config = RoundConfig.parse(message.config, address)
            config = msgspec.structs.replace(config, number=number, session=number)
            return b"".join(encode(Opened(config.canonical())))
        return data

    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), incoming=again) as carol:
        for _ in range(2):
            await take_part(carol)
            await honest_round(network, "carol")
        with pytest.raises(PeerViolationError, match=rf"S\d: announces a round {number} that .* after round 2"):
            await carol.submit({})
