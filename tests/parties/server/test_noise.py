"""Rounds with noise: what is opened, what is charged, and that a killed server neither draws twice nor forgets."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import trio
import trio.lowlevel

from fsl_async import Dense, Privacy, Ring, Sparse, Task
from fsl_async.privacy.threshold import kept_rows
from fsl_async.protocols.ending import CloseRound
from fsl_async.wire.messages import Commitment, Share
from fsl_async.wire.pieces import Span
from parties import Network, SumRefusedError, simulate
from parties.client.client import Client
from parties.events import PrivacyCharged, Warned
from parties.schedule import Schedule
from parties.server.round.computation import Noise
from parties.server.round.shares import ShareRecords
from parties.simulation.network import SERVERS
from parties.testing.faults import AtTransition, Crash
from parties.testing.machines import declared
from parties.testing.world import World, world
from tests.support.cases import sides

NAMES = ("anna", "ben", "carol")
MOMENTS = ("before write", "before sync", "after write", "before send", "after send")
QUICK = ("before write", "after write")
"""Of these, one with either server; the others come with the slow tests."""

WAYS = [("Verified", "Committed"), ("Committed", "Revealed"), ("Revealed", "Combined")]
LITTLE = Privacy(noise=0.2, delta=1e-6, budget=1000.0)
TWO_ROUNDS = Privacy(noise=4.0, delta=1e-6, budget=1.7)


def charged(server) -> float:
    (note,) = server.status().notes
    return note.figures["privacy_rounds"]


def task(**changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "noisy",
        "blocks": (Sparse("items", rows=40, select=3, width=2), Dense("head", size=5)),
        "ring": Ring(64, fraction_bits=10),
        "min_clients": 2,
        "max_clients": 20,
        "bound": 16.0,
        "privacy": TWO_ROUNDS,
    }
    return Task(**(fields | changes))


def model(made: Task) -> dict[str, npt.NDArray[Any]]:
    return {block.name: np.zeros(block.shape) for block in made.model_blocks}


def values(place: int) -> dict[str, Any]:
    return {"items": ([1, place + 2], np.full((2, 2), 0.5)), "head": np.full(5, place + 1.0)}


async def all_submit(net: Network, updates: Any) -> None:
    for place, name in enumerate(NAMES):
        async with net.client(name) as client:
            await client.submit(updates(place))


# ---- the sum


async def test_what_is_opened_is_the_sum_with_both_servers_noise() -> None:
    made = task(blocks=(Dense("head", size=8000),))
    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, lambda place: {"head": np.full(8000, 0.125)})
        outcome = await net.finish_round()
    errors = outcome.elements["head"] - 3 * 128
    sigma = made.doses.values
    assert sigma == 4 * 16 * 2**10
    assert errors.var() / sigma**2 == pytest.approx(2, abs=5 * 2 * (2 / 8000) ** 0.5)
    assert abs(errors.mean()) < 5 * sigma * (2 / 8000) ** 0.5


async def test_rows_that_are_no_more_than_noise_stay_as_they_were() -> None:
    blocks = (Sparse("items", rows=3000, select=3, width=4), Dense("head", size=5))
    made = task(blocks=blocks, privacy=LITTLE)

    def loud(place: int) -> dict[str, Any]:
        return {"items": ([7, 8], np.array([[7.5] * 4, [0.5] * 4]))}

    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, loud)
        outcome = await net.finish_round()
        first, second = (server.model for server in net.servers)
    assert first["items"].tobytes() == second["items"].tobytes()
    changed = np.flatnonzero(first["items"].any(axis=1))
    assert 7 in changed
    assert len(changed) < 20, "of rows of noise alone, one in a thousand"
    assert kept_rows(outcome.elements["items"], made.doses.values)[changed].all()
    assert first["head"].all(), "a dense block has no rows: all of it gets its noise"


async def test_the_sum_of_weights_must_be_more_than_its_noise() -> None:
    made = task(
        blocks=(Sparse("items", rows=40, select=3, width=2), Dense("count", size=1)),
        apply="weighted-mean",
        weights="count",
        largest_weight=95.0,
        bound=100.0,
        privacy=LITTLE,
    )
    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, lambda place: {"count": [1.0]})
        with pytest.raises(SumRefusedError, match="less than 4 standard deviations of the servers' noise"):
            await net.finish_round()
        await all_submit(net, lambda place: {"count": [95.0]})
        await net.finish_round()


# ---- killed at every point


async def take_part(client: Client) -> None:
    for _ in range(2):
        await client.submit(values(NAMES.index(client.name)))
        await client.outcome()


async def lived_through(crash: Crash | None, rounds: int = 2, **changes: Any) -> World:
    schedule = Schedule(clients=3, seconds=50.0, rounds=rounds)
    made = task(**changes)
    faults = [] if crash is None else [crash]
    async with world(made, model(made), 5, faults, schedule, clients=NAMES) as lived:
        for name in NAMES:
            lived.start(name, take_part)
        await lived.wait_settled(2)
        await lived.wait_until(lambda: all(server.status().stage == "resting" for server in lived.servers))
        return lived


def crashes() -> list[Any]:
    ways = [at for at in declared("ssa") if (at.state, at.after) in WAYS]
    points = [
        AtTransition(*at, moment) for at in ways for moment in (MOMENTS[:3] if at.after == "Combined" else MOMENTS)
    ]
    points.sort(key=lambda point: point.moment not in QUICK)
    found = [(Crash(name, point, 1.0), marks) for (point, name), marks, _ in sides(points, SERVERS)]
    return [
        pytest.param(each, marks=marks if each.point.moment in QUICK else pytest.mark.slow) for each, marks in found
    ]


@pytest.mark.parametrize("crash", crashes(), ids=str)
async def test_a_killed_server_stands_by_its_noise_and_its_ledger(crash: Crash, autojump_clock: trio.abc.Clock) -> None:
    lived = await lived_through(crash)
    assert lived.injector.fired == [crash]
    assert lived.contradictions == []
    for number in (1, 2):
        assert lived.settled[0][number] == lived.settled[1][number]
        assert lived.settled[0][number].ended == "done"
    for server in lived.servers:
        assert charged(server) == 2
    for name in SERVERS:
        said: dict[tuple[type, bytes], set[bytes]] = {}
        for _, note in lived.transcript:
            if note.sender == name and isinstance(note.message, Commitment | Share):
                what = note.message.commitment if isinstance(note.message, Commitment) else note.message.nonce
                said.setdefault((type(note.message), note.message.round_id), set()).add(what)
        assert said
        assert all(len(words) == 1 for words in said.values()), "one commitment and one share a round, however often"


@pytest.mark.parametrize("counting", [{}, {"min_contributors": 2, "lying_clients": 0}], ids=["values", "counts"])
async def test_a_server_that_is_back_before_its_commitment_forms_the_same_share_again(
    counting: dict[str, Any], monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """As from a store that was put back: its randomness is another one, and its noise is not."""
    formed: list[tuple[bytes, ...]] = []
    keep_list = ShareRecords.keep_list

    async def seen(shares: ShareRecords, pieces: tuple[bytes, ...]) -> bytes:
        formed.append(pieces)
        return await keep_list(shares, pieces)

    monkeypatch.setattr(ShareRecords, "keep_list", seen)
    before = "Chosen" if counting else "Verified"
    back = next(at for at in declared("ssa") if (at.state, at.after) == (before, "Committed"))
    lived = await lived_through(Crash("S0", AtTransition(*back, "before write"), 1.0), **counting)
    assert lived.settled[0][1].ended == "done"
    assert len(set(formed)) == 4, "of each server one share a round, though one was formed twice"


async def test_other_submissions_have_other_noise_and_other_opened_rows_have_not() -> None:
    made, counted = task(), {"anna": b"1" * 32, "ben": b"2" * 32}
    async with simulate(made, model(made), seed=3) as net:
        servers = [((await server.next_round(0)).config, server.setup) for server in net.servers]
    nothing = bytes(made.block("items").weights * 8)
    whole = Span(0, 0, 40, 2)

    def noise(index: int = 0, **changes: bytes) -> bytes:
        config, setup = servers[index]
        return Noise(config, setup.identity, setup.lane).of_share(counted | changes, {})(whole, nothing)

    assert noise() == noise()
    assert len({noise(), noise(index=1), noise(ben=b"3" * 32), noise(carol=b"3" * 32)}) == 4
    config, setup = servers[0]
    opened = {"items": np.array([3, 30], dtype=np.uint32)}
    rows = Noise(config, setup.identity, setup.lane).of_share(counted, opened)(Span(0, 1, 2, 2), bytes(16))
    assert rows == noise()[30 * 16 : 31 * 16]


# ---- the ledger


async def test_every_round_is_charged_and_told() -> None:
    made = task()
    async with simulate(made, model(made), seed=3) as net:
        for rounds in (0, 1):
            (note,) = net.servers[0].status().notes
            assert note.figures["privacy_epsilon"] == TWO_ROUNDS.epsilon(rounds)
            assert charged(net.servers[0]) == rounds
            assert note.more.endswith(f"one more would make it ε = {TWO_ROUNDS.epsilon(rounds + 1):.3g}")
            await all_submit(net, values)
            await net.finish_round()


async def test_a_round_that_is_aborted_before_it_is_revealed_costs_nothing() -> None:
    made = task()
    async with simulate(made, model(made), seed=3) as net:
        run = await net.servers[0].next_round(0)
        await net.servers[0].abort_round(run.config.number, "no need")
        assert [charged(server) for server in net.servers] == [0, 0]


async def test_a_spent_budget_opens_no_further_round(autojump_clock: trio.abc.Clock) -> None:
    """Both servers rest, say why and what to do, and still do when they are started again."""
    assert TWO_ROUNDS.rounds == 2
    last = AtTransition("ssa", "Concluded", "PeerConclusion", "Done", "after write", occurrence=2)
    lived = await lived_through(Crash("S0", last, 1.0), rounds=9)
    told = [event for _, _, event in lived.events if isinstance(event, PrivacyCharged)]
    assert sorted((event.number, event.rounds) for event in told) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    assert {event.epsilon for event in told if event.number == 2} == {TWO_ROUNDS.epsilon(2)}
    for name, server in zip(SERVERS, lived.servers, strict=True):
        status = server.status()
        assert status.stage == "resting"
        assert "round 3 is not opened: 2 rounds have spent ε = 1." in status.waiting_for
        assert "agree on a new task" in status.waiting_for
        warned = [event for _, who, event in lived.events if isinstance(event, Warned) and who == name]
        assert {event.about for event in warned} == {"privacy"}
        assert all(3 not in settled for settled in lived.settled)


# ---- with contributors


async def test_counts_have_noise_too_and_the_round_is_charged_once() -> None:
    made = task(
        blocks=(Sparse("items", rows=400, select=3, width=2), Dense("head", size=5)),
        min_contributors=2,
        lying_clients=0,
        privacy=Privacy(noise=0.05, delta=1e-6, budget=1e6),
    )
    assert made.doses.counts == 1
    async with simulate(made, model(made), seed=3) as net:
        for rounds in (1, 2):
            await all_submit(net, lambda place: {"items": ([7, 8, 20 + place], np.full((3, 2), 5.0))})
            outcome = await net.finish_round()
            assert [charged(server) for server in net.servers] == [rounds] * 2
        opened = set(outcome.opened_rows["items"].tolist())
        first, second = (server.model["items"] for server in net.servers)
    assert first.tobytes() == second.tobytes()
    assert {7, 8} & opened
    assert 3 < len(opened) < 200, "noise lifts some rows over the least count"


async def test_rows_that_the_noise_on_counts_has_opened_stay_as_they_were() -> None:
    made = task(
        blocks=(Sparse("items", rows=1000, select=3, width=2),), min_contributors=2, lying_clients=0, privacy=LITTLE
    )
    assert made.doses.counts == 2
    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, lambda place: {"items": ([7], np.full((1, 2), 11.0))})
        outcome = await net.finish_round()
        first, second = (server.model["items"] for server in net.servers)
    assert len(outcome.opened_rows["items"]) > 200, "the noise alone is more than the least count"
    assert first.tobytes() == second.tobytes()
    assert np.count_nonzero(first.any(axis=1)) < 5


async def test_a_peer_that_halts_once_it_has_seen_the_counts_has_cost_the_round() -> None:
    made = task(blocks=(Sparse("items", rows=40, select=3, width=2),), min_contributors=2, lying_clients=0)
    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, lambda place: {"items": ([7, 8, 20 + place], np.full((3, 2), 5.0))})
        ledgers = [server.records.ledger for server in net.servers]
        run = await net.servers[0].next_round(0)
        await net.servers[0].inbox.post(run.round_id, CloseRound())
        while not any(ledger.rounds for ledger in ledgers):
            await trio.lowlevel.checkpoint()
        assert type(net.servers[[ledger.rounds for ledger in ledgers].index(1)].running.state).__name__ == "Tallied"


# ---- servers that lie


async def test_a_server_that_leaves_out_its_noise_does_not_undo_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(blocks=(Dense("head", size=8000),))
    async with simulate(made, model(made), seed=3) as net:
        await all_submit(net, lambda place: {"head": np.full(8000, 0.125)})
        course = net.servers[1].running.aggregation
        monkeypatch.setattr(course._computation._noise, "of_share", lambda *_: lambda _, piece: bytes(piece))
        outcome = await net.finish_round()
    errors = outcome.elements["head"] - 3 * 128
    assert errors.var() / made.doses.values**2 == pytest.approx(1, abs=5 * (2 / 8000) ** 0.5)


async def test_a_peer_that_halts_once_it_has_the_share_has_cost_the_round(autojump_clock: trio.abc.Clock) -> None:
    """S1 is killed as S0's share reaches it, and stays away: S0 has charged the round, and its clients have too."""
    gone = Crash("S1", AtTransition("ssa", "Revealed", "PeerShare", "Combined", "before write"), 100.0)
    schedule = Schedule(clients=3, seconds=50.0, rounds=1)
    made = task()
    async with world(made, model(made), 5, [gone], schedule, clients=NAMES) as lived:
        for name in NAMES:
            lived.start(name, take_part)
        await lived.wait_until(lambda: lived.injector.fired == [gone])
        assert charged(lived.servers[0]) == 1
        assert not lived.settled[1]
