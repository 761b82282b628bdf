"""The link between the servers: it breaks at each message and heals; what a false peer says over it ends the server."""

import itertools
from dataclasses import dataclass, field, replace

import pytest
import trio

from fsl_async.errors import FslError, PeerViolationError, leaves
from fsl_async.wire.messages import Forward, Known, Message, Share
from parties.events import PeerLost, ServerEvent
from parties.server.setup import ServerSetup
from tests.support.cases import sides
from tests.support.shop import Meddler, Shop, all_take_part, assert_exact, opened, take_part
from transport import TcpTransport

PEER_MESSAGES = ["TossCommitment", "TossReveal", "Forward", "RosterList", "Proofs", "Commitment", "Share", "Conclusion"]


@pytest.mark.parametrize(("lost", "direction"), sides(PEER_MESSAGES, ("outgoing", "incoming")))
@pytest.mark.parametrize("occurrence", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_the_link_between_the_servers_breaks_and_heals(nursery, autojump_clock, lost, direction, occurrence):
    """Lose one message with the connection that carried it, in the first or the second round: both rounds are exact.

    Chance says who carries a submission: where one server carries all of them, a third round brings what is to be lost.
    """
    seen: list[Message] = []

    async def break_link(address: str, message: Message, data: bytes) -> bytes | None:
        if type(message).__name__ == lost:
            seen.append(message)
            if len(seen) == occurrence:
                await shop.link.inner.aclose()
                return None
        return data

    shop = await Shop.meddled(nursery, **{direction: break_link}).open()
    names = ("anna", "ben", "carol", "dora", "emil")
    with trio.fail_after(300):
        async with opened(*map(shop.client, names)) as clients:
            for number in itertools.count(1):
                await all_take_part(*clients)
                assert_exact(await shop.finish_round(), *names)
                if number >= 2 and len(seen) >= occurrence:
                    break
    assert len(shop.transports[1].channels) == 2
    assert shop.failures == []


async def test_the_link_heals_over_tcp_too(nursery):
    meddler = Meddler(TcpTransport())
    shop = await Shop(nursery, transports=(TcpTransport(), meddler)).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as (anna, ben):
        await take_part(anna)
        await meddler.channels[-1].aclose()
        await take_part(ben)
        assert_exact(await shop.finish_round(), "anna", "ben")
    assert len(meddler.channels) == 2
    assert shop.failures == []


async def test_an_abort_that_is_lost_with_the_link_is_repeated(nursery, autojump_clock):
    losses = itertools.count()

    async def break_link(address: str, message: Message, data: bytes) -> bytes | None:
        if type(message).__name__ in ("Abort", "RosterList") and next(losses) < 2:
            await shop.link.inner.aclose()
            return None
        return data

    shop = await Shop.meddled(nursery, outgoing=break_link, incoming=break_link).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as (anna, ben):
        await take_part(anna)
        with pytest.raises(FslError, match="at least 2 are needed"), trio.fail_after(300):
            await shop.finish_round()
        await all_take_part(anna, ben)
        with trio.fail_after(300):
            assert_exact(await shop.finish_round(), "anna", "ben")
    assert shop.failures == []


@dataclass
class ToldShop(Shop):
    """Has what each server was told of why it lost the other one."""

    told: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def setup_of(self, index: int) -> ServerSetup:
        def note(event: ServerEvent) -> None:
            if isinstance(event, PeerLost):
                self.told[index].append(event.explanation)

        return replace(super().setup_of(index), observe=note)


@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
async def test_a_server_hears_which_rule_it_broke(nursery, autojump_clock, direction):
    seen = itertools.count()

    async def garble(address: str, message: Message, data: bytes) -> bytes:
        return b"garbled" if isinstance(message, Known) and not next(seen) else data

    shop = await ToldShop.meddled(nursery, **{direction: garble}).open()
    await trio.sleep(30)
    hears = int(direction == "outgoing")
    assert shop.told[hears][0].startswith(f"S{1 - hears} says: sent a message that cannot be read")
    assert len(shop.failures) == 1 - hears, "S0 goes on; S1 ends, which dials nobody that it does not understand"


async def test_a_server_that_stops_as_planned_says_so_on_each_connection_and_until_it_is_met_again(
    nursery, autojump_clock
):
    shop = await ToldShop.meddled(nursery).open()
    await shop.servers[0].next_round(0)
    await shop.servers[1].wind_up(0)
    for _ in range(2):
        await trio.sleep(30)
        status = shop.servers[0].status()
        assert status.peer_connected
        assert status.peer_away_since is None
        assert status.peer_stops_since == pytest.approx(trio.current_time() - 30, abs=1)
        assert "; S1 stops as planned, since 1970-01-01T" in status.waiting_for
        await shop.link.aclose()
    await trio.sleep(1)
    assert shop.told == (["S1 says: S1 stops, as its operator wants"] * 2, ["the connection has ended"] * 2)
    await shop.servers[0].peer_inbox.peer_met()
    assert shop.servers[0].status().peer_stops_since is None
    assert shop.servers[0].status().peer_away_since is None


async def test_a_peer_that_does_not_follow_the_protocol_ends_the_server_with_its_name(nursery, autojump_clock):
    """A share that does not match its commitment halts, and the error says whose it was; so does the last message."""

    async def lie(address: str, message: Message, data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if isinstance(message, Share) else data

    shop = await ToldShop.meddled(nursery, incoming=lie).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as clients:
        await all_take_part(*clients)
        nursery.start_soon(shop.servers[0].close_round)
        with trio.fail_after(60):
            await shop.failed.wait()
    (violation,) = leaves(shop.failures[0])
    assert isinstance(violation, PeerViolationError)
    assert violation.peer == "S0"
    assert "does not match its commitment" in str(violation)
    await trio.sleep(1)
    assert "does not match its commitment" in shop.told[0][0]
    nursery.cancel_scope.cancel()


async def test_a_forwarded_part_that_the_carrier_changed_is_refused_to_its_client(nursery, autojump_clock):
    """The other server has the digest from the client itself: a carrier cannot add anything to a hint unseen."""

    async def change(address: str, message: Message, data: bytes) -> bytes:
        tampered = isinstance(message, Forward) and message.purpose == "submit"
        return data[:-1] + bytes([data[-1] ^ 1]) if tampered else data

    shop = await Shop.meddled(nursery, incoming=change, outgoing=change).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as clients:
        for client in clients:
            with pytest.raises(FslError, match="is not the one you announced"):
                await take_part(client)
        with pytest.raises(FslError, match="no clients are in with both servers"):
            await shop.finish_round()
