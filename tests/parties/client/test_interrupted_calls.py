"""Calls that were interrupted: a submission is finished with the same bytes, a retrieval tried again by number."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Answer, AskOutcome, Message, Receipt, Retrieve, Submit
from parties import Client, Network, RoundClosedError, simulate
from parties.errors import OutcomeUnknownError
from parties.storage.store import DiskFullError
from tests.support.lost_connections import away_from, finish_with, stalled
from tests.support.shop import TASK, FailingStore, meddled, model, pass_on, take_part
from transport import ConnectionLostError

# ---- a submission on its way


@asynccontextmanager
async def interrupted(message: type[Message], address: str = "S1") -> AsyncIterator[tuple[Network, Client]]:
    """Servers, and a client whose first round was cancelled while it waited for that message."""
    async with simulate(TASK, model(), seed=1) as network, stalled(network, message, address) as carol:
        with trio.move_on_after(1) as scope:
            await take_part(carol)
        assert scope.cancelled_caught
        yield network, carol


@pytest.mark.parametrize("address", ["S0", "S1"])
@pytest.mark.parametrize("message", [Submit, Receipt])
async def test_a_cancelled_submission_is_resumed_with_the_same_bytes(message, address, autojump_clock):
    async with interrupted(message, address) as (network, carol):
        assert carol.pending == carol.round_number == 1
        for call in (lambda: carol.submit({}), lambda: carol.retrieve({"items": [1]})):
            with pytest.raises(MisuseError, match=r"a submission to round 1 is pending, .* `resume` finishes it"):
                await call()
        receipt = await carol.resume()
        assert (receipt.number, carol.pending) == (1, 0)
        assert all(len(signature) == 64 for signature in receipt.signatures)
        assert len(set(carol.setup.transport.sent)) == 2  # what goes to S0, and what goes to S1
        with pytest.raises(MisuseError, match="no submission is pending"):
            await carol.resume()
        await finish_with(network, "carol")
        assert (await carol.outcome()).counted


async def test_a_submission_whose_patience_was_over_is_resumed(autojump_clock):
    lose, times = away_from(Submit)
    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), outgoing=lose) as carol:
        with pytest.raises(ConnectionLostError):
            await take_part(carol)
        carol.setup.transport.outgoing = pass_on
        assert carol.pending == 1
        before = len(times)
        await carol.resume()
        assert len(times) == before
        await finish_with(network, "carol")
        assert (await carol.outcome()).counted


async def test_an_outcome_that_cannot_be_stored_leaves_the_submission_in_doubt_until_it_can(autojump_clock, network):
    disk = FailingStore()
    carol = Client(replace(network.client("carol").setup, store=disk))
    async with carol:
        await take_part(carol)
        await finish_with(network, "carol")
        disk.error = DiskFullError("no room")
        with pytest.raises(StorageError) as caught:
            await carol.outcome()
        assert caught.value.in_doubt == carol.undecided == 1
        disk.error = None
        assert (await carol.outcome()).counted


@pytest.mark.parametrize("missing", [0, 1])
async def test_a_submission_that_one_server_lacks_is_left_out_and_counts_once_in_the_next(missing, autojump_clock):
    async with interrupted(Submit, f"S{missing}") as (network, carol):
        await finish_with(network)
        with pytest.raises(RoundClosedError, match=r"round 1 has ended without this submission .* counts nowhere"):
            await carol.resume()
        assert carol.pending == 0
        assert not (await carol.outcome()).counted
        await take_part(carol)
        await finish_with(network, "carol")
        assert (await carol.outcome()).counted


async def test_a_submission_whose_receipts_were_lost_and_whose_round_is_over_is_told_by_the_outcome(autojump_clock):
    """Both servers have it; a client that only hears `round-closed` must not submit it again."""
    async with interrupted(Receipt, "S1") as (network, carol):
        await finish_with(network, "carol")
        receipt = await carol.resume()
        assert receipt.signatures[1] == b""
        assert len(receipt.signatures[0]) == 64
        assert carol.pending == 0
        assert (await carol.outcome()).counted
        await take_part(carol)
        assert carol.round_number == 2
        await finish_with(network, "carol")


async def test_receipts_are_lost_with_their_connections_and_the_round_ends_meanwhile(autojump_clock, network):
    """The same without a cancellation: `submit` itself learns that it was counted."""
    ended = trio.Event()

    async def lose_receipt(address: str, said: Message, data: bytes) -> bytes:
        if isinstance(said, Receipt) and not ended.is_set():
            await ended.wait()
            raise ConnectionLostError("lost")
        return data

    async with meddled(network.client("carol"), incoming=lose_receipt) as carol, trio.open_nursery() as nursery:
        nursery.start_soon(take_part, carol)
        await trio.sleep(1)
        await finish_with(network, "carol")
        ended.set()
    assert carol.pending == 0


async def test_a_pending_submission_whose_round_is_gone_does_not_stop_the_next_one(autojump_clock):
    async with interrupted(Submit) as (network, carol):
        await finish_with(network)
        await take_part(carol)
        assert carol.round_number == 2
        await finish_with(network, "carol")


async def test_the_outcome_of_a_pending_submission_may_be_asked_for(autojump_clock):
    async with interrupted(Submit, "S1") as (network, carol):
        await finish_with(network)
        assert not (await carol.outcome()).counted
        assert carol.pending == 0
        await take_part(carol)
        await finish_with(network, "carol")


async def test_a_round_that_the_servers_have_forgotten_is_told_once(autojump_clock):
    async def forget(address: str, said: Message, data: bytes) -> bytes:
        if isinstance(said, AskOutcome):
            return b"".join(encode(AskOutcome(bytes(32))))
        return data

    async with interrupted(Submit) as (network, carol):
        await finish_with(network)
        meant, carol.setup.transport.outgoing = carol.setup.transport.outgoing, forget
        with pytest.raises(
            OutcomeUnknownError, match="no server can say any more whether the submission to round 1 was counted"
        ):
            await carol.submit({})
        carol.setup.transport.outgoing = meant
        await take_part(carol, again=True)
        await finish_with(network, "carol")


# ---- retrievals that fail


@pytest.mark.parametrize("message", [Retrieve, Answer])
async def test_a_cancelled_retrieval_goes_on_in_the_same_round_under_the_next_number(message, autojump_clock):
    async with interrupted(message) as (network, carol):
        await take_part(carol)
        assert carol.round_number == 1
        queries = [note.message.query for note in network.transcript if isinstance(note.message, Retrieve)]
        assert set(queries) == {1, 2}
        await finish_with(network, "carol")


async def test_after_a_cancelled_retrieval_one_may_submit_without_another(autojump_clock):
    async with interrupted(Answer) as (network, carol):
        await take_part(carol, retrieves=False)
        await finish_with(network, "carol")


async def test_a_cancelled_retrieval_of_a_round_that_is_gone_is_followed_by_one_in_the_next(autojump_clock):
    async with interrupted(Answer) as (network, carol), network.client("anna") as anna:
        await take_part(anna)
        await finish_with(network, "anna")
        await take_part(carol)
        assert carol.round_number == 2
        await finish_with(network, "carol")


async def test_failed_retrievals_have_a_number_each_and_eight_are_the_most(autojump_clock, network):
    lose, _ = away_from(Retrieve, "S0", "S1")
    setup = replace(network.client("carol").setup, patience=0)
    async with meddled(Client(setup), outgoing=lose) as carol:
        for _ in range(8):
            with pytest.raises(ConnectionLostError):
                await carol.retrieve({"items": [1]})
        with pytest.raises(MisuseError, match="8 retrievals in one round are the most"):
            await carol.retrieve({"items": [1]})
        await take_part(carol, retrieves=False)
        assert carol.bytes_sent == sum(channel.bytes_sent for channel in carol.setup.transport.channels)
    await finish_with(network, "carol")
