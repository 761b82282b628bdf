"""Clients whose connections are cut, refused and slow: what was asked is asked again, the same, and counts once.

Time is virtual. A cut happens once, around an end of what goes over the wire in one go, in a round that is not cut.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import pytest
import trio

from fsl_async.errors import FslError, MisuseError
from fsl_async.randomness import SeededSource
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Download, Enter, Message, Opened, Refused, Retrieve, Submit
from parties import Client, Network, simulate
from parties.client.retries import PATIENCE
from parties.client.setup import ClientSetup
from parties.errors import ServerBusyError
from parties.identity.keys import Identity
from parties.simulation.network import SERVERS
from parties.storage.store import MemoryStore
from parties.testing import AtTime, Crash, Cut, World
from parties.testing.wires import Broken, Connection
from tests.parties.testing.small_world import MODEL, THREE, exact, listening, settled
from tests.parties.testing.small_world import TASK as SMALL
from tests.parties.testing.small_world import take_part as take_part_and_wait
from tests.support.lost_connections import away_from, finish_with
from tests.support.shop import TASK, Hook, Shop, all_take_part, assert_exact, meddled, model, opened, take_part
from transport import (
    ConnectionLostError,
    Kind,
    KindMismatchError,
    RefusedError,
    Transport,
    UnreachableError,
    WrongServerKeyError,
)

# ---- cuts


async def retrieves_and_takes_part(client: Client) -> None:
    await client.retrieve({"items": [1, 2], "head": ...})
    await take_part_and_wait(client)


async def a_round(*faults: Cut, heard: Callable[..., None] = lambda *said: None) -> World:
    """Three clients retrieve and submit, and are counted; the first one's connections are cut as told."""
    async with listening(SMALL, MODEL, THREE, *faults) as made:
        cuts = made.injector.cut

        def cut(connection: Connection, written: int, size: int) -> Iterator[Broken]:
            heard(connection, written + size)
            return cuts(connection, written, size)

        made.injector.cut = cut
        await settled(made, part=retrieves_and_takes_part)
        exact(made)
        return made


async def ends_of_a_round() -> list[tuple[int, bool, int]]:
    """Where each thing ends that goes over a client's connections: which one, whether outward, after how many bytes."""
    ends = []

    def note(connection: Connection, end: int) -> None:
        if connection.dialler == THREE[0]:
            ends.append((connection.number, connection.sender == connection.dialler, end))

    await a_round(heard=note)
    return ends


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("offset", "lost", "first"), [(-1, False, 0), (0, True, 3)])
async def test_a_round_is_exact_wherever_a_client_s_connections_are_cut(offset, lost, first, every, autojump_clock):
    """It connects again by itself, in the one life that it has."""
    ends = await ends_of_a_round()
    assert len(ends) > 20
    last = {(connection, outward): end for connection, outward, end in ends}
    ends = [each for each in ends if each[2] < last[each[:2]]]  # behind those nothing is to be done any more
    for connection, outward, end in ends[first % every :: every]:
        cut = Cut(THREE[0], connection, outward=outward, after=end + offset, lost=lost)
        made = await a_round(cut)
        assert made.injector.fired == [cut]
        assert made.process(THREE[0]).lives == 1


@dataclass
class Dialling(Transport):
    """Another transport, with what was dialled over it; nothing can be before a time."""

    inner: Transport
    until: float = 0.0
    dialled: list[str] = field(default_factory=list)

    async def connect(self, address: str) -> trio.abc.Stream:
        self.dialled.append(address)
        if trio.current_time() < self.until:
            raise UnreachableError(f"nothing listens at {address}, as the test wants it")
        return await self.inner.connect(address)

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        raise NotImplementedError


def dialling(client: Client, until: float = 0.0) -> Client:
    """A fresh client of the same name, keys and randomness."""
    return Client(replace(client.setup, transport=Dialling(client.setup.transport, until)))


async def test_a_server_that_was_never_there_is_not_waited_for(autojump_clock, network):
    carol = dialling(network.client("carol"), until=float("inf"))
    with pytest.raises(UnreachableError, match=r"^S0 \(S0\): nothing listens at S0"):
        await carol.run()
    assert trio.current_time() == 0
    assert carol.setup.transport.dialled == ["S0"]


