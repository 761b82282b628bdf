"""Laboratories: any actors, on hosts of their own, under faults; and what is refused."""

import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from fsl_async import Message, MessageSet, MisuseError, PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State
from parties import Host, MessageChannel, Peer
from parties.peers import dial_peer, serve_peers
from parties.storage.journal import Journal
from parties.testing import (
    AtPeerTransition,
    AtTime,
    AtTransition,
    Chart,
    Crash,
    Cut,
    FullDisk,
    HorizonError,
    Partition,
    SeededSource,
    SkewedClock,
    every_crash,
    laboratory,
)
from parties.testing.chart import save
from parties.testing.chart.legend import Legend
from parties.testing.chart.rows import Arrow
from parties.testing.faults import FaultBase
from parties.testing.recorder import Transition
from parties.testing.story import Entry
from parties.watch import Note
from transport import KeyPair, Kind

SEED = 3
ANN, BOB = (KeyPair.generate(SeededSource(1, name)) for name in ("ann", "bob"))


class Word(Message, frozen=True, tag="word"):
    text: str


class Listening(State, frozen=True):
    """Nothing was heard."""


class Knowing(State, frozen=True):
    """A word was heard."""

    text: str


class Heard(Event, frozen=True):
    """The peer has said a word."""

    text: str


MACHINE: Machine[Listening | Knowing] = Machine(Listening | Knowing, Heard, initial=(Listening,), final=(Knowing,))


@MACHINE.transition
def _know(state: Listening, event: Heard) -> Knowing:
    return Knowing(event.text)


@MACHINE.repetition
def _known(state: Knowing, event: Heard) -> bool:
    return state.text == event.text


MACHINE.complete()

WORDS = MessageSet("words 1", Word)
MACHINES = {"hearing": MACHINE}
LEARNS = Transition("hearing", "Listening", "Heard", "Knowing")
Actor = Callable[[Host], Awaitable[None]]


def speaker(word: str, keys: KeyPair, peer: Peer, address: str = "") -> Actor:
    """Says its word at the beginning of each connection, and tells the one it hears."""

    async def live(host: Host) -> None:
        journal = await Journal.open(host.store, "hearing", MACHINE, Listening())

        async def talk(channel: MessageChannel) -> None:
            await channel.send(Word(word))
            while True:
                if isinstance(journal.state, Knowing):
                    host.tell(journal.state.text)
                message, _ = await channel.receive()
                await journal.take(Heard(message.text))

        if peer.address:
            await dial_peer(host, keys, peer, WORDS, talk)
        else:
            await serve_peers(host, keys, address, [peer], WORDS, talk)

    return live


def pair() -> dict[str, Actor]:
    """Ann listens and says yes, bob dials and says no."""
    return {
        "ann": speaker("yes", ANN, Peer("bob", BOB.public), "the house of ann"),
        "bob": speaker("no", BOB, Peer("ann", ANN.public, "the house of ann")),
    }


async def idle(host: Host) -> None:
    await trio.sleep_forever()


# ---- what happens


async def test_each_party_has_a_host_of_its_own(autojump_clock) -> None:
    hosts: dict[str, Host] = {}

    async def look(host: Host) -> None:
        hosts[host.name] = host

    async with laboratory({"ann": look, "bob": look}, {}, SEED) as lab:
        await lab.wait_left()
    ann, bob = hosts["ann"], hosts["bob"]
    assert (ann.kind, ann.transport) == (Kind.SIMULATION, bob.transport)
    assert ann.randomness(8) != bob.randomness(8)
    assert ann.clock() == bob.clock() > 1e9
    assert ann.store is not bob.store
    assert await ann.lane.run(lambda: 7) == 7


@pytest.mark.parametrize("crash", every_crash(["ann", "bob"], MACHINES), ids=str)
async def test_a_party_dies_at_a_transition_of_its_own_machine(crash: Crash, autojump_clock) -> None:
    async with laboratory(pair(), MACHINES, SEED, [crash]) as lab:
        await lab.wait_told()
        await trio.sleep(30)
    assert lab.injector.fired == [crash]
    assert isinstance(crash.point, AtTransition)
    assert lab.injector.crash_points == {(crash.party, LEARNS, crash.point.moment)}
    assert lab.process(crash.party).lives == 2
    assert {(name, told) for _, name, told in lab.told} == {("ann", "no"), ("bob", "yes")}
    assert lab.ended == []


