"""What a server sees of a client does not depend on whether it has a row that the server has marked with an error.

In `taking_part` a client whose training fails submits zeros in place of its update; and the programs that this project
shows, its demo among them, train nowhere else.
"""

import ast
import asyncio
import inspect
import runpy
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

import parties.aio
from fsl_async.errors import MisuseError
from fsl_async.task import Task
from fsl_async.wire.messages import Message
from parties import Client, Network, RoundClosedError, SumRefusedError, simulate, simulate_blocking
from parties.client.actor import Actor
from parties.client.requests import Requests
from tests import ROOT
from tests.support import guide
from tests.support.cases import in_turn
from tests.support.shop import TASK, WIDTH, Basket, model, take_part

Seen = defaultdict[str, list[tuple[str, int]]]
"""By client, what the servers were sent: the kind of message, and the size of its bulk."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen: Seen = defaultdict(list)
    ask = Requests._ask_once

    async def note(self: Requests, server: int, message: Message, bulk: tuple[Any, ...], *more: Any) -> Any:
        seen[self._name].append((type(message).__name__, sum(len(part) for part in bulk)))
        return await ask(self, server, message, bulk, *more)

    monkeypatch.setattr(Requests, "_ask_once", note)
    return seen


def mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, clients retrieve rows to which a server has added an error."""
    retrieve = Actor._retrieve

    async def marked(self: Actor, *wanted: Any) -> dict[str, Any]:
        found = await retrieve(self, *wanted)
        return {name: np.full_like(array, 1e30) if array.dtype.kind == "f" else array for name, array in found.items()}

    monkeypatch.setattr(Actor, "_retrieve", marked)


# ---- every kind of task


def task_with(**changes: Any) -> Task:
    return msgspec.structs.replace(TASK, **changes)


TASKS = {
    "plain": TASK,
    "verified": task_with(security="verified"),
    "semi-honest": task_with(security="semi-honest"),
    "trees of its own": task_with(updates="any"),
    "a session": task_with(selection="fixed"),
    "a bound": task_with(bound=200.0, bound_proof="projected"),
    "contributors": task_with(min_contributors=2, lying_clients=0),
    "a mean": task_with(apply="mean"),
}


@in_turn("name", TASKS)
async def test_zeros_look_like_the_update_whose_training_failed(name: str, seen: Seen) -> None:
    """In two rounds, so that those of a session are hinted once."""
    sent = []
    for fails in (False, True):
        seen.clear()
        async with simulate(TASKS[name], model(), seed=1) as network, network.client("carol") as carol:
            for number in (1, 2):
                async with network.client("anna") as anna:
                    await take_part(anna)
                async with carol.taking_part():
                    basket = Basket("carol")
                    await carol.retrieve({"items": basket.rows, "head": ...})
                    if fails:
                        raise ArithmeticError("what came out is no number")
                    await carol.submit(basket.update)
                outcome = await network.finish_round()
                assert (outcome.number, outcome.clients) == (number, ("anna", "carol"))
                assert not fails or np.array_equal(outcome.update["head"], Basket("anna").head)
        sent.append(sorted(seen["carol"][2:]))
    assert sent[0] == sent[1]


async def test_zeros_weigh_nothing_in_a_weighted_mean() -> None:
    weighted = task_with(blocks=(*TASK.blocks, msgspec.structs.replace(TASK.blocks[1], name="examples", size=1)))
    weighted = msgspec.structs.replace(weighted, apply="weighted-mean", weights="examples")
    async with simulate(weighted, model(), seed=1) as network:
        for name in ("anna", "carol"):
            async with network.client(name) as client, client.taking_part():
                await client.retrieve({"items": Basket(name).rows})
                await client.submit({**Basket(name).update, **({"examples": [2.0]} if name == "anna" else {})})
        outcome = await network.finish_round()
        assert outcome.clients == ("anna", "carol")
        assert outcome.update["examples"].tolist() == [2.0]


