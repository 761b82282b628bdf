"""A client that trained too long brings its update into the next round, where the task allows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest

from fsl_async import MisuseError
from parties import Client, Network, RoundClosedError, simulate, simulate_blocking
from parties.client.submitting import Submitter
from tests.support.shop import TASK, Basket, model

ANY = msgspec.structs.replace(TASK, updates="any")


async def others(net: Network) -> None:
    for name in ("ben", "cleo"):
        async with net.client(name) as client:
            await client.submit(Basket(name).update)


@asynccontextmanager
async def late() -> AsyncIterator[tuple[Network, Client, Basket]]:
    """Anna has retrieved, and is not done when the others have submitted."""
    basket = Basket("anna")
    async with simulate(ANY, model(), seed=1) as net, net.client("anna") as anna:
        await anna.retrieve({"items": basket.rows, "head": ...})
        await others(net)
        yield net, anna, basket


async def test_a_late_update_is_in_the_next_round_s_sum_and_once():
    async with late() as (net, anna, basket):
        assert (await net.finish_round()).clients == ("ben", "cleo")
        receipt = await anna.submit(basket.update, late="next")
        assert receipt.number == anna.round_number == 2
        await others(net)
        outcome = await net.finish_round()
        assert outcome.clients == ("anna", "ben", "cleo")
        assert (await anna.outcome()).counted
        rows, values = basket.update["items"]
        alone = [row for row in rows if all(row not in Basket(name).rows for name in ("ben", "cleo"))]
        assert alone
        assert np.allclose(outcome.update["items"][alone], values[np.isin(rows, alone)])


async def test_a_round_that_closes_while_it_is_on_its_way_changes_nothing(monkeypatch):
    """Both servers have signed that it is not counted; only then is it made anew."""
    async with late() as (net, anna, basket):
        whole = Submitter.deliver

        async def overtaken(submitter, draft):
            monkeypatch.setattr(Submitter, "deliver", whole)
            assert (await net.finish_round()).clients == ("ben", "cleo")
            return await whole(submitter, draft)

        monkeypatch.setattr(Submitter, "deliver", overtaken)
        assert (await anna.submit(basket.update, late="next")).number == 2
        await others(net)
        assert "anna" in (await net.finish_round()).clients


async def test_without_it_the_round_is_closed():
    async with late() as (net, anna, basket):
        await net.finish_round()
        with pytest.raises(RoundClosedError):
            await anna.submit(basket.update)


def test_a_task_of_retrieved_rows_says_by_which_calls_to_go_on_and_they_do():
    basket = Basket("anna")
    with simulate_blocking(TASK, model(), seed=1) as net, net.client("anna") as anna:
        for _ in range(2):
            anna.retrieve({"items": basket.rows, "head": ...})
            with pytest.raises(
                MisuseError, match=r"call `retrieve` for the same rows.*and `submit` the same update there"
            ):
                anna.submit(basket.update, late="next")
            for name in ("ben", "cleo"):
                with net.client(name) as client:
                    client.submit(Basket(name).update)
            net.finish_round()
        with pytest.raises(RoundClosedError):
            anna.submit(basket.update)
        anna.retrieve({"items": basket.rows, "head": ...})
        assert anna.submit(basket.update).number == 3
        with pytest.raises(MisuseError, match='"next" or None expected'):
            anna.submit(basket.update, late="later")
