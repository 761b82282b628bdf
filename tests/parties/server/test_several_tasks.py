"""Several tasks behind one router: each has its clients, its rounds and its troubles to itself."""

import os
from dataclasses import replace

import pytest
import trio
import trio.lowlevel

from fsl_async.errors import ChannelError, MisuseError, leaves
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskTask
from parties.client.client import Client
from parties.events import PeerMet, SubmissionIn, Warned
from parties.identity.handshake import Credentials, are_marks, served, serves
from parties.identity.keys import Identity
from parties.identity.registry import Registry, Revocation
from parties.schedule import ConversationLimits
from parties.server.admission import Anyone
from parties.storage.store import Change, DiskFullError, MemoryStore, Record, StoreLostError
from tests.support.hand_made import connected, reply
from tests.support.mall import Mall, called
from tests.support.shop import LIBERAL, all_take_part, assert_exact, opened, take_part
from transport import BusyError, Channel, HandshakeSettings, Kind, RefusedError, Role

SHOP, TOWN, CITY = called("shop"), called("town"), called("city")
OTHER_SHOP = called("shop", min_clients=3)


@pytest.fixture
async def mall(nursery, autojump_clock):
    """Two tasks: anna and ben are in the shop, ben and cleo in the town."""
    found = Mall(nursery)
    for name, *tasks in (("anna", "shop"), ("ben", "shop", "town"), ("cleo", "town")):
        found.admit(name, *tasks)
    await found.open()
    await found.serve(SHOP)
    await found.serve(TOWN)
    return found


async def round_of(mall: Mall, task, *names: str) -> None:
    async with opened(*(mall.client(name, task) for name in names)) as clients:
        await all_take_part(*clients)
        assert_exact(await mall.finish_round(task.name), *names)


async def test_two_tasks_have_rounds_at_the_same_time_and_exact_sums(mall, autojump_clock):
    async with trio.open_nursery() as rounds:
        rounds.start_soon(round_of, mall, SHOP, "anna", "ben")
        rounds.start_soon(round_of, mall, TOWN, "ben", "cleo")
    for task, others in (("shop", "cleo"), ("town", "anna")):
        seen = {event.client for event in mall.events[task, 0] if isinstance(event, SubmissionIn)}
        assert len(seen) == 2
        assert others not in seen


# ---- whose connection it is


async def is_refused(client: Client, error: type[Exception], match: str) -> str:
    """It is not let in; in which words."""
    with pytest.raises(error, match=match) as refusal:
        async with client:
            pytest.fail("connected")
    return str(refusal.value)


async def test_a_client_of_one_task_hears_what_differs_in_it(mall, autojump_clock):
    await is_refused(
        mall.client("anna", OTHER_SHOP), MisuseError, "S0 runs another task: min_clients is 2 there, 3 here"
    )


async def test_a_client_of_several_tasks_hears_which_these_are_and_of_no_other(mall, autojump_clock):
    await mall.serve(CITY)
    said = await is_refused(
        mall.client("ben", OTHER_SHOP), RefusedError, r"of the tasks that it serves you are in 'shop' .*, 'town'"
    )
    assert "city" not in said


async def test_a_client_of_many_tasks_with_long_names_hears_of_some(mall, autojump_clock):
    for number in range(8):
        task = called("\N{PERSONAL COMPUTER}" * 62 + f" {number}")
        mall.admit("ben", task.name)
        await mall.serve(task, 0)
    await is_refused(mall.client("ben", OTHER_SHOP), RefusedError, "and 5 more: use the task file of one of these")


async def test_a_client_without_a_task_here_learns_of_none(mall, autojump_clock):
    said = await is_refused(mall.client("mallory", CITY), RefusedError, "does not serve the task whose digest is")
    assert not {"shop", "town"} & set(said.split("'"))
    await is_refused(mall.client("mallory", SHOP), RefusedError, r"unknown client: key .* is not on S0's list")
    await is_refused(mall.client("cleo", SHOP), RefusedError, r"unknown client: key .* is not on S0's list")


async def test_a_task_that_enrols_anybody_does_so_for_itself_alone(mall, autojump_clock):
    await mall.serve(CITY, policy=Anyone())
    async with opened(mall.client("dora", CITY), mall.client("emil", CITY)) as clients:
        await all_take_part(*clients)
        assert_exact(await mall.finish_round("city"), "dora", "emil")
    await is_refused(mall.client("dora", TOWN), RefusedError, "is not on S0's list")