async def test_a_client_abstains_from_a_union_and_from_the_round_on_it() -> None:
    united = task_with(alignment="union")
    async with (
        simulate(united, model(), seed=1) as network,
        network.client("anna") as anna,
        network.client("carol") as carol,
    ):
        await anna.unite({"items": [1, 2]})
        async with carol.taking_part():
            await carol.retrieve({"items": [3]})  # refused: the round finds the union first
        assert (await network.finish_union())["items"].tolist() == [1, 2]
        await anna.submit({"items": ([1], np.ones((1, WIDTH)))})
        async with carol.taking_part():
            await carol.retrieve({"items": [3]})
        assert (await network.finish_round()).clients == ("anna", "carol")


# ---- which errors, and when


async def retrieved_and_failed(client: Client, error: BaseException) -> None:
    async with client.taking_part():
        await client.retrieve({"items": [1]}, wait=True)
        raise error


async def rounds(network: Network, client: Client) -> None:
    async with network.client("anna") as anna:
        await take_part(anna)
    assert (await network.finish_round()).clients == ("anna", client.name)


async def test_an_error_that_zeros_replace_is_logged_and_every_other_one_is_raised(caplog) -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        async with carol.taking_part():
            await carol.retrieve({"items": [1]})
            await carol.submit({"items": ([1], np.full((1, WIDTH), 1e30))})
        (record,) = caplog.records
        assert (record.levelname, record.name) == ("ERROR", "parties.client")
        assert isinstance(record.exc_info[1], MisuseError)
        with pytest.raises(ArithmeticError):  # it has submitted
            async with carol.taking_part():
                raise ArithmeticError
        await rounds(network, carol)
        for error in (KeyboardInterrupt(), RoundClosedError("gone")):
            with pytest.raises(type(error)):
                await retrieved_and_failed(carol, error)
        assert not carol.pending
        assert await carol.abstain()
        assert not await carol.abstain()
        await rounds(network, carol)


def test_the_other_fronts_abstain_too() -> None:
    with simulate_blocking(TASK, model(), seed=1) as network:
        for name in ("anna", "carol"):
            with network.client(name) as client, client.taking_part():
                client.retrieve({"items": [1]})
                raise ArithmeticError(name)
        assert network.finish_round().clients == ("anna", "carol")

    async def main() -> tuple[str, ...]:
        async with parties.aio.simulate(TASK, model(), seed=1) as network:
            for name in ("anna", "carol"):
                async with network.client(name) as client, client.taking_part():
                    await client.retrieve({"items": [1]})
                    raise ArithmeticError(name)
            return (await network.finish_round()).clients

    assert asyncio.run(main()) == ("anna", "carol")


# ---- the programs that this project shows


def example(name: str) -> Callable[[], None]:
    return lambda: runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def page(name: str) -> Callable[[], None]:
    def run() -> None:
        session: dict[str, Any] = {}
        for language, content in guide.fenced((ROOT / name).read_text(encoding="utf-8")):
            if language == "python":
                code = compile(content, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                outcome = eval(code, session)
                if inspect.iscoroutine(outcome):
                    asyncio.run(outcome)

    return run


EXAMPLES = ("in_memory.py", "epochs.py", "over_tcp.py", "setups_by_hand.py", "union.py")
PROGRAMS = {
    **{name: example(name) for name in EXAMPLES},
    **{name: page(name) for name in ("README.md", "docs/fronts.md", "docs/tutorials/first-round.md")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_retrieves_a_marked_row_is_like_one_that_does_not(
    name: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end where it compares results, which no server sees: up to there both do the same."""
    PROGRAMS[name]()
    plain = {client: list(messages) for client, messages in seen.items()}
    seen.clear()
    mark(monkeypatch)
    with suppress(AssertionError, SumRefusedError):  # the servers refuse a mean of weights that are all 0
        PROGRAMS[name]()
    assert seen.keys() == plain.keys()
    for client, messages in seen.items():
        assert sorted(messages) == sorted(plain[client][: len(messages)])
        assert {"Submit", "Hint"} & {kind for kind, _ in messages}
