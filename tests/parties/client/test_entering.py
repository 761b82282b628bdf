"""Entering a round: rounds that are for others are passed over for as long as it takes; no server makes it endless."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import PeerViolationError
from fsl_async.protocols.entry import Announced
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Enter, Message, Opened, Submit
from parties import simulate
from parties.client.client import Client
from parties.storage.store import MemoryStore
from tests.parties.server.round.test_sample import COVER, Crowd
from tests.parties.server.round.test_sample import model as drawn_model
from tests.parties.server.round.test_sample import task as drawn_task
from tests.support.lost_connections import finish_with
from tests.support.shop import TASK, WIDTH, Basket, meddled, model, take_part


async def test_a_client_that_is_not_drawn_for_very_long_waits_on() -> None:
    """As many rounds as nest in no program's stack."""
    rounds = 1500
    async with simulate(drawn_task(), drawn_model(), seed=1) as net:
        announced: list[RoundConfig] = []

        async def by_both(after: int, *_: object) -> tuple[Announced, Announced]:
            await trio.lowlevel.checkpoint()
            if after >= rounds:
                raise PeerViolationError("S0", "has said enough")
            config = msgspec.structs.replace(announced[0], number=after + 1)
            return Announced(0, config, drawn=False), Announced(1, config, drawn=False)

        async with trio.open_nursery() as nursery:
            Crowd(net).start(nursery, "ada", "bob", "eve")
            await net.draw()
            announced.append(net.servers[0].running.config)
            await net.finish_round()
        async with net.client("mia") as mia:
            mia._actor._entry._announcements.by_both = by_both
            with pytest.raises(PeerViolationError, match="has said enough"):
                await mia.retrieve(COVER, wait=True)
            assert mia._actor.participation.round.entry.after == rounds


async def test_a_server_that_announces_an_earlier_round_than_it_was_asked_for() -> None:
    asked: list[Message] = []

    async def note(address: str, said: Message, data: bytes) -> bytes:
        asked.append(said)
        return data

    async def ahead(address: str, said: Message, data: bytes) -> bytes:
        """S0 is ahead of S1, which never follows."""
        if address == "S0" and isinstance(said, Opened):
            config = RoundConfig.parse(said.config, address)
            said = Opened(msgspec.structs.replace(config, number=config.number + 7).canonical(), strange=False)
            return b"".join(encode(said))
        return data

    async def behind(address: str, said: Message, data: bytes) -> bytes:
        """S1 has its one round, whichever it is asked for."""
        if address == "S1" and isinstance(said, Enter):
            data = b"".join(encode(Enter(0, b"")))
        return await note(address, said, data)

    async with simulate(TASK, model(), seed=1) as net:
        async with meddled(net.client("carol"), outgoing=behind, incoming=ahead) as carol:
            with pytest.raises(
                PeerViolationError, match=r"^S1: announces round 1, and was asked for one after round 7"
            ):
                await carol.retrieve({"items": [1]})
        assert len(asked) < 20


async def test_an_earlier_outcome_leaves_the_trees_of_this_round(autojump_clock) -> None:
    async with simulate(TASK, model(), seed=1) as net, net.client("carol") as carol:
        await take_part(carol)
        await finish_with(net, "carol")
        basket = Basket("carol")
        await carol.retrieve({"items": basket.rows}, wait=True)
        assert (await carol.outcome()).number == 1
        await carol.submit(basket.update)
        sent = [note.message for note in net.transcript if isinstance(note.message, Submit) and note.sender == "carol"]
        assert [message.query for message in sent[-2:]] == [1, 1]  # of that round, whose trees it rides on


def with_bins(*servers: str):
    """What announces in these servers' names another number of bins, which is within a client's limits."""

    async def more(address: str, said: Message, data: bytes) -> bytes:
        if address not in servers or not isinstance(said, Opened):
            return data
        config = RoundConfig.parse(said.config, address)
        bins = tuple(number + 1 for number in config.bins)
        return b"".join(encode(Opened(msgspec.structs.replace(config, bins=bins).canonical())))

    return more


async def test_a_session_s_trees_stand_in_the_bins_that_they_were_planted_in(autojump_clock) -> None:
    task = msgspec.structs.replace(TASK, selection="fixed")
    async with simulate(task, model(), seed=1) as net:
        setup = replace(net.client("carol").setup, store=MemoryStore())
        async with Client(setup) as carol, net.client("ben") as ben:
            for client in (carol, ben):
                await client.submit({"items": ([1], np.ones((1, WIDTH)))})
            await net.finish_round()
            assert (await carol.outcome()).counted
        async with meddled(Client(setup), incoming=with_bins("S0", "S1")) as carol:
            with pytest.raises(PeerViolationError, match=r"bins in a segment .*`forget_session` begins a new one"):
                await carol.submit({"items": ([1], np.ones((1, WIDTH)))})