async def test_a_key_has_its_places_in_each_task(nursery, autojump_clock):
    mall = Mall(nursery, replace(LIBERAL, per_key=1))
    mall.admit("ben", "shop", "town")
    await mall.open()
    await mall.serve(SHOP)
    await mall.serve(TOWN)
    async with mall.client("ben", SHOP, patience=0), mall.client("ben", TOWN, patience=0):
        await is_refused(
            mall.client("ben", TOWN, patience=0), BusyError, "1 connections with this key are open already"
        )


def test_what_a_server_shows_of_its_tasks_tells_those_who_have_them():
    tasks = [task.digest() for task in (SHOP, TOWN)]
    shown = served(tasks, os.urandom)
    assert are_marks(shown)
    assert all(serves(shown, task) for task in tasks)
    assert not serves(shown, CITY.digest())
    assert not any(task[:8] in shown for task in tasks)
    again = served(tasks, os.urandom)
    assert (
        len(
            {shown[at : at + 16] for at in range(0, len(shown), 16)} | {again[at : at + 16] for at in range(0, 496, 16)}
        )
        == 62
    )
    assert serves(tasks[0], tasks[0])
    assert not serves(b"", tasks[0])


@pytest.mark.parametrize("number", [0, 1, 2, 30])
def test_what_a_server_shows_does_not_tell_how_many_tasks_it_has(number):
    tasks = [called(f"task {which}").digest() for which in range(number)]
    shown = served(tasks, os.urandom)
    assert len(shown) == 16 * 31
    assert all(serves(shown, task) for task in tasks)


async def seen(mall: Mall) -> bytes:
    """What a stranger is shown of S0's tasks."""
    shown = []

    def look(payload: bytes) -> None:
        shown.append(payload)
        raise MisuseError("seen")

    stranger = HandshakeSettings(Identity.generate("mallory").channel_secret, Role.CLIENT, Kind.LIVE, os.urandom)
    with pytest.raises(MisuseError, match="seen"):
        await mall.network.dial("S0", mall.identities[0].public.channel, stranger, look)
    return shown[0]


async def test_a_stranger_sees_nothing_of_a_task_that_is_left_alone_or_ends(mall, autojump_clock):
    before = await seen(mall)
    mall.scopes["town", 0].cancel()
    await trio.sleep(0.1)
    alone = await seen(mall)
    mall.scopes["shop", 0].cancel()
    await trio.sleep(0.1)
    none = await seen(mall)
    assert len({len(before), len(alone), len(none)}) == 1
    assert serves(alone, SHOP.digest())
    assert SHOP.digest() not in alone
    assert not serves(none, SHOP.digest())


async def test_from_the_moment_at_which_a_task_ends_its_clients_are_told_to_come_back(mall, autojump_clock):
    async with connected(mall.client("ben", TOWN), 0) as channel:
        mall.scopes["town", 0].cancel()
        told = await reply(channel)
        assert (told.reason, told.explanation, told.retry_after) == ("busy", "task 'town' is about to end", 0)
    await trio.sleep(0.1)  # its store is still being closed
    await is_refused(mall.client("cleo", TOWN, patience=0), BusyError, "task 'town' is about to end")


async def test_a_key_that_one_task_revokes_is_a_client_of_the_other_as_before(mall, autojump_clock):
    async with opened(mall.client("ben", TOWN), mall.client("anna", SHOP)) as (ben, anna):
        async with mall.client("ben", SHOP):
            for index in (0, 1):
                mall.servers["shop", index].enrolment.reload(only(mall, "anna", revoked="ben"))
        await is_refused(mall.client("ben", SHOP, patience=0), RefusedError, "revoked")
        # the town's server answers, which knows the key
        await is_refused(mall.client("ben", OTHER_SHOP), MisuseError, "runs another task")
        async with opened(mall.client("cleo", TOWN)) as (cleo,):
            await all_take_part(ben, cleo)
        await mall.finish_round("town")
        await take_part(anna)


def only(mall: Mall, name: str, *, revoked: str) -> Registry:
    """A list with one client, and another that is revoked."""
    return Registry([mall.known[name].public], [Revocation(revoked, mall.known[revoked].public.channel, "")])


# ---- whose trouble it is


async def flood(mall: Mall, name: str, task, index: int, answered: list[int]) -> None:
    """Ask as often as the network takes it, and read whatever comes."""
    keys = mall.known[name]
    credentials = Credentials.of(keys, task.digest()).encode()
    settings = HandshakeSettings(keys.channel_secret, Role.CLIENT, Kind.LIVE, os.urandom, credentials)

    async def read(channel: Channel) -> None:
        while True:
            await channel.receive(1_000_000)
            answered[index] += 1

    channel = await mall.network.dial(f"S{index}", mall.identities[index].public.channel, settings)
    async with channel, trio.open_nursery() as nursery:
        nursery.start_soon(read, channel)
        while True:
            await channel.send(*encode(AskTask()))


