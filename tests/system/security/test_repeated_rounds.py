"""No server makes a client send the same values in two rounds: what it has sent counts until both have signed that not.

From two sums, one with a client's update and one without, the update can be read off as their difference. So a server
that has a submission would like its client to believe that it counts nowhere, and to send it again. Its words are
forged here where they come in; the other server is an honest one, and so is the client.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest
import trio

from fsl_async.errors import FslError, PeerViolationError
from fsl_async.merkle import root_of_nobody
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskOutcome, Message, Receipt, Refused, Submit
from parties import (
    AlreadyCountedError,
    Client,
    MemoryStore,
    Network,
    RequestDeniedError,
    RoundClosedError,
    StillInDoubtError,
    Store,
    simulate,
)
from parties.client.retries import PATIENCE
from parties.commands.report import ExitCode, exit_code
from parties.errors import OutcomeUnknownError
from parties.outcome import Aborted
from tests.support.shop import HEAD, TASK, Basket, Hook, forging, meddled, model, pass_on, take_part
from transport import ConnectionLostError

LIAR = "S0"


@asynccontextmanager
async def lied_to(
    incoming: Hook = pass_on, outgoing: Hook = pass_on, patience: float = PATIENCE, store: Store | None = None
) -> AsyncIterator[tuple[Network, Client, list[Submit]]]:
    """Carol, who is about to submit, and what she has sent so far; anna and ben are in already."""
    sent: list[Submit] = []

    async def note(address: str, message: Message, data: bytes) -> bytes | None:
        if isinstance(message, Submit):
            sent.append(message)
        return await outgoing(address, message, data)

    async with simulate(TASK, model(), seed=1) as network:
        await both_others(network)
        carol = meddled(network.client("carol"), incoming=incoming, outgoing=note)
        async with Client(replace(carol.setup, patience=patience, store=store or MemoryStore())) as carol:
            yield network, carol, sent


async def both_others(network: Network) -> None:
    for name in ("anna", "ben"):
        async with network.client(name) as client:
            await take_part(client)


async def ended_with(network: Network, carol: Client) -> BaseException | None:
    """Carol submits while the round runs and is closed; what her call ends with."""
    ended: list[BaseException] = []

    async def submit() -> None:
        try:
            await take_part(carol)
        except FslError as error:
            ended.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(submit)
        await trio.sleep(500)
        outcome = await network.finish_round()
        assert outcome.clients == ("anna", "ben", "carol")
    return ended[0] if ended else None


async def goes_on(network: Network, carol: Client) -> None:
    """The next call takes part in the next round, with other values, where nobody lies."""
    carol.setup.transport.incoming = pass_on
    await both_others(network)
    await carol.submit(Basket("carol, later").update)
    assert carol.round_number == 2
    assert (await network.finish_round()).clients == ("anna", "ben", "carol")


async def test_a_server_that_says_round_closed_and_counts_is_not_believed(autojump_clock: trio.abc.Clock) -> None:
    async with lied_to(refusing("round-closed")) as (network, carol, sent):
        assert await ended_with(network, carol) is None
        assert carol.pending == 0
        assert len(sent) == 2
        await goes_on(network, carol)


async def test_one_server_s_denial_does_not_hide_what_the_other_has_signed(autojump_clock: trio.abc.Clock) -> None:
    async with lied_to(refusing("round-closed"), denying(LIAR)) as (network, carol, sent):
        error = await ended_with(network, carol)
        assert isinstance(error, OutcomeUnknownError)
        assert (error.number, error.in_doubt, exit_code(error)) == (1, 1, ExitCode.SENT)
        assert {server: outcome.counted for server, outcome in error.accounts.items()} == {1: True}
        assert "S1 alone has signed that it was counted" in str(error)
        assert "do not send its values again" in str(error)
        assert len(sent) == 2
        await goes_on(network, carol)


async def test_that_one_server_alone_has_signed_a_dismissal_proves_nothing(autojump_clock: trio.abc.Clock) -> None:
    """The honest server has lost its store; the other one, which has the sum, says that nobody was counted."""
    async with lied_to(outgoing=denying("S1")) as (network, carol, _):
        carol.setup.transport.incoming = signing(
            network, ending=Aborted("I gave up"), participants=0, root=root_of_nobody(), seat=None
        )
        await take_part(carol)
        assert "carol" in (await network.finish_round()).clients
        with pytest.raises(OutcomeUnknownError, match=r"S0 alone has signed .* not counted \(I gave up\)") as caught:
            await carol.outcome()
        assert caught.value.in_doubt == 1
        assert not caught.value.accounts[0].counted


async def test_two_signed_outcomes_that_differ_are_no_leave_to_repeat(autojump_clock: trio.abc.Clock) -> None:
    async with lied_to() as (network, carol, _):
        carol.setup.transport.incoming = signing(network, refusing("round-closed"), participants=2, seat=None)
        error = await ended_with(network, carol)
        assert isinstance(error, PeerViolationError)
        assert "have signed different outcomes of round 1: participants" in str(error)
        assert (error.in_doubt, exit_code(error)) == (1, ExitCode.SENT)
        await goes_on(network, carol)


@pytest.mark.parametrize("reason", ["conflict", "malformed", "limit", "no-session", "busy"])
async def test_a_refusal_of_what_has_left_leaves_its_end_open(reason: str, autojump_clock: trio.abc.Clock) -> None:
    async with lied_to(refusing(reason)) as (network, carol, sent):
        error = await ended_with(network, carol)
        assert isinstance(error, RequestDeniedError)
        assert (error.in_doubt, carol.pending, exit_code(error)) == (1, 1, ExitCode.SENT)
        assert "the submission to round 1 may be counted: do not send its values again" in str(error)
        before = len(sent)
        with pytest.raises(AlreadyCountedError, match="nothing was sent now") as caught:
            await take_part(carol)
        assert exit_code(caught.value) == ExitCode.SENT
        assert caught.value.outcome.counted
        assert (caught.value.receipt.number, len(sent)) == (1, before)
        await goes_on(network, carol)


async def test_a_retrieval_too_learns_that_the_pending_submission_was_counted(autojump_clock: trio.abc.Clock) -> None:
    async with lied_to(refusing("conflict")) as (network, carol, _):
        await ended_with(network, carol)
        with pytest.raises(AlreadyCountedError):
            await carol.retrieve({"items": [1]})
        assert len(await carol.retrieve({"items": [1]})) == 1
        assert carol.round_number == 2


async def test_a_lost_connection_leaves_the_end_open_too(autojump_clock: trio.abc.Clock) -> None:
    async def lose(address: str, message: Message, data: bytes) -> bytes:
        if address == LIAR and isinstance(message, Receipt):
            raise ConnectionLostError("lost")
        return data

    async with lied_to(lose, patience=1) as (network, carol, _):
        error = await ended_with(network, carol)
        assert isinstance(error, ConnectionLostError)
        assert (error.in_doubt, carol.pending, exit_code(error)) == (1, 1, ExitCode.SENT)


async def test_what_both_have_signed_not_to_be_in_may_be_sent_again(autojump_clock: trio.abc.Clock) -> None:
    """The round is given up before anything was revealed, and both say so: a repetition gives nothing away."""
    async with lied_to() as (network, carol, _):
        run = network.servers[0].running

        async def hold(address: str, message: Message, data: bytes) -> bytes:
            if isinstance(message, Submit) and not run.settled.is_set():
                await network.servers[0].abort_round(1, "the operator wants it so")
            return data

        carol.setup.transport.outgoing = hold
        with pytest.raises(RoundClosedError, match="both servers have signed that") as caught:
            await take_part(carol)
        assert (caught.value.in_doubt, carol.pending, exit_code(caught.value)) == (0, 0, ExitCode.ROUND)
        carol.setup.transport.outgoing = pass_on
        await goes_on(network, carol)


async def test_values_that_are_in_doubt_are_not_sent_again_unless_their_caller_insists(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A caller that ignores `in_doubt`, and then one that was restarted, submits them to the next round."""
    store, values, zeros = MemoryStore(), Basket("carol").update, {"head": np.zeros(HEAD)}
    async with lied_to(outgoing=denying(LIAR), store=store) as (network, carol, sent):
        await carol.submit(values)
        await network.finish_round()
        with pytest.raises(OutcomeUnknownError):
            await carol.outcome()
        for client in (carol, Client(replace(network.client("carol").setup, store=store))):
            async with client if client is not carol else nullcontext(client):
                with pytest.raises(StillInDoubtError, match="the same values were submitted to round 1") as caught:
                    await client.submit(values)
                assert (caught.value.in_doubt, exit_code(caught.value)) == (1, ExitCode.SENT)
        assert len(sent) == 2
        carol.setup.transport.outgoing = pass_on
        for update, insists in ((Basket("carol, later").update, False), (zeros, False), (values, True)):
            await both_others(network)
            await carol.submit(update, again=insists)
            assert (await network.finish_round()).clients == ("anna", "ben", "carol")
            assert (await carol.outcome()).counted


async def test_what_both_have_begun_anew_after_is_in_doubt_too() -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        await take_part(carol)
        await carol.forget_rounds()
        with pytest.raises(StillInDoubtError):
            await carol.submit(Basket("carol").update)


# ---- lies


def refusing(reason: str) -> Hook:
    """The liar has stored a submission, and says this in place of its receipt."""

    async def refuse(address: str, message: Message, data: bytes) -> bytes:
        if address == LIAR and isinstance(message, Receipt):
            return b"".join(encode(Refused(reason=reason, explanation="so I say", retry_after=100)))
        return data

    return refuse


def denying(server: str) -> Hook:
    """A server knows nothing of the round whose outcome is asked for."""

    async def deny(address: str, message: Message, data: bytes) -> bytes:
        if address == server and isinstance(message, AskOutcome):
            return b"".join(encode(AskOutcome(bytes(32))))
        return data

    return deny


def signing(network: Network, refuse: Hook = pass_on, **changes: object) -> Hook:
    """The liar signs another outcome than the true one."""
    return forging(network, lambda told: changes, LIAR, others=refuse)