async def test_a_party_dies_at_a_transition_of_the_other(autojump_clock) -> None:
    crash = Crash("bob", AtPeerTransition(*LEARNS), down=1.0)
    async with laboratory(pair(), MACHINES, SEED, [crash]) as lab:
        await lab.wait_told()
    assert lab.injector.fired == [crash]
    assert (lab.process("ann").lives, lab.process("bob").lives) == (1, 2)


async def test_the_network_the_disk_and_the_clock_fail(autojump_clock) -> None:
    faults = [
        FullDisk("ann", begin=0.0, seconds=5.0),
        Partition("ann", "bob", begin=5.0, seconds=20.0),
        SkewedClock("bob", begin=0.0, seconds=-60.0),
    ]
    clocks: list[float] = []

    async def bob(host: Host) -> None:
        clocks.append(host.clock())
        await pair()["bob"](host)

    async with laboratory(pair() | {"bob": bob}, MACHINES, SEED, faults) as lab:
        await lab.wait_told()
        assert lab.now > 25
        assert clocks[0] < 1.7e9
    assert set(lab.injector.fired) == set(faults)
    assert lab.ended == []


async def test_the_dead_tell_nothing(autojump_clock) -> None:
    async def last_words(host: Host) -> None:
        host.tell("alive")
        try:
            await trio.sleep_forever()
        finally:
            host.tell("dead")

    async with laboratory({"ann": last_words}, {}, SEED, [Crash("ann", AtTime(1.0), down=math.inf)]) as lab:
        await lab.wait_told("ann")
        await trio.sleep(2)
    assert lab.told_by("ann") == ["alive"]


async def test_a_party_that_breaks_the_protocol_is_not_started_again(autojump_clock) -> None:
    async def accuse(host: Host) -> None:
        raise PeerViolationError("bob", "cheats")

    async with laboratory({"ann": accuse}, {}, SEED) as lab:
        await lab.wait_until(lambda: bool(lab.ended))
    (ended,) = lab.ended
    assert (ended.party, str(ended.error)) == ("ann", "bob: cheats")


# ---- what is refused


async def test_a_defect_of_an_actor_ends_the_laboratory(autojump_clock) -> None:
    async def stumble(host: Host) -> None:
        raise KeyError(host.name)

    with pytest.raises(KeyError, match="ann"):
        async with laboratory({"ann": stumble}, {}, SEED) as lab:
            await lab.wait_left()


async def test_who_waits_in_vain_is_told_who_still_runs(autojump_clock) -> None:
    with pytest.raises(HorizonError, match="the world is 100 s old, and the test still waits; ann still runs"):
        async with laboratory({"ann": idle}, {}, SEED, horizon=100) as lab:
            await lab.wait_told()


async def test_who_waits_in_vain_is_told_who_has_ended(autojump_clock) -> None:
    async def accuse(host: Host) -> None:
        raise PeerViolationError("bob", "cheats")

    reason = "no party still runs; ann ended with PeerViolationError: bob: cheats. A test that"
    with pytest.raises(HorizonError, match=reason):
        async with laboratory({"ann": accuse}, {}, SEED, horizon=100) as lab:
            await lab.wait_told()


REFUSED = [
    (Crash("eve", AtTime(1.0), 1.0), "there is no party 'eve', only ann, bob; name every party in the actors"),
    (Crash("ann", AtTransition("haering", *LEARNS[1:], "after write"), 1.0), "no machine 'haering', only hearing"),
    (
        Crash("ann", AtPeerTransition("hearing", "Knowing", "Heard", "Knowing"), 1.0),
        "the machine has no such transition",
    ),
    (
        Crash("ann", AtTransition("hearing", "Listening", "Herd", "Knowing", "after write"), 1.0),
        "hearing: Listening ──",
    ),
]


