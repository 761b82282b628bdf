"""The simulated network: order, time, cuts, partitions, and ends that die with their processes."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from fsl_async.wire.messages import Hint
from parties.testing import Cut, Delay, Fault, Partition
from parties.testing.injector import LATENCY, Injector
from parties.testing.processes import KilledError, Life, Process
from parties.testing.round_faults import Straggle, Stragglers
from parties.testing.wires import Broken, Connection, NetworkConditions, Wires
from tests.support.cases import in_turn
from transport.errors import UnreachableError
from transport.memory import BUFFER_SIZE

PATIENCE = 10.0
Ends = tuple[trio.abc.Stream, trio.abc.Stream]


class Calm(NetworkConditions):
    """Nothing takes time, and nothing breaks, but where a test says so."""

    def __init__(self, cut_after: int = -1, *, lost: bool = False, outlives: bool = False) -> None:
        self.cut_after = cut_after
        self.lost = lost
        self.outliving = outlives

    def arrival(self, connection: Connection, now: float) -> float:
        return now

    def cut(self, connection: Connection, written: int, size: int) -> Iterator[Broken]:
        if written <= self.cut_after < written + size:
            yield Broken(self.cut_after - written, self.lost)

    def outlives(self, connection: Connection) -> bool:
        return self.outliving

    def before_send(self, life: Life, connection: Connection) -> None: ...

    def after_send(self, life: Life, connection: Connection) -> None: ...


class Pair:
    """Two processes, and the connections that the first makes to the second."""

    def __init__(self, conditions: NetworkConditions) -> None:
        self.wires = Wires(conditions)
        self.anna, self.server = Process("anna", Random(1)), Process("S0", Random(2))
        self.annas_life, self.servers_life = self.anna.begin(), self.server.begin()
        self.wires.listens(self.servers_life)
        sending, self._arriving = trio.open_memory_channel[tuple[trio.abc.Stream, str]](10)
        self.wires._queues["S0"] = sending

    async def connect(self) -> Ends:
        self.annas_life.enter()
        near = await self.wires.connect("S0")
        far, _ = await self._arriving.receive()
        return near, far


def injected(*faults: Fault) -> Injector:
    injector = Injector(5, faults)
    injector.begin()
    return injector


def submission(round_id: bytes) -> Hint:
    return Hint(round_id=round_id, session=b"", public_digest=b"")


async def everything(stream: trio.abc.Stream) -> bytes:
    """All that arrives until the connection ends or breaks."""
    received = bytearray()
    with trio.fail_after(PATIENCE), suppress(trio.BrokenResourceError):
        while data := await stream.receive_some():
            received += data
    return bytes(received)


async def test_both_ends_are_streams_as_trio_knows_them() -> None:
    async def make() -> Ends:
        return await Pair(Calm()).connect()

    async def make_clogged() -> Ends:
        near, far = await make()
        await near.send_all(bytes(BUFFER_SIZE))
        await far.send_all(bytes(BUFFER_SIZE))
        return near, far

    await trio.testing.check_two_way_stream(make, None)
    await trio.testing.check_two_way_stream(make, make_clogged)


@given(writes=st.lists(st.binary(min_size=1, max_size=50), max_size=8), most=st.integers(1, 20))
def test_bytes_arrive_in_order_whatever_time_they_take(writes: list[bytes], most: int) -> None:
    async def run() -> bytes:
        near, far = await Pair(injected()).connect()
        for data in writes:
            await near.send_all(data)
        await near.aclose()
        received = bytearray()
        while data := await far.receive_some(most):
            assert len(data) <= most
            received += data
        return bytes(received)

    assert trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0)) == b"".join(writes)


async def test_what_is_sent_takes_time(autojump_clock: trio.abc.Clock) -> None:
    near, far = await Pair(injected()).connect()
    took = []
    for _ in range(50):
        began = trio.current_time()
        await near.send_all(b"x")
        await far.receive_some()
        took.append(trio.current_time() - began)
    assert 0 < min(took) < max(took) <= LATENCY


async def test_a_slow_connection_is_slow_both_ways_and_others_are_not(autojump_clock: trio.abc.Clock) -> None:
    pair = Pair(injected(Delay("anna", connection=2, seconds=7.0)))
    for expected in (0.0, 7.0, 0.0):
        near, far = await pair.connect()
        for sender, receiver in ((near, far), (far, near)):
            began = trio.current_time()
            await sender.send_all(b"x")
            await receiver.receive_some()
            assert expected <= trio.current_time() - began <= expected + LATENCY


# ---- cuts


@in_turn("lost", [False, True])
@in_turn("after", range(11))
async def test_a_cut_at_every_byte(after: int, lost: bool) -> None:
    near, far = await Pair(Calm(after, lost=lost)).connect()
    arrived: list[bytes] = []

    async def receive() -> None:
        arrived.append(await everything(far))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        for start in range(0, after // 4 * 4, 4):
            await near.send_all(b"abcdefghijkl"[start : start + 4])
        with pytest.raises(trio.BrokenResourceError):
            await near.send_all(b"abcdefghijkl"[after // 4 * 4 :])
    (received,) = arrived
    assert b"abcdefghijkl"[:after].startswith(received)
    if not lost:
        assert received == b"abcdefghijkl"[:after]
    for end in (near, far):
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"more")


async def test_a_cut_is_counted_in_one_direction_of_one_connection() -> None:
    pair = Pair(injected(Cut("anna", connection=2, outward=False, after=3, lost=False)))
    near, far = await pair.connect()
    await far.send_all(b"abcdef")
    near, far = await pair.connect()
    await near.send_all(b"abcdef")
    with pytest.raises(trio.BrokenResourceError):
        await far.send_all(b"abcdef")


# ---- partitions


async def test_a_partition_holds_up_one_direction_until_it_is_over(autojump_clock: trio.abc.Clock) -> None:
    others = Partition("anna", "S1", begin=0.0, seconds=100.0), Partition("S1", "S0", begin=0.0, seconds=100.0)
    pair = Pair(injected(Partition("anna", "S0", begin=1.0, seconds=9.0), *others))
    near, far = await pair.connect()
    arrivals: dict[str, list[float]] = {"there": [], "back": []}

    async def receive(stream: trio.abc.Stream, name: str) -> None:
        for _ in range(3):
            await stream.receive_some(1)
            arrivals[name].append(trio.current_time() - began)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive, far, "there")
        nursery.start_soon(receive, near, "back")
        for at in (0.0, 5.0, 11.0):
            await trio.sleep(began + at - trio.current_time())
            await near.send_all(b"x")
            await far.send_all(b"y")
    assert arrivals["there"] == [pytest.approx(at, abs=LATENCY) for at in (0.0, 10.0, 11.0)]
    assert arrivals["back"] == [pytest.approx(at, abs=LATENCY) for at in (0.0, 5.0, 11.0)]


# ---- processes


@pytest.mark.parametrize("killed", ["anna", "S0"])
async def test_a_kill_breaks_both_ends_and_loses_what_is_on_its_way(killed: str) -> None:
    pair = Pair(Calm())
    near, far = await pair.connect()
    await near.send_all(b"on its way")
    await far.send_all(b"likewise")
    (pair.anna if killed == "anna" else pair.server).kill(1.0)
    for end in (near, far):
        assert await everything(end) == b""
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"x")


async def test_what_a_killed_process_had_written_may_still_arrive() -> None:
    near, far = await (pair := Pair(Calm(outlives=True))).connect()
    await near.send_all(b"to the dead")
    await far.send_all(b"on its way")
    pair.server.kill(1.0)
    assert await everything(near) == b"on its way"
    assert await everything(far) == b""


def test_what_a_killed_process_had_written_arrives_by_chance() -> None:
    connections = [Connection("anna", "S0", "anna", number) for number in range(100)]
    arrives = [injector.outlives(connection) for injector in (Injector(5, ()),) * 2 for connection in connections]
    assert arrives[:100] == arrives[100:]
    assert 30 < sum(arrives[:100]) < 70


async def test_a_submission_reaches_one_server_late(autojump_clock: trio.abc.Clock) -> None:
    late = Straggle("anna", submission=2, server="S0", seconds=9.0)
    injector = injected(late)
    stragglers = Stragglers(injector, [late])
    near, far = await Pair(injector).connect()
    took = []
    for round_id in (b"first", b"second", b"second"):
        stragglers.watch("anna", "S1", submission(round_id))
        stragglers.watch("anna", "S0", submission(round_id))
        began = trio.current_time()
        await near.send_all(b"x")
        await far.receive_some()
        took.append(trio.current_time() - began)
    assert took == [pytest.approx(expected, abs=LATENCY) for expected in (0.0, 9.0, 0.0)]


async def test_a_kill_reaches_who_waits(autojump_clock: trio.abc.Clock) -> None:
    pair = Pair(Calm())
    near, far = await pair.connect()
    async with trio.open_nursery() as nursery:

        async def wait(stream: trio.abc.Stream) -> None:
            with trio.fail_after(PATIENCE), pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()

        nursery.start_soon(wait, near)
        nursery.start_soon(wait, far)
        await trio.sleep(1)
        pair.server.kill(1.0)


async def test_nobody_reaches_a_process_that_does_not_run() -> None:
    pair = Pair(Calm())
    pair.server.kill(1.0)
    with pytest.raises(UnreachableError, match="nothing listens at 'S0' now"):
        await pair.connect()
    with pytest.raises(UnreachableError, match="'S1'"):
        await pair.wires.connect("S1")


async def test_a_killed_process_connects_to_nobody() -> None:
    pair = Pair(Calm())
    pair.anna.kill(1.0)
    with pytest.raises(KilledError):
        await pair.connect()
    assert pair.anna.dials == 0


async def test_connections_and_writes_are_counted_over_all_lives() -> None:
    pair = Pair(Calm())
    near, _ = await pair.connect()
    await near.send_all(b"x")
    pair.anna.kill(1.0)
    pair.annas_life = pair.anna.begin()
    near, _ = await pair.connect()
    await near.send_all(b"x")
    assert (pair.anna.lives, pair.anna.dials, pair.anna.sends) == (2, 2, 2)