async def test_a_client_that_floods_one_task_has_its_share_of_it_and_none_of_another(mall, autojump_clock):
    answered = [0, 0]
    limits = ConversationLimits(requests_per_second=10, request_burst=30)
    mall.admit("dora", "city")
    mall.admit("emil", "city")
    mall.admit("fay", "city")
    await mall.serve(CITY, conversations=limits)
    async with trio.open_nursery() as floods:
        began = trio.current_time()
        for index in (0, 1):
            floods.start_soon(flood, mall, "dora", CITY, index, answered)
        await trio.sleep(5)  # all that a client may ask at once is used up
        for task, names in ((SHOP, ("anna", "ben")), (CITY, ("emil", "fay"))):
            before = trio.current_time()
            await round_of(mall, task, *names)
            assert trio.current_time() - before < 1
        elapsed = trio.current_time() - began
        most = limits.request_burst + limits.requests_per_second * elapsed + 2
        assert limits.request_burst < min(answered)
        assert max(answered) <= most
        floods.cancel_scope.cancel()


async def test_a_task_that_the_other_server_does_not_have_yet_waits_and_disturbs_nobody(mall, autojump_clock):
    await mall.serve(CITY, 1)
    mall.admit("dora", "city")
    mall.admit("emil", "city")
    await round_of(mall, SHOP, "anna", "ben")
    await trio.sleep(20)
    warned = [event for event in mall.events["city", 1] if isinstance(event, Warned)]
    assert [event.about for event in warned] == ["peer"], "said once"
    assert "S0 does not serve task 'city'" in warned[0].explanation
    assert "S1 waits until it does" in warned[0].explanation
    await mall.serve(CITY, 0)
    await round_of(mall, CITY, "dora", "emil")
    assert any(isinstance(event, PeerMet) for event in mall.events["city", 1])


class Lost(MemoryStore):
    """A store that is lost, or full, as soon as a submission is to be recorded."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    async def commit(self, *changes: Change) -> None:
        if self.error and any(isinstance(one, Record) and one.journal.endswith("/requests") for one in changes):
            raise self.error
        await super().commit(*changes)


async def test_a_lost_store_ends_its_task_alone(mall, autojump_clock):
    await mall.serve(CITY, 0, store=Lost(StoreLostError("the store is lost")))
    await mall.serve(CITY, 1)
    mall.admit("dora", "city")
    with pytest.raises(ChannelError):
        async with mall.client("dora", CITY, patience=0) as dora:
            await take_part(dora, retrieves=False)
    await mall.failed.wait()
    assert list(mall.failures) == [("city", 0)]
    assert isinstance(leaves(mall.failures["city", 0])[0], StoreLostError)
    assert mall.servers["city", 1].status().peer_stops_since is None, "no operator wanted that"
    await round_of(mall, SHOP, "anna", "ben")
    await round_of(mall, TOWN, "ben", "cleo")


async def test_a_full_disk_holds_up_its_task_alone(mall, autojump_clock):
    disk = Lost(DiskFullError("the disk is full"))
    await mall.serve(CITY, 0, store=disk)
    await mall.serve(CITY, 1)
    for name in ("dora", "emil"):
        mall.admit(name, "city")
    async with trio.open_nursery() as rounds:
        rounds.start_soon(round_of, mall, CITY, "dora", "emil")
        await trio.sleep(1)
        await round_of(mall, SHOP, "anna", "ben")
        await round_of(mall, TOWN, "ben", "cleo")
        assert mall.servers["city", 0].status().rounds_done == 0
        disk.error = None
    assert mall.servers["city", 0].status().rounds_done == 1


async def test_a_task_that_ends_tells_its_clients_to_come_back_and_they_do(mall, autojump_clock):
    async with opened(mall.client("ben", TOWN), mall.client("cleo", TOWN)) as (ben, cleo):
        await take_part(ben)
        stores = [mall.servers["town", index].setup.store for index in (0, 1)]
        for index in (0, 1):
            mall.scopes["town", index].cancel()
        await trio.sleep(0.1)
        for index in (0, 1):
            mall.routers[index].is_away(TOWN.digest(), "task 'town' is not served at present")
        async with trio.open_nursery() as later:
            later.start_soon(take_part, cleo)
            await trio.sleep(1)
            await round_of(mall, SHOP, "anna", "ben")
            for index in (0, 1):
                await mall.serve(TOWN, index, store=stores[index])
        assert_exact(await mall.finish_round("town"), "ben", "cleo")
    assert any("is not served at present" in error for error in mall.refused)