@pytest.mark.parametrize(("fault", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
async def test_a_fault_that_would_never_strike_is_refused(fault: Crash, reason: str, autojump_clock) -> None:
    with pytest.raises(MisuseError, match=reason):
        async with laboratory(pair(), MACHINES, SEED, [fault]):
            pass


async def test_what_is_no_machine_is_refused(autojump_clock) -> None:
    with pytest.raises(MisuseError, match="is no `Machine`, nor a module that has one as `MACHINE`"):
        async with laboratory(pair(), {"hearing": trio}, SEED):
            pass


async def test_a_clock_that_does_not_jump_is_refused() -> None:
    with pytest.raises(MisuseError, match="needs a clock that jumps"):
        async with laboratory(pair(), MACHINES, SEED):
            pass


# ---- what it looks like


async def drawn(seed: int, *faults: FaultBase) -> Chart:
    async with laboratory(pair(), MACHINES, seed, faults) as lab:
        await lab.wait_told()
        return Chart.of(lab)


async def test_messages_that_are_lost_in_a_cut_end_in_a_cross(autojump_clock) -> None:
    chart = await drawn(1, Cut("bob", connection=1, outward=True, after=1_160, lost=True))
    assert str(chart).splitlines() == [
        "  seconds  ann                                               bob",
        "    0.000   ○ starts",
        "            │                                          starts ○",
        "    0.193   ├─────────────────── Word 20 B ──────────────────×│",
        "    0.314   │×────────────────── Word 19 B ───────────────────┤",
        "            │               connection 1 cut after 1160 B out !",
        "    0.433   ├─────────────────── Word 20 B ──────────────────►│",
        "    0.532   │◄────────────────── Word 19 B ───────────────────┤",
        "    0.538   ◆ no                                              │",
        "    0.547   │                                             yes ◆",
        "  seconds  ann                                               bob",
    ]


async def test_a_message_to_a_party_that_dies_ends_in_a_cross(autojump_clock) -> None:
    chart = await drawn(4, Crash("ann", AtTime(0.2), down=2.0))
    assert str(chart).splitlines() == [
        "  seconds  ann                                               bob",
        "    0.000   ○ starts",
        "            │                                          starts ○",
        "    0.061   ├─────────────────── Word 20 B ──────────────────►│",
        "    0.076   │×────────────────── Word 19 B ───────────────────┤",
        "    0.144   │                                             yes ◆",
        "    0.200   ! crash at 0.2 s                                  │",
        "            × killed, for 2 s                                 │",
        "    2.200   ○ starts again, life 2                            │",
        "    2.908   ├─────────────────── Word 20 B ──────────────────►│",
        "            │◄────────────────── Word 19 B ───────────────────┤",
        "            │                                             yes ◆",
        "    2.950   ◆ no                                              │",
        "  seconds  ann                                               bob",
    ]
    assert chart.svg().count(">×</text>") == 1


async def test_a_page_has_the_picture_and_needs_nothing_else(autojump_clock) -> None:
    chart = await drawn(1)
    page = chart.html("A <chart>")
    assert page.startswith("<!doctype html>\n")
    assert "<title>A &lt;chart&gt;</title>" in page
    assert chart.svg("A <chart>") in page
    assert page.count("prefers-color-scheme: dark") == 2
    assert page.count("http") == 1, "the name space alone"


async def test_a_message_may_say_what_its_arrow_is_called(autojump_clock) -> None:
    class Shout(Message, frozen=True, tag="shout"):
        text: str

        def __str__(self) -> str:
            return f"{self.text}!"

    shout, word = (Entry(0.0, "ann", Note("ann", "bob", each("hey"), 0)) for each in (Shout, Word))
    chart = Chart.of_story([shout, word], Legend())
    assert [row.drawn.label for row in chart.rows if isinstance(row.drawn, Arrow)] == ["hey!", "Word"]


async def test_three_parties_stand_in_the_order_of_their_names_in_the_plan(autojump_clock) -> None:
    actors = pair() | {"zoe": idle, "cy": idle}
    async with laboratory(actors, MACHINES, SEED) as lab:
        await lab.wait_told("ann", "bob")
    chart = Chart.of(lab)
    assert chart.parties == ("ann", "bob", "zoe", "cy")
    assert max(map(len, chart.text(100).splitlines())) <= 100


@pytest.mark.parametrize("suffix", ["txt", "html", "svg"])
async def test_several_charts_are_saved_together(suffix: str, tmp_path: Path, autojump_clock) -> None:
    charts = [("first <one>", await drawn(1)), ("second", await drawn(2))]
    paths = save(tmp_path / f"charts.{suffix}", charts)
    words = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert len(paths) == (2 if suffix == "svg" else 1)
    assert words.count("starts") == 4
    assert ("first <one>" if suffix == "txt" else "first &lt;one&gt;") in words
    assert "second" in words
    assert [path.name for path in paths] == [f"charts.{suffix}", "charts-2.svg"][: len(paths)]
