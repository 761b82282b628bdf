"""Servers whose clients come to doors: rounds are exact, limits hold over all doors, and what ends is forgotten."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter
from contextlib import suppress

import msgspec
import pytest
import trio
import trio.lowlevel

from fsl_async.error_groups import sole_error
from fsl_async.errors import ChannelError, MisuseError, PeerViolationError, StorageError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_messages import (
    AdmitKey,
    Admitted,
    Ask,
    Begin,
    Deposited,
    DoorHello,
    Granted,
    Kept,
    Leave,
    NotYet,
    Offer,
    Withdraw,
)
from fsl_async.wire.forward_messages import FromKeeper, OfferPart, PartFollows, PartWanted, forwarding
from fsl_async.wire.messages import AskOutcome, Enter, Receipt
from fsl_async.wire.public_part import Layout, Trees
from parties.events import DoorLost, DoorMet, Warned
from parties.identity.credentials import Credentials
from parties.identity.keys import Identity
from parties.identity.link_proofs import link_payload
from parties.identity.registry import Registry
from parties.server.doors.desk import CoreDesk
from parties.server.doors.session import DoorSession
from parties.server.limits import ConversationLimits
from parties.server.round.quota import Counted
from parties.server.store_layout import RequestKey, part_name
from parties.storage.blobs.memory import MemoryBlobs
from tests.support.doored import core_address, dial_as_client, doored, retrieve_anew
from tests.support.hand_core import bundle
from tests.support.hand_made import reply, retrieval, submission
from tests.support.shop import assert_exact, opened, take_part
from transport import BusyError, HandshakeSettings, Kind, RefusedError, Role, RoleMismatchError, Service


def counted_of(run):
    """By client, kind and object, how many requests count in a round, where there are any."""
    counts = run.quota._counts.items()
    return Counter({(name, *kind): count for kind, each in counts for name, count in each.items() if count})


@pytest.mark.parametrize("doors", [(1, 1), (2, 0), (0, 2), (2, 2)])
async def test_a_round_through_doors_is_exact(doors, autojump_clock):
    async with doored(doors) as house:
        async with opened(house.client("anna"), house.client("ben"), house.client("carol")) as clients:
            for client in clients:
                await take_part(client)
            outcome = await house.finish_round()
            assert_exact(outcome, "anna", "ben", "carol")
            for client in clients:
                assert (await client.outcome()).counted
        status = house.servers[0].status()
        assert status.doors is None if not doors[0] else len(status.doors) == doors[0]


async def test_a_door_of_another_release_task_or_server_is_refused_by_name(autojump_clock):
    async with doored() as house:
        other = msgspec.structs.replace(house.task, name="another shop")
        wrong = {
            r"S0 runs release '', this door '0\.9'": {"release": "0.9"},
            "S0 serves task 'shop', whose digest is [0-9a-f]{16}…, and this door a task of digest": {"task": other},
        }
        for words, changes in wrong.items():
            with pytest.raises(MisuseError, match=words):
                await house.door(0, "door-9", **changes).run()
        stranger = Identity.generate("mallory", house.randomness("mallory"))
        keys = {"channel_secret": stranger.channel_secret, "channel": house.identities[0].public.channel}
        with pytest.raises(MisuseError, match="this is where S0 takes its own doors, which hold its channel key"):
            await house.door(0, "door-9", **keys).run()
        assert [door.name for door in house.servers[0].status().doors] == ["door-1"]


@pytest.mark.parametrize("role", [Role.CLIENT, Role.SERVER_1, Role.DOOR_1])
async def test_nobody_else_reaches_the_cores_address(role, autojump_clock):
    """Not even the holder of the server's key, in a role that is not its door's; nor a client's key in a door's."""
    async with doored() as house:
        anna = Identity.generate("anna", house.randomness("anna"))
        house.registry.add(anna.public)
        core = house.identities[0]
        for secret in (anna.channel_secret, house.identities[1].channel_secret, core.channel_secret):
            own = HandshakeSettings(secret, role, Kind.SIMULATION, house.randomness("nonce"))
            with pytest.raises(RoleMismatchError):
                await house.network.dial(core_address(0), core.public.channel, own)
        stolen = HandshakeSettings(anna.channel_secret, Role.DOOR_0, Kind.SIMULATION, house.randomness("nonce"))
        with pytest.raises(RefusedError, match="this is where S0 takes its own doors"):
            await house.network.dial(core_address(0), core.public.channel, stolen)


async def test_a_door_is_not_taken_where_clients_are(autojump_clock):
    async with doored((0, 0)) as house:
        core = house.identities[0]
        own = HandshakeSettings(core.channel_secret, Role.DOOR_0, Kind.SIMULATION, house.randomness("nonce"))
        with pytest.raises(RoleMismatchError):
            await house.network.dial("S0", core.public.channel, own)


async def test_the_newer_of_two_doors_of_one_name_stays(autojump_clock):
    async with doored() as house:
        anna = house.client("anna")
        async with opened(anna):
            older = house.opened["door-1 of 0"]
            newer = await house.open_door(0, "door-1", address="S0/again")
            await trio.lowlevel.checkpoint()
            assert newer.core.connected
            assert len(house.told(DoorMet)) >= 3
            house.scopes["door-1 of 0"].cancel()
        assert older is not newer


def with_the_key_of(house, index, payload):
    """What somebody says who has taken a door's keys: the server's channel key, and not the one that signs."""
    role = Role.SERVER_0 if index == 0 else Role.SERVER_1
    secret = house.identities[index].channel_secret
    return HandshakeSettings(secret, role, Kind.SIMULATION, house.randomness("thief"), payload)


async def test_a_doors_key_alone_does_not_link_to_the_other_server(autojump_clock):
    """The doors of S1 have its channel key; S0 takes S1 itself for S1, and its link stays."""
    async with doored() as house:
        await trio.sleep(1)
        task, server = house.task.digest(), house.identities[0].public.channel
        others = link_payload(house.identities[0], house.identities[1].public, task)
        for payload in (task, task + bytes(64), others):
            with pytest.raises(RefusedError, match="has not signed as S1"):
                await house.network.dial("link", server, with_the_key_of(house, 1, payload))
        assert all(one.status().peer_connected for one in house.servers)
        own = link_payload(house.identities[1], house.identities[0].public, task)
        async with await house.network.dial("link", server, with_the_key_of(house, 1, own)):
            pass


async def test_a_doors_key_alone_is_not_linked_to(autojump_clock):
    """Somebody with the key of S0's doors listens where S1 looks for S0: S1 says nothing to him of a round."""
    async with doored() as house:
        await house.kill_core(0)
        heard, warned = [], []

        async def admit(key, payload):
            return b"peer"

        async def listen(channel):
            heard.append(channel)
            with suppress(ChannelError):
                heard.append(await channel.receive(10**6))

        thief = Service(with_the_key_of(house, 0, house.task.digest()), admit, listen, observe=lambda *told: None)
        house.nursery.start_soon(house.network.listen, "link", thief)
        await trio.sleep(30)
        assert heard
        assert not any(isinstance(said, bytearray) for said in heard)
        assert not house.servers[1].status().peer_connected
        warned = [told for told in house.told(Warned) if "has not signed as S0" in told.explanation]
        assert len(warned) == 1


