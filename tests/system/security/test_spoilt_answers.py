"""A server that spoils the answer of one bin sees nothing of it: its client submits all the same, in the same shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Answer, FromServer, Message, Submit
from parties import Client, simulate
from parties.commands.demo.corpus import load
from parties.commands.demo.learner import Learner, initial_model
from parties.commands.demo.taking_part import Summary, demo_task, take_part
from tests.support.shop import meddled, pass_on

CLIENTS = 2


async def spoilt(address: str, message: Message, data: bytes) -> bytes | None:
    """S0's answers, all of them changed."""
    if address != "S0" or not isinstance(message, Answer):
        return data
    bulk = bytes(byte ^ 0x7F for byte in decode(data, FromServer, "S0").bulk)
    return b"".join(encode(message, bulk))


@pytest.mark.parametrize("hook", [pass_on, spoilt], ids=["sound answers", "spoilt answers"])
async def test_the_demo_s_client_submits_whatever_it_retrieved(hook) -> None:
    corpus, sent = load(CLIENTS, 1), []

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if isinstance(message, Submit):
            sent.append((receiver, bulk, message.query))

    async with simulate(demo_task(CLIENTS), initial_model(), seed=1) as network:
        client = network.client("client-00")
        async with meddled(Client(replace(client.setup, watch=watch)), incoming=hook) as carol:
            summary = Summary({})
            await take_part(carol, Learner(corpus.shards[0], CLIENTS), 0, summary)
        async with network.client("client-01") as other:
            await other.submit({})
        outcome = await network.finish_round()
    assert outcome.clients == ("client-00", "client-01")
    assert [(receiver, query) for receiver, _, query in sorted(sent)] == [("S0", 1), ("S1", 1)]
    assert max(bulk for _, bulk, _ in sent) > 0
    assert len(summary.doubts) == (hook is spoilt)
    assert outcome.update["words"].any() == (hook is not spoilt)


def test_what_is_plausible_grows_with_the_rounds() -> None:
    learner = Learner(load(CLIENTS, 1).shards[0], CLIENTS)
    zeros, ones = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    assert learner.plausible(0, zeros)
    assert not learner.plausible(0, zeros, ones)
    assert learner.plausible(1, zeros, ones)
    assert not learner.plausible(9, np.full(2, np.nan, np.float32))
    assert not learner.plausible(9, np.full(2, np.inf, np.float32))
