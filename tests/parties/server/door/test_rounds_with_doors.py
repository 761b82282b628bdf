"""Rounds through doors that die at every step, and cores that do: nothing acknowledged is lost, sums stay exact."""

import pytest
import trio

from fsl_async.errors import StorageError
from fsl_async.wire.door_messages import Begin, Deposited
from parties.storage.blobs.memory import MemoryBlobs
from tests.support.doored import doored
from tests.support.shop import assert_exact, opened, take_part


def carried_by(config, server):
    """A client whose public part that server carries."""
    return next(name for name in ("anna", "bob", "carl", "dora", "eve", "fred") if config.carrier(name) == server)


async def replaced(house, index):
    """The door at S0 or S1 dies; later there is another one."""
    await house.kill_door(index, "door-1")
    await trio.sleep(2)
    await house.open_door(index, "door-9", address=f"S{index}")


def dying_at(house, kind, *, before):
    """Let door-1 of S0 die when it says something of that kind to its core, or when it has heard the answer."""
    door, died = house.opened["door-1 of 0"], trio.Event()
    call = door.core.call

    async def dying(number, message):
        if not isinstance(message, kind) or died.is_set():
            return await call(number, message)
        if not before:
            await call(number, message)
        died.set()
        house.nursery.start_soon(replaced, house, 0)
        await trio.sleep_forever()
        return None

    door.core.call = dying
    return died


@pytest.mark.parametrize(
    ("kind", "before"),
    [(Begin, True), (Begin, False), (Deposited, True), (Deposited, False)],
    ids=["before-it-is-granted", "while-it-comes", "after-it-is-put", "before-the-receipt-is-sent"],
)
async def test_a_door_dies_while_a_submission_is_with_it(autojump_clock, kind, before):
    async with doored((1, 1)) as house:
        config = (await house.servers[0].next_round(0)).config
        name = carried_by(config, 0)
        others = [other for other in ("anna", "bob", "carl") if other != name][:2]
        async with opened(*(house.client(each) for each in (name, *others))) as clients:
            died = dying_at(house, kind, before=before)
            for client in clients:
                await take_part(client, retrieves=False)
            assert died.is_set()
            outcome = await house.finish_round()
            assert_exact(outcome, name, *others)
            for client in clients:
                assert (await client.outcome()).counted
        await trio.sleep(1)
        status = house.servers[0].status()
        assert [(door.name, door.clients) for door in status.doors] == [("door-9", 0)]


async def test_a_core_is_started_again_under_its_doors(autojump_clock):
    async with doored((1, 1)) as house:
        async with opened(house.client("anna"), house.client("bob"), house.client("carl")) as clients:
            await take_part(clients[0])
            await take_part(clients[1])
            await house.kill_core(0)
            await trio.sleep(5)
            await house.open_core(0)
            await take_part(clients[2], wait=True)
            await trio.sleep(20)
            outcome = await house.finish_round()
            assert_exact(outcome, "anna", "bob", "carl")
            for client in clients:
                assert (await client.outcome()).counted
        await trio.sleep(1)
        assert house.servers[0].status().doors[0].clients == 0


async def test_the_other_core_is_started_again_and_gets_what_it_lacks(autojump_clock):
    async with (
        doored((1, 1)) as house,
        opened(house.client("anna"), house.client("bob"), house.client("carl")) as clients,
    ):
        for client in clients:
            await take_part(client)
        await house.kill_core(1)
        for blob in await house.blobs[1].names(""):  # all that was on loan is gone
            if "/parts/" in blob and "submit" in blob:
                name = blob.split("/")[2]
                if house.servers[0].running.config.carrier(name) == 0:
                    await house.blobs[1].erase(blob)
        await trio.sleep(5)
        await house.open_core(1)
        await trio.sleep(30)
        outcome = await house.finish_round()
        assert_exact(outcome, "anna", "bob", "carl")


async def test_two_doors_that_hold_one_client(autojump_clock):
    """A client that comes back through another door, while the first still holds its connection."""
    async with doored((2, 2)) as house:
        through = ("S0/door-2", "S1/door-2")
        twice = house.client("anna"), house.client("bob"), house.client("anna", through=through)
        async with opened(*twice) as (anna, bob, again):
            await take_part(anna)
            await again.retrieve({"head": ...}, wait=False)
            await take_part(bob)
            status = house.servers[0].status().doors
            assert [door.clients for door in status] == [2, 1]
            outcome = await house.finish_round()
            assert_exact(outcome, "anna", "bob")


async def test_a_door_without_its_blobs_tells_clients_to_come_back(autojump_clock):
    class Full(MemoryBlobs):
        async def put(self, name, *pieces, durable=True):
            if full.is_set():
                raise StorageError("the disk is full")
            await inner.put(name, *pieces, durable=durable)

        async def read(self, name, start=0, stop=None):
            return await inner.read(name, start, stop)

        async def size(self, name):
            return await inner.size(name)

    full = trio.Event()
    full.set()
    async with doored((1, 1)) as house:
        inner = house.blobs[0]
        await house.kill_door(0, "door-1")
        await house.open_door(0, "door-1", blobs=Full())
        config = (await house.servers[0].next_round(0)).config
        name = carried_by(config, 0)
        other = next(each for each in ("anna", "bob") if each != name)
        async with opened(house.client(name), house.client(other)) as clients:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take_part, clients[0])
                await trio.sleep(10)
                full = trio.Event()
            await take_part(clients[1])
            outcome = await house.finish_round()
            assert_exact(outcome, name, other)


async def test_rounds_follow_each_other_and_blobs_go_with_them(autojump_clock):
    async with doored((1, 2)) as house, opened(house.client("anna"), house.client("bob")) as clients:
        for number in range(1, 4):
            for client in clients:
                await take_part(client, wait=True)
            assert_exact(await house.finish_round(), "anna", "bob")
            await trio.sleep(1)
            for blobs in house.blobs:
                assert not [blob for blob in await blobs.names("") if blob.startswith(f"round-{number:08}/")]
