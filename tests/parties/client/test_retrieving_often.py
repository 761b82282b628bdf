"""How often a client may retrieve: as often as the task says, in every round anew."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.errors import MisuseError
from parties import Client, RequestDeniedError, simulate
from parties.compute import InlineLane
from parties.storage.store import MemoryStore
from tests.support.shop import TASK, WIDTH, model, take_part


@pytest.mark.parametrize("retrievals", [1, 3])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_a_client_that_only_retrieves_begins_afresh_in_every_round(autojump_clock, retrievals, selection):
    task = msgspec.structs.replace(TASK, retrievals=retrievals, selection=selection)
    async with simulate(task, model(), seed=1) as network, network.client("reader") as reader:
        for number in (1, 2, 3):
            for _ in range(retrievals):
                found = await reader.retrieve({"items": [1, 2]})
                assert reader.round_number == number
                np.testing.assert_array_equal(found["items"], network.model["items"][[1, 2]])
            again = f"{retrievals} retrievals in one round .* which opens when round {number} is over"
            with pytest.raises(MisuseError, match=again):
                await reader.retrieve({"items": [1]})
            async with network.client("anna") as anna, network.client("ben") as ben:
                await take_part(anna, retrieves=False)
                await take_part(ben, retrieves=False)
            await network.finish_round()


async def test_who_has_used_up_its_retrievals_may_still_submit_and_goes_on_when_the_round_is_over(autojump_clock):
    task = msgspec.structs.replace(TASK, retrievals=1)
    update = {"items": ([1, 2], np.ones((2, WIDTH)))}
    network_of = simulate(task, model(), seed=1)
    async with network_of as network, network.client("anna") as anna, network.client("ben") as ben:
        await anna.retrieve({"items": [1, 2]})
        await anna.submit(update)
        await ben.retrieve({"items": [1, 2]})
        await network.servers[0].abort_round(1, "the test wants the next one")
        assert (await ben.submit(update)).number == 2


async def test_a_session_s_rows_are_recalled_as_often_in_every_round(autojump_clock):
    task = msgspec.structs.replace(TASK, retrievals=2, selection="fixed")
    rows = {"items": np.array([1, 2])}
    refused = r"at most 2 attempts to retrieve of one client .* ask again in the next round"
    network_of = simulate(task, model(), seed=1)
    async with network_of as network, network.client("reader") as reader, network.client("anna") as anna:
        for number in (1, 2, 3):
            for _ in range(2):
                assert (await reader.retrieve(rows))["items"].shape == (2, WIDTH)
            if number > 1:
                with pytest.raises(RequestDeniedError, match=refused):
                    await reader.retrieve(rows)
            for client in (anna, reader):
                await client.submit({"items": (rows["items"], np.zeros((2, WIDTH)))})
            await network.finish_round()
            await reader.outcome()
            await anna.outcome()


async def test_a_retrieval_that_ends_before_anything_is_sent_is_not_counted(autojump_clock):
    class Interrupting(InlineLane):
        async def run(self, work: Callable[[], Any]) -> Any:
            scope.cancel()
            await trio.sleep(1)  # the caller withdraws its call before anything is computed
            return await super().run(work)

    task = msgspec.structs.replace(TASK, retrievals=1)
    async with simulate(task, model(), seed=1) as network:
        setup = replace(network.client("anna").setup, store=MemoryStore())
        async with Client(replace(setup, lane=Interrupting())) as interrupted:
            with trio.CancelScope() as scope:
                await interrupted.retrieve({"items": [1, 2]})
            assert scope.cancelled_caught
        async with Client(setup) as anna:
            assert (await anna.retrieve({"items": [1, 2]}))["items"].shape == (2, WIDTH)