async def test_a_server_that_was_there_in_an_earlier_life_is_waited_for(autojump_clock, network):
    store = MemoryStore()
    async with Client(replace(network.client("carol").setup, store=store)):
        pass
    carol = dialling(network.client("carol"), until=20.0)
    async with Client(replace(carol.setup, store=store)) as carol:
        assert 20 <= trio.current_time() < 26
        await take_part(carol)
    await finish_with(network, "carol")


# ---- patience


@pytest.mark.parametrize(
    ("message", "doing"),
    [
        (Enter, "waiting for a round"),
        (Retrieve, "retrieving rows"),
        (Download, "downloading block 'head'"),
        (Submit, "submitting"),
    ],
)
async def test_when_patience_is_over_the_error_tells_everything(message, doing, autojump_clock, network):
    lose, times = away_from(message, "S0")
    async with meddled(patient(network, await carried_by_s0(network)), outgoing=lose) as carol:
        with pytest.raises(ConnectionLostError) as caught:
            await take_part(carol)
    seconds = times[-1] - times[0]
    assert 60 <= seconds < 61
    assert 12 < len(times) < 30
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 5
    told = (
        f"S0 (S0): {doing}: tried {len(times)} times in {seconds:.0f} s, last: the connection ended before the answer: "
        "the server was stopped or restarted, or the network failed"
    )
    assert str(caught.value).partition("; the submission to round 1 may be counted")[0] == told
    assert caught.value.in_doubt == (message is Submit)
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    assert "vanished" not in str(caught.value)


def patient(network: Network, name: str, patience: float = PATIENCE) -> Client:
    """A client with a deployed client's patience."""
    return Client(replace(network.client(name).setup, patience=patience))


async def carried_by_s0(network: Network) -> str:
    """A client's name whose downloads come from S0."""
    config = (await network.servers[0].next_round(0)).config
    return next(name for name in map("dora {}".format, range(64)) if config.carrier(name) == 0)


@pytest.mark.parametrize("patience", [0.0, 1.0, 300.0])
async def test_patience_is_the_caller_s_to_choose(patience, autojump_clock, network):
    lose, times = away_from(Submit)
    told = f"in {patience:.0f} s" if patience else "tried once"
    async with meddled(patient(network, "carol", patience), outgoing=lose) as carol:
        with pytest.raises(ConnectionLostError, match=told):
            await take_part(carol)
    assert patience <= times[-1] - times[0] < patience + 0.1
    assert (len(times) == 1) == (patience == 0)


async def test_endless_patience_ends_with_the_caller_s(autojump_clock, network):
    lose, times = away_from(Submit)
    setup = replace(network.client("carol").setup, patience=float("inf"))
    async with meddled(Client(setup), outgoing=lose) as carol:
        with trio.move_on_after(500) as scope:
            await take_part(carol)
        assert scope.cancelled_caught
        assert carol.pending == 1
    assert times[-1] > 490


@pytest.mark.parametrize("patience", [-1.0, float("nan")])
async def test_patience_is_a_number_of_seconds(patience, autojump_clock, network):
    with pytest.raises(MisuseError, match="patience is a number of seconds"):
        replace(network.client("carol").setup, patience=patience)


async def test_a_wait_that_the_servers_impose_takes_no_patience(autojump_clock):
    """A server is killed every twenty seconds, while a client waits for the end of the round."""
    kills = [Crash(SERVERS[number % 2], AtTime(20.0 * number), down=0.5) for number in range(1, 6)]
    async with listening(SMALL, MODEL, THREE, *kills) as made:
        made.start(THREE[0], take_part_and_wait, lambda setup: Client(replace(setup, patience=10.0)))
        await trio.sleep(110)
        assert made.injector.fired == kills
        assert (made.process(THREE[0]).lives, made.process(THREE[0]).running) == (1, True)


async def test_many_clients_do_not_come_back_all_at_once(autojump_clock, network):
    firsts = []
    for name in map("client {}".format, range(6)):
        lose, times = away_from(Enter, "S0")
        async with meddled(network.client(name), outgoing=lose) as client:
            with trio.move_on_after(1):
                await client.retrieve({"items": [1]})
        firsts.append(times[1] - times[0])
    assert all(0.1 <= first <= 0.2 for first in firsts)
    assert len(set(firsts)) == 6