# ---- limits


async def test_a_key_has_its_places_over_all_doors(autojump_clock):
    """Four connections of one key, however many doors there are; a place is free when its connection ends."""
    async with doored((2, 0)) as house:
        other = ("S0/door-2", "S1")
        clients = [house.client("anna", through=other if number % 2 else None) for number in range(4)]
        async with opened(*clients):
            assert house.servers[0].visitors == 4
            with pytest.raises(BusyError, match="4 connections with this key are open already, over all doors"):
                await dial_as_client(house, "anna", "S0/door-2")
            await clients[0].aclose()
            await trio.sleep(0.1)
            async with await dial_as_client(house, "anna", "S0"):
                assert house.servers[0].visitors == 4
            await trio.sleep(0.1)
            assert house.servers[0].visitors == 3


async def test_what_a_client_may_ask_for_is_counted_over_all_doors(autojump_clock):
    async with doored((2, 0)) as house, opened(house.client("anna")) as (anna,):
        await take_part(anna)
        run = house.servers[0].running
        over = [await dial_as_client(house, "anna", address) for address in ("S0", "S0/door-2")]
        replies = [await retrieve_anew(channel, run, 2 + number) for number, channel in enumerate(over)]
        assert [reply.reason for reply in replies] == ["malformed", "malformed"]
        counted = counted_of(run)["anna", Counted.RETRIEVAL, ""]
        assert counted == 3
        for channel in over:
            await channel.aclose()


