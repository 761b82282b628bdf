"""A client is a task: calls wait for their turn, errors go to who asked, and nobody waits for one that has ended."""

import signal
import threading
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from fsl_async.errors import FslError, MisuseError
from fsl_async.wire.messages import Enter, Message, Receipt, Retrieve, Submit
from parties import Client, ClientEndedError, Network, StoreLostError, simulate
from parties.storage.store import MemoryStore
from tests.support.lost_connections import finish_with, stalled
from tests.support.shop import TASK, FailingStore, honest_round, meddled, model, take_part


def failing(network: Network, error: BaseException, store: MemoryStore | None = None) -> Client:
    """A client in which a defect shows when it retrieves."""

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if isinstance(message, Retrieve):
            raise error

    return Client(replace(network.client("carol").setup, watch=watch, store=store or MemoryStore()))


async def told(call, errors: list[BaseException]) -> None:
    """Note what a call raises."""
    try:
        await call()
    except FslError as error:
        errors.append(error)


async def cancelled_after(seconds: float, call) -> None:
    """A call that is cancelled."""
    with trio.move_on_after(seconds):
        await call()


# ---- life


async def test_a_client_is_a_task_in_its_caller_s_nursery(network, autojump_clock):
    carol = network.client("carol")
    async with trio.open_nursery() as nursery:
        await nursery.start(carol.run)
        await take_part(carol)
        assert len(nursery.child_tasks) == 1
        await carol.aclose()
        assert not nursery.child_tasks
        await carol.aclose()
    await finish_with(network, "carol")


async def test_a_client_that_does_not_run_says_how_to_start_it(network, autojump_clock):
    carol = network.client("carol")
    with pytest.raises(MisuseError, match=r"^not connected; use the client inside `async with`, or start its `run`$"):
        await carol.retrieve({"items": [1]})
    with pytest.raises(MisuseError, match="not connected"):
        await carol.submit({})
    async with carol:
        with pytest.raises(MisuseError, match=r"^this client is running already$"):
            await carol.run()
    with pytest.raises(MisuseError, match=r"^the client was closed before this call was done"):
        await carol.retrieve({"items": [1]})
    async with carol:  # it may be opened again
        await take_part(carol)
    await finish_with(network, "carol")


@pytest.mark.parametrize("error", [KeyError("mine"), ExceptionGroup("mine", [KeyError("in it")])])
async def test_what_the_caller_raises_stays_as_it_is(error, network, autojump_clock):
    with pytest.raises(type(error)) as caught:
        async with network.client("carol"):
            raise error
    assert caught.value is error


async def test_a_cancelled_block_is_left_without_an_error(network, autojump_clock):
    with trio.move_on_after(1) as scope:
        async with stalled(network, Retrieve) as carol, trio.open_nursery() as nursery:
            nursery.start_soon(carol.retrieve, {"items": [1]})
            await carol.retrieve({"items": [2]})
    assert scope.cancelled_caught
    await honest_round(network)


# ---- several calls


async def test_calls_of_two_tasks_take_turns(network, autojump_clock):
    found = {}

    async def retrieve(row: int) -> None:
        found[row] = (await carol.retrieve({"items": [row]}))["items"][0].tolist()

    async with network.client("carol") as carol, trio.open_nursery() as nursery:
        for row in (1, 5, 9):
            nursery.start_soon(retrieve, row)
    assert found == {row: network.model["items"][row].tolist() for row in (1, 5, 9)}
    asked = [note.message.query for note in network.transcript if isinstance(note.message, Retrieve)]
    assert asked == [1, 1, 2, 2, 3, 3]
    await honest_round(network)


async def test_a_call_that_waits_for_its_turn_is_cancelled_at_once(network, autojump_clock):
    async with stalled(network, Retrieve) as carol, trio.open_nursery() as nursery:
        nursery.start_soon(carol.retrieve, {"items": [1]})
        await trio.sleep(1)
        with trio.move_on_after(5) as scope:
            await carol.submit({})
        assert scope.cancelled_caught
        assert trio.current_time() == 6
        nursery.cancel_scope.cancel()
    assert not [note for note in network.transcript if isinstance(note.message, Submit)]
    await honest_round(network)


async def test_the_next_call_is_taken_when_the_one_before_it_is_cancelled(network, autojump_clock):
    async with stalled(network, Retrieve) as carol, trio.open_nursery() as nursery:
        nursery.start_soon(cancelled_after, 2, lambda: carol.retrieve({"items": [1]}))
        await trio.sleep(1)
        nursery.start_soon(take_part, carol)
    assert trio.current_time() == 2
    await finish_with(network, "carol")


