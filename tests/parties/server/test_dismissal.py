"""Clients that are taken off a server's list while they are connected are told why and disconnected; nobody else is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from parties.events import ConnectionFailed, Enrolled, ServerEvent
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.server.admission import Anyone
from parties.settings.lists import add_clients, revoke_client
from tests.support.hand_made import connected, reply
from tests.support.shop import Basket, Shop, all_take_part, assert_exact, opened, take_part
from transport import RefusedError

NAMES = ("anna", "ben", "carl")
MOMENT = 3.0


@dataclass
class Watched(Shop):
    """A shop in memory whose clients stand in a file that both servers read, and what S0 and S1 tell."""

    path: Path = Path()
    events: tuple[list[ServerEvent], list[ServerEvent]] = field(default_factory=lambda: ([], []))

    def setup_of(self, index):
        return replace(super().setup_of(index), observe=self.events[index].append)

    def revoke(self, name: str) -> None:
        """Have both servers take note that a client was revoked."""
        revoke_client(self.path, name)
        for server in self.servers:
            server.enrolment.reload(Registry.load(self.path))

    def told(self, kind: type[ServerEvent]) -> list[ServerEvent]:
        """What S0 told, of one kind."""
        return [event for event in self.events[0] if isinstance(event, kind)]


@pytest.fixture
async def shop(nursery, tmp_path) -> Watched:
    known = {name: Identity.generate(name) for name in NAMES}
    path = tmp_path / "clients.toml"
    add_clients(path, [identity.public for identity in known.values()])
    shop = Watched.in_memory(nursery, registry=Registry.load(path), path=path)
    shop.known = known
    return await shop.open()


@contextmanager
def told_that_it_was_revoked() -> Iterator[None]:
    with (
        trio.fail_after(MOMENT),
        pytest.raises(RefusedError, match=r"of 'anna' was revoked at \d{4}.*ask S.'s operator"),
    ):
        yield


async def test_a_connected_client_that_is_revoked_is_let_go_and_told_why_at_its_next_call(shop, autojump_clock):
    async with opened(*map(shop.client, NAMES)) as (anna, ben, carl):
        for client in (anna, ben, carl):
            await client.retrieve({"items": Basket(client.name).rows})
        shop.revoke("anna")
        await trio.sleep(MOMENT)
        assert [server.visitors for server in shop.servers] == [2, 2]
        (failed,) = shop.told(ConnectionFailed)
        assert failed.kind == "DismissedError"
        assert "'anna' is disconnected" in failed.explanation
        assert "was revoked" in failed.explanation
        with told_that_it_was_revoked():
            await anna.submit(Basket("anna").update)
        await all_take_part(ben, carl)
    assert_exact(await shop.finish_round(), "ben", "carl")
    assert shop.failures == []


async def test_one_that_waits_for_an_answer_is_told_at_once(shop, autojump_clock):
    """Also without a second call: it connects anew to ask again, and is refused with the reason."""
    async with opened(*map(shop.client, NAMES)) as (anna, ben, carl):
        await all_take_part(anna, ben, carl)
        async with trio.open_nursery() as waiting:

            async def wait() -> None:
                with told_that_it_was_revoked():
                    await anna.outcome()
                waiting.cancel_scope.cancel()

            waiting.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            shop.revoke("anna")
            await trio.sleep(MOMENT + 1)


async def test_who_is_let_go_hears_why(shop, autojump_clock):
    async with connected(shop.client("anna"), 0) as channel:
        shop.revoke("anna")
        told = await reply(channel)
    assert (told.reason, told.retry_after) == ("busy", 0)
    assert told.explanation.startswith("'anna' is disconnected: ")
    assert "was revoked" in told.explanation


async def test_what_was_acknowledged_before_counts(shop, autojump_clock):
    async with opened(*map(shop.client, NAMES)) as (anna, ben, carl):
        await all_take_part(anna, ben, carl)
        shop.revoke("anna")
        await trio.sleep(MOMENT)
        assert_exact(await shop.finish_round(), *NAMES)
        await all_take_part(ben, carl)
        with told_that_it_was_revoked():
            await take_part(anna)
    assert_exact(await shop.finish_round(), "ben", "carl")
    assert shop.failures == []


async def test_on_one_list_alone_a_client_is_let_go_by_that_server_alone(shop, autojump_clock):
    async with opened(*map(shop.client, NAMES)) as (anna, ben, carl):
        await anna.retrieve({"items": [1]})
        shop.servers[1].enrolment.reload(Registry())
        await trio.sleep(1)
        assert [server.visitors for server in shop.servers] == [3, 0]
        for client in (anna, ben, carl):
            with pytest.raises(RefusedError, match="not on S1's list"):
                await take_part(client)


async def test_an_enrolment_is_told_once_it_is_kept(nursery, autojump_clock):
    shop = Watched.in_memory(nursery)
    base = shop.setup_of
    shop.setup_of = lambda index: replace(base(index), policy=Anyone(), registry=Registry())
    await shop.open()
    async with opened(shop.client("dora")):
        assert await shop.servers[0].setup.store.entries("enrolment")
    async with opened(shop.client("dora")):
        key = shop.known["dora"].public.channel.hex()[:16]
        assert shop.told(Enrolled) == [Enrolled(client="dora", key=key)]