async def test_the_jitter_is_the_client_s_own_randomness_so_that_simulations_stay_reproducible(autojump_clock):
    async def times_of(seed: int) -> list[float]:
        lose, times = away_from(Submit)
        async with (
            simulate(TASK, model(), seed=seed) as network,
            meddled(patient(network, "carol", 20.0), outgoing=lose) as carol,
        ):
            began = trio.current_time()
            with pytest.raises(ConnectionLostError):
                await take_part(carol)
        return [round(time - began, 6) for time in times]

    assert await times_of(3) == await times_of(3) != await times_of(4)


# ---- never tried again


def strangers(setup: ClientSetup) -> dict[type[FslError], ClientSetup]:
    """Setups that no server takes, by what they must hear."""
    wrong = Identity.generate("S0", SeededSource(9, "wrong")).public
    other = msgspec.structs.replace(setup.task, min_clients=3)
    return {
        WrongServerKeyError: replace(setup, servers=(wrong, setup.servers[1])),
        RefusedError: replace(setup, identity=Identity.generate("zoe", SeededSource(9, "zoe"))),
        KindMismatchError: replace(setup, kind=Kind.LIVE),
        MisuseError: replace(setup, task=other),
    }


@pytest.mark.parametrize("kind", [WrongServerKeyError, RefusedError, KindMismatchError, MisuseError])
async def test_what_will_be_the_same_next_time_is_told_at_once(kind, autojump_clock, network):
    """A wrong key is tried once more: a server that is killed in the middle of a handshake looks the same."""
    transport = Dialling(network.client("carol").setup.transport)
    client = Client(replace(strangers(network.client("carol").setup)[kind], transport=transport, patience=float("inf")))
    with pytest.raises(kind, match="S0"):
        await client.run()
    assert transport.dialled == ["S0"] * (2 if kind is WrongServerKeyError else 1)
    assert trio.current_time() < 1


# ---- busy


def busy(message: type[Message], times: int, retry_after: int) -> tuple[dict[str, Hook], list[bytes], list[float]]:
    """Hooks over which S1 says so often that it is busy; what was sent to it, and when."""
    sent: list[bytes] = []
    when: list[float] = []

    async def note(address: str, said: Message, data: bytes) -> bytes:
        if address == "S1" and isinstance(said, message):
            sent.append(data)
            when.append(trio.current_time())
        return data

    async def refuse(address: str, said: Message, data: bytes) -> bytes:
        if address == "S1" and len(when) and len(when) <= times and not isinstance(said, Opened):
            return b"".join(encode(Refused(reason="busy", explanation="no room", retry_after=retry_after)))
        return data

    return {"outgoing": note, "incoming": refuse}, sent, when


@pytest.mark.parametrize("message", [Retrieve, Submit])
async def test_a_busy_server_is_asked_again_when_it_says_with_the_same_bytes(message, autojump_clock):
    hooks, sent, when = busy(message, 2, 7)
    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), **hooks) as carol:
        await take_part(carol)
        assert len(sent) == 3
        assert len(set(sent)) == 1
        assert all(7 < later - earlier < 9 for earlier, later in itertools.pairwise(when))
        await finish_with(network, "carol")


async def test_a_client_that_was_let_go_goes_on_and_nobody_is_warned(nursery, autojump_clock, caplog):
    caplog.set_level("INFO", logger="parties.client")
    shop = await Shop.in_memory(nursery).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as clients:
        await trio.sleep(100)
        await all_take_part(*clients)
        assert_exact(await shop.finish_round(), "anna", "ben")
    assert [record.levelname for record in caplog.records] == ["INFO"] * 4, "each client for each server"
    assert all("nothing was asked for in 60 s" in record.getMessage() for record in caplog.records)


async def test_a_server_that_is_busy_for_longer_than_patience_is_told_at_once(autojump_clock):
    hooks, sent, _ = busy(Retrieve, 9, 100)
    async with simulate(TASK, model(), seed=1) as network, meddled(patient(network, "carol"), **hooks) as carol:
        with pytest.raises(ServerBusyError, match=r"rows: tried once, last: .*no room.* after 100 s") as caught:
            await take_part(carol)
        assert (caught.value.retry_after, caught.value.reason) == (100, "busy")
        assert len(sent) == 1