class AfterSteps(trio.abc.Instrument):
    """Cancels a scope when the tasks of this loop have taken so many more steps."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.steps, self.scope = steps, scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps -= 1
        if self.steps == 0:
            self.scope.cancel()


@pytest.mark.parametrize("retrieves", [True, False])
async def test_a_client_is_consistent_wherever_its_call_is_cancelled(retrieves, network, autojump_clock):
    """Round after round a step later, until the calls are done before they are cancelled."""
    async with network.client("carol") as carol:
        for steps in range(1, 1000, 13 if retrieves else 7):
            scope = trio.CancelScope()
            instrument = AfterSteps(steps, scope)
            trio.lowlevel.add_instrument(instrument)
            with scope:
                await take_part(carol, retrieves=retrieves)
            trio.lowlevel.remove_instrument(instrument)
            if carol.pending:
                await carol.resume()
            elif not carol.undecided:
                await take_part(carol, retrieves=retrieves)
            await finish_with(network, "carol")
            assert (await carol.outcome()).counted
            if instrument.steps > 0:
                return
    pytest.fail("every call was cancelled")


# ---- closing


@pytest.mark.parametrize(("kind", "in_doubt"), [(Retrieve, 0), (Receipt, 1)])
async def test_whoever_waits_for_a_client_that_is_closed_is_told(kind, in_doubt, network, autojump_clock):
    errors: list[FslError] = []
    carol = stalled(network, kind)
    async with trio.open_nursery() as nursery, carol:
        nursery.start_soon(told, lambda: take_part(carol), errors)
        await trio.sleep(1)
        nursery.start_soon(told, carol.outcome, errors)
        await trio.sleep(1)
    assert [type(error) for error in errors] == [MisuseError, MisuseError]
    assert all(str(error).startswith("the client was closed before this call was done") for error in errors)
    assert {error.in_doubt for error in errors} == {in_doubt}


async def test_whoever_waits_is_told_when_the_nursery_is_cancelled(network, autojump_clock):
    errors: list[FslError] = []
    carol = stalled(network, Enter)
    async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
        await nursery.start(carol.run)
        callers.start_soon(told, lambda: carol.retrieve({"items": [1]}), errors)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    (error,) = errors
    assert "the client was closed" in str(error)


async def test_a_client_that_is_closed_while_it_connects_says_so(network, autojump_clock):
    carol = network.client("carol")

    async def forever(*words) -> None:
        await trio.sleep_forever()

    carol.setup.transport.dial, dial = forever, carol.setup.transport.dial
    errors: list[FslError] = []
    async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
        callers.start_soon(told, lambda: nursery.start(carol.run), errors)
        await trio.sleep(1)
        await carol.aclose()
    (error,) = errors
    assert str(error).startswith("the client was closed before this call was done")
    carol.setup.transport.dial = dial
    async with carol:
        await take_part(carol)
    await finish_with(network, "carol")


async def test_whoever_closes_waits_until_it_is_closed(network, autojump_clock):
    carol = network.client("carol")
    ends: list[float] = []

    async def close() -> None:
        await carol.aclose()
        ends.append(trio.current_time())

    async def slow() -> None:
        await trio.sleep(3)
        await closes()

    async with trio.open_nursery() as nursery:
        await nursery.start(carol.run)
        closes, carol._actor.requests.aclose = carol._actor.requests.aclose, slow
        nursery.start_soon(close)
        nursery.start_soon(close)
        await trio.sleep(1)
        with pytest.raises(MisuseError, match="this client is running already"):
            await carol.run()
    assert ends == [3, 3]


async def test_both_connections_are_closed_where_a_close_is_cancelled(network, autojump_clock):
    carol = meddled(network.client("carol"))
    channels = carol.setup.transport.channels
    closed = []
    with trio.move_on_after(1):
        async with carol:
            for channel in channels:
                channel.aclose = partial(note_close, channel.address, channel.aclose, closed)
            await trio.sleep_forever()
    assert closed == ["S0", "S1"]


async def note_close(address: str, close, closed: list[str]) -> None:
    closed.append(address)
    await close()
    await trio.lowlevel.checkpoint()


def test_an_interrupted_caller_withdraws_its_call():
    """Ctrl-C reaches the main task as it waits, and what it asked for is not done behind its back."""

    async def main() -> None:
        async with simulate(TASK, model(), seed=1) as network, stalled(network, Retrieve) as carol:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancelled_after, 1, lambda: carol.retrieve({"items": [1]}))
                await trio.testing.wait_all_tasks_blocked()
                threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
                with pytest.raises(KeyboardInterrupt):
                    await carol.submit({})
            await carol.retrieve({"items": [1]})
            assert (carol.pending, carol.undecided) == (0, 0)
            assert not [note for note in network.transcript if isinstance(note.message, Submit)]

    trio.run(main)


# ---- ends


async def test_a_defect_reaches_its_caller_and_ends_the_client(network, autojump_clock):
    store, defect = MemoryStore(), RuntimeError("a defect")
    others: list[FslError] = []
    async with failing(network, defect, store) as carol, trio.open_nursery() as nursery:
        nursery.start_soon(told, carol.outcome, others)
        with pytest.raises(RuntimeError) as caught:
            await carol.retrieve({"items": [1]})
        assert caught.value is defect
        with pytest.raises(
            ClientEndedError, match=r"an earlier call failed \(RuntimeError: a defect\); make a new client"
        ):
            await carol.submit({})
    assert [type(error) for error in others] == [ClientEndedError]
    async with Client(replace(network.client("carol").setup, store=store)) as carol:
        await take_part(carol)
    await finish_with(network, "carol")


async def test_a_lost_store_ends_the_client(network, autojump_clock):
    store = FailingStore()
    async with Client(replace(network.client("carol").setup, store=store)) as carol:
        store.error = StoreLostError("the disk is gone")
        with pytest.raises(StoreLostError, match="the disk is gone"):
            await carol.retrieve({"items": [1]})
        store.error = None
        with pytest.raises(ClientEndedError, match="StoreLostError: the disk is gone"):
            await carol.retrieve({"items": [1]})
    await honest_round(network)


async def test_an_error_that_the_caller_can_mend_ends_nothing(network, autojump_clock):
    async with network.client("carol") as carol:
        with pytest.raises(MisuseError, match="no submission is pending"):
            await carol.resume()
        with pytest.raises(MisuseError, match="nothing has been submitted"):
            await carol.outcome()
        await take_part(carol)
    await finish_with(network, "carol")