async def test_a_dismissed_client_is_disconnected_from_its_door(autojump_clock):
    async with doored() as house, opened(house.client("anna")) as (anna,):
        await take_part(anna)
        assert house.servers[0].visitors == 1
        for server in house.servers:
            server.enrolment.reload(Registry())
        await trio.sleep(1)
        assert house.servers[0].visitors == 0
        assert house.servers[0].status().doors[0].clients == 0


# ---- who ends


@pytest.mark.parametrize("ends", ["door-1 of 0", "door-1 of 1", "core 0", "core 1"])
async def test_whoever_is_killed_nothing_that_was_acknowledged_is_lost(ends, autojump_clock):
    async with doored((1, 1)) as house, opened(house.client("anna"), house.client("ben")) as (anna, ben):
        await take_part(anna)
        index = int(ends[-1])
        await (house.kill_core(index) if ends.startswith("core") else house.kill_door(index, "door-1"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_part, ben)
            await trio.sleep(1)
            await (house.open_core(index) if ends.startswith("core") else house.open_door(index, "door-1"))
        outcome = await house.finish_round()
        assert_exact(outcome, "anna", "ben")
        assert (await anna.outcome()).counted
    assert not house.failures


async def test_a_killed_door_gives_its_clients_places_back_and_counts_nothing_against_them(autojump_clock):
    async with doored((2, 0)) as house, opened(house.client("anna")) as (anna,):
        await take_part(anna)
        run = house.servers[0].running
        counts = counted_of(run)
        await house.kill_door(0, "door-1")
        assert house.servers[0].visitors == 0
        assert house.servers[0].status().doors[0].name == "door-2"
        assert counted_of(run) == counts
        (lost,) = house.told(DoorLost)
        assert (lost.door, lost.clients) == ("door-1", 1)


class SlowBlobs(MemoryBlobs):
    """Blobs whose next put waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.go = trio.Event(), trio.Event()

    async def put(self, name, *pieces, durable=True):
        self.waits.set()
        await self.go.wait()
        await super().put(name, *pieces, durable=durable)


async def test_a_door_that_dies_while_bulk_comes_costs_its_client_nothing(autojump_clock):
    async with (
        doored((1, 1), make_blobs=SlowBlobs) as house,
        opened(house.client("anna"), house.client("ben")) as joined,
    ):
        anna, ben = joined
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_part, anna)
            index = house.servers[0].running.config.carrier("anna")
            await house.blobs[index].waits.wait()
            run = house.servers[index].running
            counts = counted_of(run)
            assert counts["anna", Counted.UNFINISHED, ""] == counts["anna", Counted.RETRIEVAL, ""] == 1
            await house.kill_door(index, "door-1")
            counts = counted_of(run)
            assert counts["anna", Counted.UNFINISHED, ""] == counts["anna", Counted.RETRIEVAL, ""] == 0
            for slow in house.blobs:
                slow.go.set()
            await house.open_door(index, "door-1")
        await take_part(ben)
        assert_exact(await house.finish_round(), "anna", "ben")


async def test_a_door_that_dies_while_a_request_waits_for_its_other_half_costs_its_client_nothing(autojump_clock):
    async with doored() as house:
        config = (await house.servers[1].next_round(0)).config
        name = next(each for each in ("anna", "ben", "carl", "dora") if config.carrier(each) == 0)
        run = house.servers[1].running
        house.client(name)
        for request, kind in (
            (retrieval(config, name), Counted.RETRIEVAL),
            (submission(config, name), Counted.ATTEMPT),
        ):
            channel = await dial_as_client(house, name, "S1")
            await channel.send(*encode(request.messages[1]))
            await trio.sleep(1)
            assert counted_of(run)[name, kind, ""] == 1
            await house.kill_door(1, "door-1")
            assert counted_of(run)[name, kind, ""] == 0
            await house.open_door(1, "door-1")


async def hanging_at_a_door(house, names):
    """One of these clients has brought its submission to S0's first door, whose disk hangs.

    Returns the disk, the client's name, its submission, and its connection.
    """
    disk = SlowBlobs()
    await house.kill_door(0, "door-1")
    await house.open_door(0, "door-1", blobs=disk)
    config = (await house.servers[0].next_round(0)).config
    name = next(each for each in names if config.carrier(each) == 0)
    house.client(name)
    request = submission(config, name)
    channel = await dial_as_client(house, name, "S0")
    await channel.send(*encode(request.messages[0], request.bulk[0]))
    await disk.waits.wait()
    return disk, name, request, channel


async def test_a_door_whose_disk_hangs_does_not_keep_its_client_from_another_door(autojump_clock):
    async with doored((2, 1)) as house:
        hanging, name, request, first = await hanging_at_a_door(house, ("anna", "ben", "carl", "dora"))
        async with await dial_as_client(house, name, "S0/door-2") as second:
            await second.send(*encode(request.messages[0], request.bulk[0]))
            assert (await reply(second)).reason == "busy"
        await trio.sleep(2 * ConversationLimits().message_seconds)
        counts = counted_of(house.servers[0].running)
        assert counts[name, Counted.ATTEMPT, ""] == counts[name, Counted.UNFINISHED, ""] == 0
        async with await dial_as_client(house, name, "S0/door-2") as second:
            await second.send(*encode(request.messages[0], request.bulk[0]))
            assert isinstance(await reply(second), Receipt)
        hanging.go.set()
        assert (await reply(first)).reason == "busy"


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "client gone"])
async def test_what_a_door_puts_after_its_round_is_over_is_erased(is_told, autojump_clock):
    """At once, or with the end of the next round where the core hears nothing of it."""
    async with doored((2, 0)) as house:
        hanging, name, _, late = await hanging_at_a_door(house, ("carl", "dora", "emma", "fred"))
        others = (house.client(each, through=("S0/door-2", "S1")) for each in ("anna", "ben"))
        async with opened(*others) as clients:
            for client in clients:
                await take_part(client)
            await house.finish_round()
            left = part_name("round-00000001", RequestKey(name, "submit", 0), b"late" * 8)
            await house.blobs[0].put(left, b"what is put late")
            if is_told:
                hanging.go.set()
                assert (await reply(late)).reason == "round-closed"
            else:
                await late.aclose()
                for client in clients:
                    await take_part(client)
                await house.finish_round()
            assert await house.blobs[0].names("round-00000001/") == []


async def test_doors_are_told_when_their_server_is_about_to_stop(autojump_clock, caplog):
    caplog.set_level("INFO")
    async with doored((1, 1)) as house, opened(house.client("anna")):
        await house.cores[0].leave("S0 is about to stop")
        await trio.sleep(0.1)
        house.client("ben")
        with pytest.raises(BusyError, match="S0 is about to stop"):
            await dial_as_client(house, "ben", "S0")
        assert house.servers[0].visitors == 1  # who is there stays until the server ends
        assert "S0 is about to stop" in caplog.messages
        await house.kill_core(0)
        await house.open_core(0)
        await trio.sleep(10)
        async with await dial_as_client(house, "ben", "S0"):
            pass


async def test_a_store_that_cannot_be_read_costs_no_door_its_clients(autojump_clock):
    async with doored((1, 0)) as house, opened(house.client("anna")):
        house.client("ben")

        async def report(round_id):
            raise StorageError("a page of the store is damaged")

        house.servers[0].actor.rounds.report = report
        async with await dial_as_client(house, "ben", "S0") as channel:
            await channel.send(*encode(AskOutcome(bytes(32))))
            assert (await reply(channel)).reason == "busy"
        await trio.sleep(1)
        assert house.told(DoorLost) == []
        assert house.servers[0].visitors == 1


async def test_parts_that_nobody_has_noted_and_that_contradict_each_other_count_for_nothing(autojump_clock):
    """A crash may leave one behind, and doors write blobs as well: the server starts all the same."""
    async with doored() as house:
        config = (await house.servers[0].next_round(0)).config
        name = next(each for each in ("anna", "ben", "carl", "dora") if config.carrier(each) == 1)
        other = next(each for each in ("anna", "ben", "carl", "dora") if each != name)
        for part in (b"a" * 32, b"b" * 32):
            await house.blobs[0].put(part_name("round-00000001", RequestKey(name, "submit", 0), part), b"anything")
        await house.kill_core(0)
        await house.open_core(0)
        await trio.sleep(10)
        async with opened(house.client(name), house.client(other)) as clients:
            for client in clients:
                await take_part(client)
            await house.kill_core(0)  # now one of them is noted, and two others lie beside it
            await trio.sleep(1)
            await house.open_core(0)
            await trio.sleep(10)
            assert_exact(await house.finish_round(), *sorted((name, other)))


async def test_a_door_that_asks_and_takes_no_answers_is_disconnected(autojump_clock, monkeypatch):
    class Mute(Nowhere):
        async def send(self, *parts, pace):
            await trio.sleep_forever()

        async def awaited(self):
            await trio.lowlevel.checkpoint()

        async def receive(self, limit, *, pace):
            numbers.append(len(numbers))
            return bytearray(bundle((AdmitKey(call=len(numbers), key=bytes(32), payload=b""), b"")))

    numbers = []
    monkeypatch.setattr("parties.server.doors.session.MOST_UNREAD", 50)
    monkeypatch.setattr("parties.server.doors.session.MOST_VISITS", 0)
    async with doored((1, 0)) as house:
        session = DoorSession(CoreDesk(house.servers[0]), Mute(), DoorHello(release="", task=b"", door="door-9"))
        with pytest.raises(PeerViolationError, match="takes no answers"), sole_error():
            await session.run()
    assert len(numbers) < 60


async def test_of_a_bundle_that_is_broken_at_its_end_nothing_is_done(autojump_clock):
    class Broken(Nowhere):
        def __init__(self, wrong):
            self.wrong = wrong

        async def awaited(self):
            await trio.lowlevel.checkpoint()

        async def receive(self, limit, *, pace):
            return bytearray(bundle((AdmitKey(call=1, key=bytes(32), payload=b""), b"")) + self.wrong)

    with_bulk = bundle((Ask(call=1, visit=1, request=b""), b"bulk"))
    for wrong, words in ((b"\0", "1 bytes where a message's"), (bytes(8), "cannot be read"), (with_bulk, "sends bulk")):
        async with doored((1, 0)) as house:
            session = DoorSession(
                CoreDesk(house.servers[0]), Broken(wrong), DoorHello(release="", task=b"", door="door-9")
            )
            with pytest.raises(PeerViolationError, match=f"S0's door-9: .*{words}"), sole_error():
                await session.run()
            assert session.had == 0


async def test_what_no_door_says_ends_its_connection_and_no_others(autojump_clock):
    async with doored((2, 0)) as house, opened(house.client("anna", through=("S0/door-2", "S1"))) as (anna,):
        for wrong in (
            Begin(call=7, visit=1, request=b"", size=1),
            Ask(call=7, visit=99, request=b""),
            Offer(
                call=7, visit=99, round_id=bytes(32), client="anna", purpose="submit", query=0, part=bytes(32), size=1
            ),
            Kept(call=99, part=bytes(32), tree=bytes(32)),
            Deposited(call=7, part=b"", tree=b"", size=1),
        ):
            house.opened["door-1 of 0"].core.post(wrong)
            await trio.sleep(0.2)
        assert len([lost for lost in house.told(DoorLost) if "S0's door-1" in lost.explanation]) == 5
        await take_part(anna)
        assert house.servers[0].status().round.submissions == 1


async def brought_in(house, name):
    """A client's visit at S0's first door: that door's connection to the core, and the visit's number."""
    house.client(name)
    link = house.opened["door-1 of 0"].core
    anna, visit = Identity.generate(name, house.randomness(name)), link.number()
    said = AdmitKey(call=visit, key=anna.public.channel, payload=Credentials.of(anna, house.task.digest()).encode())
    assert isinstance((await link.call(visit, said)).message, Admitted)
    return link, visit


async def begun(house, names=("anna", "ben", "carl", "dora")):
    """A submission with bulk that is about to begin at S0's first door: its connection to the core, and the message."""
    config = (await house.servers[0].next_round(0)).config
    name = next(each for each in names if config.carrier(each) == 0)
    link, visit = await brought_in(house, name)
    request = submission(config, name)
    size = len(request.bulk[0])
    return link, Begin(call=link.number(), visit=visit, request=bytes(encode(request.messages[0])[0]), size=size)


async def test_a_request_that_begins_and_ends_in_one_bundle_has_not_begun(autojump_clock):
    """It is neither counted nor answered, and its client may ask for something else at once."""
    async with doored((1, 0)) as house:
        link, begin = await begun(house)
        link.post(begin)
        link.post(Withdraw(call=begin.call, why="broken-off"))
        asked = Ask(call=link.number(), visit=begin.visit, request=bytes(encode(Enter(after=5))[0]))
        assert isinstance((await link.call(asked.call, asked)).message, NotYet)
        link.post(msgspec.structs.replace(begin, call=link.number()))
        link.post(Leave(begin.visit))
        await trio.sleep(1)
        assert not counted_of(house.servers[0].running)
        assert house.servers[0].visitors == 0
        assert house.servers[0].status().doors[0].connected


async def test_a_number_that_a_door_uses_again_does_not_mix_up_calls(autojump_clock):
    """A door that keeps no order of its numbers: the call that was withdrawn does not take the next one with it."""
    async with doored((1, 0)) as house:
        link, begin = await begun(house)
        link.post(begin)
        link.post(Withdraw(call=begin.call, why="broken-off"))
        assert isinstance((await link.call(begin.call, begin)).message, Granted)
        await trio.sleep(1)
        link.post(Leave(begin.visit))
        await trio.sleep(1)
        assert house.servers[0].visitors == 0
        counts = counted_of(house.servers[0].running)
        assert [(kind, count) for (_, kind, _), count in counts.items()] == [(Counted.UNFINISHED, 1)]  # its client left


@pytest.mark.parametrize("is_granted", [False, True])
async def test_bulk_that_was_not_granted_or_is_put_twice_ends_the_door(is_granted, autojump_clock):
    async with doored((1, 0)) as house:
        link, begin = await begun(house)
        put = Deposited(call=begin.call, part=bytes(32), tree=bytes(32), size=begin.size)
        if is_granted:
            assert isinstance((await link.call(begin.call, begin)).message, Granted)
        else:
            link.post(begin)
        link.post(put)
        link.post(put)
        await trio.sleep(1)
        (lost,) = house.told(DoorLost)
        assert "was not granted, or puts it twice" in lost.explanation
        assert not counted_of(house.servers[0].running)
        assert house.servers[0].running.status().submissions == 0


async def test_a_part_that_comes_before_it_is_wanted_ends_the_door(autojump_clock):
    """What is here already is not wanted again: a door that says it has come, before it hears so, changes nothing."""
    async with doored() as house:
        config = (await house.servers[0].next_round(0)).config
        name = next(each for each in ("anna", "ben", "carl", "dora") if config.carrier(each) == 1)
        async with opened(house.client(name)) as (client,):
            await take_part(client)
            await trio.sleep(1)
            link, run = house.opened["door-1 of 0"].core, house.servers[0].running
            visit, call = link.number(), link.number()
            payload = forwarding(house.task.digest())
            said = AdmitKey(call=visit, key=house.identities[1].public.channel, payload=payload)
            assert isinstance((await link.call(visit, said)).message, Admitted)
            link.post(
                Offer(
                    call=call,
                    visit=visit,
                    round_id=config.round_id(),
                    client=name,
                    purpose="submit",
                    query=0,
                    part=b"another part".ljust(32),
                    size=Layout.submission(config.shape, Trees.OWN).size,
                )
            )
            link.post(Kept(call=call, part=b"another part".ljust(32), tree=bytes(32)))
            await trio.sleep(1)
            assert any("which was not wanted" in lost.explanation for lost in house.told(DoorLost))
            assert run.status().submissions == 1


async def test_a_server_of_one_process_that_is_forwarded_another_part_ends_and_names_the_other_server(autojump_clock):
    with pytest.raises(PeerViolationError, match=r"S0: forwards a part of '\w+' that is not the one it offered"):
        await forwarding_another()


async def forwarding_another():
    """A client announces its part to S1, and whoever forwards for S0 offers that one and sends another."""
    with sole_error():
        async with doored((1, 0)) as house:
            config = (await house.servers[1].next_round(0)).config
            name = next(each for each in ("anna", "ben", "carl", "dora") if config.carrier(each) == 0)
            house.client(name)
            request = submission(config, name)
            async with await dial_as_client(house, name, "S1") as channel:
                await channel.send(*encode(request.messages[1]))
                await trio.sleep(1)
                await forward_another(house, config, name, request.messages[0].public_digest, request.bulk[0])


async def forward_another(house, config, name, digest, bulk):
    """Offer S1 the part that a client has announced, and send one that is altered."""
    size = Layout.submission(config.shape, Trees.OWN).size
    own = HandshakeSettings(
        house.identities[0].channel_secret,
        Role.SERVER_0,
        Kind.SIMULATION,
        house.randomness("a door of S0"),
        forwarding(house.task.digest()),
    )
    async with await house.network.dial("S1", house.identities[1].public.channel, own) as link:
        offer = OfferPart(
            number=1, round_id=config.round_id(), client=name, purpose="submit", query=0, part=digest, size=size
        )
        await link.send(*encode(offer))
        assert isinstance(decode(await link.receive(10**5), FromKeeper, "S1").message, PartWanted)
        altered = bytearray(bulk[:size])
        altered[0] ^= 1
        await link.send(*encode(PartFollows(1), altered))
        await trio.sleep(60)


# ---- what the core holds, and what is shown


class Nowhere:
    """In place of a channel: takes everything, and nothing ever comes."""

    async def send(self, *parts, pace):
        pass

    async def awaited(self):
        await trio.sleep_forever()


async def test_a_client_that_waits_costs_the_core_few_bytes_and_no_task(autojump_clock):
    count = 300
    async with doored((1, 0)) as house, trio.open_nursery() as nursery:
        people = [Identity.generate(f"client {number}", random.Random(number).randbytes) for number in range(count)]
        for person in people:
            house.registry.add(person.public)
        shown = [(one.public.channel, Credentials.of(one, house.task.digest()).encode()) for one in people]
        server = house.servers[0]
        session = DoorSession(CoreDesk(server), Nowhere(), DoorHello(release="", task=b"", door="door-9"))
        nursery.start_soon(session.run)
        await trio.sleep(1)
        tasks = trio.lowlevel.current_statistics().tasks_living
        gc.collect()
        tracemalloc.start()
        for visit, (key, payload) in enumerate(shown, start=1):
            session._take(AdmitKey(call=visit, key=bytes(key), payload=payload))
        await trio.sleep(1)
        for visit in range(1, count + 1):
            session._take(Ask(call=10**6 + visit, visit=visit, request=bytes(encode(Enter(after=5))[0])))
        await trio.sleep(60)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (session.clients, len(server.actor.rounds.askers.of(9))) == (count, count)
        assert held / count < 1_500
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        nursery.cancel_scope.cancel()


def test_no_seed_is_shown():
    seed = bytes(range(16))
    said = (
        Granted(call=1, seed=seed),
        Begin(call=1, visit=1, request=seed),
        AdmitKey(call=1, key=bytes(32), payload=seed),
    )
    for message in said:
        assert repr(seed)[2:20] not in repr(message)
        assert "call=1" in repr(message)
