"""Rounds that average, step by an optimizer or apply a function of one's own: servers that are killed lose nothing."""

import itertools
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import trio
from _pytest.mark import ParameterSet

from fsl_async import Adam, Dense, MisuseError, Momentum, Ring, RoundFacts, Sparse, Task
from fsl_async.errors import leaves
from fsl_async.server.rules import average_and_step, describe_state
from parties import MemoryStore, Server, SumRefusedError, simulate
from parties.client.client import Client
from parties.compute import InlineLane
from parties.events import Warned
from parties.schedule import Schedule
from parties.server.round import conclusion
from parties.simulation.network import SERVERS
from parties.testing.faults import AtTransition, Crash
from parties.testing.machines import declared
from parties.testing.world import World, world
from tests.parties.server.test_noise import MOMENTS, NAMES, all_submit

COUNTED = Dense("examples", size=1)


def task(**changes: Any) -> Task:
    blocks = (Sparse("items", rows=16, select=3, width=2), Dense("head", size=3))
    weights = (COUNTED,) if changes.get("weights") else ()
    fields: dict[str, Any] = {
        "name": "rules",
        "blocks": (*blocks, *weights),
        "ring": Ring(64, fraction_bits=24),
        "min_clients": 2,
        "max_clients": 5,
    }
    return Task(**(fields | changes))


FED_ADAM: dict[str, Any] = {"apply": "weighted-mean", "weights": "examples", "optimizer": Adam(0.5)}


def model() -> dict[str, npt.NDArray[Any]]:
    return {"items": np.ones((16, 2), dtype=np.float32), "head": np.full(3, 0.5)}


def values(place: int, weighted: bool) -> dict[str, Any]:
    weight = place + 1
    given = {"items": ([1, place + 2], np.full((2, 2), weight * 0.25)), "head": np.full(3, -weight * 1.5)}
    return given | ({"examples": [weight]} if weighted else {})


