"""When the servers meet again each says which parts it holds: only the others are forwarded again."""

from collections import Counter
from contextlib import asynccontextmanager

import pytest
import trio

from fsl_async.errors import PeerViolationError, leaves
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Forward, HeldParts, Message
from fsl_async.wire.peer_lists import MARK_BYTES, mark_of, packed_marks, read_marks
from tests.support.shop import TASK, Shop, all_take_part, assert_exact, opened

NAMES = [f"client {number}" for number in range(30)]
CROWD = 100_000


class Between:
    """What S0 and S1 say to each other, seen on S1's side of the link; what S0 says can be changed there."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.shop = Shop.meddled(nursery, incoming=self.said_by_s0, outgoing=self.pass_on)
        self.forwarded: Counter[tuple[str, str, int]] = Counter()
        self.said: list[str] = []
        self.marks: bytes | None = None

    async def pass_on(self, address: str, message: Message, data: bytes) -> bytes | None:
        self.said.append(type(message).__name__)
        if isinstance(message, Forward):
            self.forwarded[message.client, message.purpose, message.query] += 1
        return data

    async def said_by_s0(self, address: str, message: Message, data: bytes) -> bytes | None:
        data = await self.pass_on(address, message, data)
        if isinstance(message, HeldParts) and self.marks is not None:
            return b"".join(map(bytes, encode(message, self.marks)))
        return data

    async def meet_again(self) -> None:
        self.said.clear()
        await self.shop.link.aclose()
        await trio.sleep(30)

    def by_carrier(self) -> tuple[set[int], set[int]]:
        """How often each server has forwarded a part of its clients."""
        config = self.shop.servers[0].running.config
        found: tuple[set[int], set[int]] = (set(), set())
        for (client, *_), times in self.forwarded.items():
            found[config.carrier(client)].add(times)
        return found


@asynccontextmanager
async def after_two(nursery):
    """In a round that is on a client of either carrier has taken part, and others are about to."""
    between = Between(nursery)
    await between.shop.open()
    config = (await between.shop.servers[0].next_round(0)).config
    by_carrier = sorted(NAMES, key=config.carrier)
    names = [by_carrier[0], by_carrier[-1], *by_carrier[1:3]]
    async with opened(*map(between.shop.client, names)) as clients:
        await all_take_part(*clients[:2])
        assert set(between.forwarded.values()) == {1}
        yield between, clients


async def exact(between, clients) -> None:
    await all_take_part(*clients[2:])
    with trio.fail_after(300):
        assert_exact(await between.shop.finish_round(), *(client.name for client in clients))
    assert between.shop.failures == []


async def test_what_the_other_server_holds_is_not_forwarded_again(nursery, autojump_clock):
    async with after_two(nursery) as (between, clients):
        await between.meet_again()
        assert between.said.count("Known") == between.said.count("HeldParts") == 2
        assert set(between.forwarded.values()) == {1}
        await exact(between, clients)
        assert set(between.forwarded.values()) == {1}


async def test_what_is_not_said_to_be_held_is_forwarded_again_once_on_a_connection(nursery, autojump_clock):
    async with after_two(nursery) as (between, clients):
        between.marks = bytes(MARK_BYTES)  # a stranger's
        await between.meet_again()
        again = between.by_carrier()
        assert again[1] == {2}, "S1 forwards all of its own once more"
        assert again[0] <= {1}
        for server in between.shop.servers:
            await server.running.take_message(HeldParts(server.running.round_id), memoryview(b""))
            await server.running.peer_is_at(b"")
        await trio.sleep(30)
        assert between.by_carrier() == again
        await exact(between, clients)


@pytest.mark.parametrize("marks", [b"x" * 15, bytes((2 * TASK.max_clients + 1) * MARK_BYTES)], ids=["cut", "many"])
async def test_what_is_no_list_of_marks_ends_the_server_with_the_peer_s_name(nursery, autojump_clock, marks):
    async with after_two(nursery) as (between, _):
        between.marks = marks
        await between.shop.link.aclose()
        with trio.fail_after(60):
            await between.shop.failed.wait()
        (violation,) = leaves(between.shop.failures[0])
        assert isinstance(violation, PeerViolationError)
        assert "which parts it holds" in str(violation)
        nursery.cancel_scope.cancel()


def test_the_marks_of_a_crowd_are_whole_and_few():
    parts = [mark_of(f"client {number}", "submit", 0, bytes(32)) for number in range(CROWD)]
    packed = packed_marks([*parts, *parts], CROWD)
    assert len(packed) == CROWD * MARK_BYTES
    assert read_marks(packed, CROWD, "S1") == set(parts)
    assert len(packed_marks(parts, CROWD // 10)) == 2 * CROWD // 10 * MARK_BYTES
    assert read_marks(packed_marks(parts, CROWD // 10), CROWD // 10, "S1") < set(parts)


def test_a_mark_is_of_one_part_of_one_request_of_one_client():
    one = ("anna", "submit", 0, bytes(32))
    others = [("ben", *one[1:]), ("anna", "retrieve", 0, bytes(32)), ("anna", "submit", 1, bytes(32))]
    assert len({mark_of(*one), *(mark_of(*other) for other in others), mark_of(*one[:3], b"x" * 32)}) == 5