def expected(made: Task, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model and the state after so many rounds of all three clients, in the clear."""
    total = {"items": np.zeros((16, 2)), "head": np.zeros(3), "examples": np.zeros(1)}
    for place in range(len(NAMES)):
        for name, given in values(place, weighted=True).items():
            rows, change = given if isinstance(given, tuple) else (..., given)
            total[name][rows] += change
    counts = np.bincount([row for place in range(len(NAMES)) for row in values(place, weighted=True)["items"][0]])
    counted = {"items": np.pad(counts, (0, 16 - len(counts)))} if made.rule == "row-mean" else {}
    now, state = model(), {}
    for _ in range(rounds):
        now, state = average_and_step(made, now, total, state, len(NAMES), counted)
    return now, state


async def take_part(client: Client) -> None:
    """In two rounds; killed servers make no difference, and neither does a sum that is refused."""
    weighted = client.task.weights is not None
    for _ in range(2):
        await client.submit(values(NAMES.index(client.name), weighted), again=True)
        with suppress(SumRefusedError):
            await client.outcome()


# ---- the formulae of the paper, end to end


@pytest.mark.parametrize(
    "rule",
    [{"apply": "mean"}, {"apply": "mean", "optimizer": Momentum(0.5)}, FED_ADAM, {"apply": "row-mean"}],
    ids=["FedAvg", "FedAvgM", "FedAdam", "mean of each row"],
)
async def test_rounds_give_what_the_clear_gives(rule: dict[str, Any]) -> None:
    made = task(**rule)
    async with simulate(made, model(), seed=3) as net:
        for number in (1, 2, 3):
            await all_submit(net, lambda place: values(place, made.weights is not None))
            outcome = await net.finish_round()
            assert outcome.update["head"].tolist() == [-9.0] * 3, "the exact sum, whatever is made of it"
            now, state = expected(made, number)
            for server in net.servers:
                assert {name: array.tobytes() for name, array in server.model.items()} == {
                    name: array.tobytes() for name, array in now.items()
                }
                assert describe_state(server.rule_state) == describe_state(state)
                report = (await server.past_rounds())[-1].report
                assert report.state == describe_state(state)


async def test_rows_of_a_union_are_averaged_over_the_whole_block() -> None:
    made = task(**FED_ADAM, alignment="union")
    async with simulate(made, model(), seed=3) as net, net.client("anna") as anna, net.client("ben") as ben:
        for client in (anna, ben):
            await client.unite({"items": [1, 2, 3]})
        await net.finish_union()
        assert net.servers[0].rule_state == {}, "a union round applies nothing"
        for place, client in enumerate((anna, ben)):
            await client.submit(values(place, weighted=True))
        await net.finish_round()
        assert net.servers[0].rule_state["first/items"].shape == (16, 2)
        untouched = np.delete(net.model["items"], [1, 2, 3], axis=0)
        assert untouched.tobytes() == np.ones((13, 2), dtype=np.float32).tobytes()
        assert (net.model["items"][[1, 2, 3]] != 1).all()


# ---- weights


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"examples": [-1]}, "block 'examples': a weight of at least 0 expected, got -1"),
        ({"examples": [float("nan")]}, "block 'examples': nan at .0. is not a finite number"),
        ({}, "block 'examples' is missing: submit this client's weight"),
    ],
)
async def test_a_wrong_weight_is_refused_before_anything_is_sent(given: dict[str, Any], words: str) -> None:
    async with simulate(task(**FED_ADAM), model(), seed=3) as net, net.client("anna") as anna:
        before = len(net.transcript)
        with pytest.raises(MisuseError, match=words):
            await anna.submit({"head": np.zeros(3)} | given)
        assert not any(type(note.message).__name__ == "Submit" for note in net.transcript[before:])
        with pytest.raises(MisuseError, match="weights and no model: leave it out"):
            await anna.retrieve({"examples": ...})


async def test_without_any_weight_the_sum_is_refused_and_the_next_round_is_averaged() -> None:
    async with simulate(task(**FED_ADAM), model(), seed=3) as net:
        await all_submit(net, lambda _: {})
        with pytest.raises(SumRefusedError, match="'examples' sum to 0, so there is no mean; the model stays"):
            await net.finish_round()
        assert [server.rule_state for server in net.servers] == [{}, {}]
        await all_submit(net, lambda _: {"head": np.zeros(3), "examples": [2]})
        await net.finish_round()
        reports = [past.report.ended for past in await net.servers[1].past_rounds()]
        assert reports == ["refused", "done"]


# ---- killed at every point of a round


def crashes(turn: int, *, own_rule: bool = False) -> list[ParameterSet]:
    """Each server dies at each point where the sum is opened and applied.

    Of three tests with these, each in its turn has a third of the points in every run, with one of the servers.
    """
    after = ("Combined", "Concluded", "Differed" if own_rule else "Done")
    moments = {"Combined": MOMENTS[:3]}  # a server that gets a share has nothing to say at once
    ways = [at for at in declared("ssa") if at.after in after and at.state in ("Revealed", "Combined", "Concluded")]
    points = [AtTransition(*at, moment) for at in ways for moment in moments.get(at.after, MOMENTS)]
    return [
        pytest.param(
            Crash(name, point, 1.0),
            marks=() if number % 3 == turn and number // 3 % 2 == place else pytest.mark.slow,
        )
        for number, point in enumerate(points)
        for place, name in enumerate(SERVERS)
    ]


async def lived_through(made: Task, crash: Crash | None, *rules: Any) -> World:
    def with_rule(index: int) -> Any:
        return lambda setup: Server(replace(setup, apply=rules[index]) if rules else setup)

    schedule = Schedule(clients=3, seconds=50.0, rounds=2)
    faults = [] if crash is None else [crash]
    async with world(made, model(), 5, faults, schedule, (with_rule(0), with_rule(1)), clients=NAMES) as lived:
        for name in NAMES:
            lived.start(name, take_part)
        await lived.wait_settled(2)
        return lived


@pytest.mark.parametrize("crash", crashes(0), ids=str)
async def test_a_server_killed_while_it_applies_arrives_at_the_same_bits(
    crash: Crash, autojump_clock: trio.abc.Clock
) -> None:
    made = task(**FED_ADAM)
    lived = await lived_through(made, crash)
    assert lived.injector.fired == [crash]
    for server, number in itertools.product((0, 1), (1, 2)):
        now, state = expected(made, number)
        report = lived.settled[server][number]
        assert (report.ended, report.state) == ("done", describe_state(state))
        for name, array in lived.models[server].get(number, now).items():
            assert array.tobytes() == now[name].tobytes(), f"S{server}, round {number}"


# ---- a function of one's own


def plain(model: Any, update: Any, facts: RoundFacts) -> Any:
    facts.state["rounds"] = facts.state.get("rounds", np.zeros(1, dtype=np.int64)) + 1
    return {name: (array + update[name]).astype(array.dtype) for name, array in model.items()}


def different(model: Any, update: Any, facts: RoundFacts) -> Any:
    made = plain(model, update, facts)
    return made if facts.number > 1 else made | {"head": made["head"] + 1}


def fails(model: Any, update: Any, facts: RoundFacts) -> Any:
    raise RuntimeError(f"the sum is {update['head'][0]}")


class Unsteady:
    """Another result each time that it is called, as of a function that draws random numbers."""

    def __init__(self, start: int) -> None:
        self.calls = start

    def __call__(self, model: Any, update: Any, facts: RoundFacts) -> Any:
        self.calls += 1
        return {name: (array + self.calls).astype(array.dtype) for name, array in model.items()}


async def test_a_function_and_its_state_are_applied_by_both_servers() -> None:
    async with simulate(task(apply=plain), model(), seed=3) as net:
        for number in (1, 2):
            await all_submit(net, lambda place: values(place, weighted=False))
            await net.finish_round()
            assert [server.rule_state["rounds"].tolist() for server in net.servers] == [[number]] * 2
        assert net.model["head"].tolist() == [0.5 - 18.0] * 3


@pytest.mark.parametrize("crash", [None, *crashes(1, own_rule=True)], ids=str)
async def test_where_the_servers_functions_differ_nothing_is_applied(
    crash: Crash | None, autojump_clock: trio.abc.Clock
) -> None:
    """The old model stays on both, clients are told, operators read both digests, and the next round opens."""
    lived = await lived_through(task(apply=plain), crash, plain, different)
    if crash is not None:
        assert lived.injector.fired == [crash]
    first, second = (lived.settled[server][1] for server in (0, 1))
    assert first == second
    assert first.ended == "refused"
    assert "the task's own rule gave S0 the outcome " in first.explanation
    for server in (0, 1):
        assert lived.models[server].get(1, model())["head"].tolist() == [0.5] * 3
        assert lived.settled[server][2].ended == "done"
        assert lived.models[server][2]["head"].tolist() == [0.5 - 9.0] * 3
        kept = lived.servers[server].records.evidence._kept  # a server that was killed may not have told of it
        assert kept == {(1, SERVERS[1 - server], "outcome")}


@pytest.mark.parametrize("crash", crashes(2), ids=str)
async def test_a_function_that_does_something_else_each_time_is_not_called_again(
    crash: Crash, autojump_clock: trio.abc.Clock
) -> None:
    """Killed before its word is stored, a server calls it again; afterwards it stands by what it said."""
    lived = await lived_through(task(apply=plain), crash, Unsteady(0), Unsteady(0))
    assert lived.injector.fired == [crash]
    assert lived.contradictions == []
    for number in (1, 2):
        assert lived.settled[0][number] == lived.settled[1][number]
        models = [lived.models[server].get(number) for server in (0, 1)]
        if None not in models:
            assert models[0]["head"].tolist() == models[1]["head"].tolist()


async def test_a_function_that_raises_refuses_the_sum_and_only_operators_read_why(
    autojump_clock: trio.abc.Clock,
) -> None:
    lived = await lived_through(task(apply=plain), None, fails, fails)
    for server in (0, 1):
        report = lived.settled[server][1]
        assert (report.ended, report.explanation) == ("refused", f"{__name__}:plain raised RuntimeError")
        assert lived.models[server].get(1, model())["head"].tolist() == [0.5] * 3
    warned = [event.explanation for _, _, event in lived.events if isinstance(event, Warned) and event.about == "apply"]
    assert len(warned) == 4, "each server, in each round"
    assert f"raised RuntimeError: the sum is -9.0 in {__file__}, line " in warned[0]


async def test_while_a_function_takes_long_the_log_names_it_and_its_round(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """At first after a minute, then after twice as long a time each; what it gives is applied as ever."""

    async def slow(lane: InlineLane, work: Any) -> Any:
        await trio.sleep(250 if getattr(work, "func", None) is conclusion._applied else 0)
        return work()

    monkeypatch.setattr(InlineLane, "run", slow)
    lived = await lived_through(task(apply=plain), None, plain, plain)
    assert [lived.settled[0][number].ended for number in (1, 2)] == ["done"] * 2
    for server in SERVERS:
        said = [event.explanation for _, name, event in lived.events if isinstance(event, Warned) and name == server]
        waited = ["60 s; the round waits", "120 s; the round waits", "240 s; the round waits"]
        assert [text.partition(" until")[0] for text in said] == [
            f"{__name__}:plain has been at work on the sum of round {number} for {after}"
            for number in (1, 2)
            for after in waited
        ]


async def test_a_built_in_rule_is_not_watched(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock) -> None:
    monkeypatch.setattr(conclusion, "watched", None)
    lived = await lived_through(task(apply="mean"), None)
    assert lived.settled[0][2].ended == "done"


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError


def ends_the_process(model: Any, update: Any, facts: RoundFacts) -> Any:
    sys.exit(3)


def says_nothing(model: Any, update: Any, facts: RoundFacts) -> Any:
    raise MuteError


def says_too_much(model: Any, update: Any, facts: RoundFacts) -> Any:
    raise ValueError("x" * 1_000_000)


@pytest.mark.parametrize("function", [ends_the_process, says_nothing, says_too_much], ids=lambda rule: rule.__name__)
async def test_whatever_a_function_raises_the_server_lives_and_the_next_round_opens(
    function: Any, autojump_clock: trio.abc.Clock
) -> None:
    lived = await lived_through(task(apply=plain), None, function, function)
    for server in (0, 1):
        assert [lived.settled[server][number].ended for number in (1, 2)] == ["refused"] * 2
    warned = [event.explanation for _, _, event in lived.events if isinstance(event, Warned) and event.about == "apply"]
    assert all(f"in {__file__}, line " in explanation and len(explanation) < 2000 for explanation in warned)
    assert len(warned) == 4


def test_a_module_that_ends_the_process_when_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_script_of_test.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MisuseError, match="cannot be imported: SystemExit"):
        _setup_of(task(apply="a_script_of_test:rule"))


def test_a_name_that_leads_nowhere_is_refused_before_a_server_starts() -> None:
    for name in ("no.such.module:f", f"{__name__}:no_such_function", f"{__name__}:NAMES"):
        with pytest.raises(MisuseError, match=f'apply = "{name}"'):
            _setup_of(task(apply=name))
    with pytest.raises(MisuseError, match='a function was given, and the task applies the "sum"'):
        _setup_of(task(), apply=plain)


def test_a_state_of_another_task_is_refused_before_a_server_starts() -> None:
    with pytest.raises(MisuseError, match="with Adam, keeps"):
        _setup_of(task(**FED_ADAM), state={"velocity/items": np.zeros((16, 2))})


def _setup_of(made: Task, **changes: Any) -> Server:
    from parties.compute import InlineLane
    from parties.simulation.network import Network

    fine = Network(task(), model(), 1, InlineLane())
    return Server(replace(fine.servers[0].setup, task=made, **changes))


# ---- a state of before


async def test_servers_with_different_states_find_out_at_the_toss() -> None:
    made = task(**FED_ADAM)
    _, state = expected(made, 1)
    async with simulate(made, model(), seed=3) as net:
        with pytest.raises(BaseExceptionGroup) as ended:
            await _with_states(net, [state, {}])
    assert all("holds another model" in str(error) for error in leaves(ended.value))


async def _with_states(net: Any, states: list[Any]) -> None:
    async with trio.open_nursery() as nursery:
        servers = [
            Server(replace(server.setup, state=state, store=MemoryStore(), address=f"again-{server.setup.name}"))
            for server, state in zip(net.servers, states, strict=True)
        ]
        servers[1] = Server(replace(servers[1].setup, peer_address="again-S0"))
        for server in servers:
            await nursery.start(server.run)
        await trio.sleep(1)
