"""A client's state, copied before a submission and put back: no two hints that a server could subtract come of it."""

from contextlib import suppress
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees
from parties import Client, Network, RequestDeniedError, simulate
from parties.client.setup import ClientSetup
from parties.client.state import ClientState, Pending
from parties.client.submission import Draft
from parties.storage.store import Change, Erase, MemoryStore, Put
from tests.support.shop import TASK, Basket, copy_of, interrupt_submissions, model

UPDATE = {"items": (Basket("ada").rows, np.full(Basket("ada").values.shape, 3.0))}


def stopped(network: Network, store: MemoryStore) -> Client:
    """A client that is interrupted before the first byte of a submission leaves."""
    return Client(replace(network.client("ada").setup, store=store, watch=interrupt_submissions))


async def drafted(client: Client, values: float) -> Draft:
    """The submission that a client makes of some values, as it stores it."""
    update = {"items": (Basket("ada").rows, np.full(Basket("ada").values.shape, values))}
    with pytest.raises(KeyboardInterrupt):
        await client.submit(update)
    setup = client.setup
    state = await ClientState(setup.store, setup.identity.public, setup.task, setup.lane).load()
    assert isinstance(state.submission, Pending)
    return state.submission.draft


def salt(draft: Draft) -> bytes:
    return bytes(draft.part[:SALT_BYTES])


def hints(draft: Draft) -> np.ndarray:
    pieces = Layout.submission(draft.config.shape, draft.header.trees).split(memoryview(draft.part))
    return np.concatenate([np.frombuffer(piece, "<u8") for (_, kind), piece in pieces.items() if kind == "hint"])


async def test_outside_a_session_a_client_put_back_submits_on_trees_of_its_own(autojump_clock):
    async with simulate(TASK, model(), seed=1) as network:
        store = MemoryStore()
        async with stopped(network, store) as ada:
            await ada.retrieve({"items": Basket("ada").rows})
            copy = await copy_of(store)
            first = await drafted(ada, 1.0)
        async with stopped(network, copy) as ada:
            second = await drafted(ada, 2.0)
    assert (first.header.trees, second.header.trees) == (Trees.RETRIEVAL, Trees.OWN)
    assert first.config.round_id() == second.config.round_id()
    assert not set(first.header.seeds) & set(second.header.seeds)


@pytest.mark.parametrize("bound", [None, 32.0], ids=["", "bounded"])
async def test_in_a_session_other_values_have_other_masks(bound, autojump_clock):
    """Where a bound is proved, so has a second proof of the same values: its masks must hide nothing twice."""
    task = msgspec.structs.replace(TASK, selection="fixed", bound=bound)
    async with simulate(task, model(), seed=1) as network:
        store = MemoryStore()
        async with (
            Client(replace(network.client("ada").setup, store=store)) as ada,
            network.client("ben") as ben,
            network.client("carol") as carol,
        ):
            for client in (ada, ben, carol):
                await client.submit({"items": (Basket("ada").rows, Basket("ada").values)})
            await network.finish_round()
            assert (await ada.outcome()).counted
        drafts = []
        for values in (1.0, 2.0, 1.0):
            async with stopped(network, await copy_of(store)) as ada:
                drafts.append(await drafted(ada, values))
    first, second, again = drafts
    assert {draft.header.trees for draft in drafts} == {Trees.SESSION}
    assert first.header.commitments == second.header.commitments
    unit = int(task.ring.encode(np.ones(1), task.largest_integer).reshape(-1)[0])
    differences = hints(second) - hints(first)
    assert not np.isin(differences, np.array([0, unit, -unit % 2**64], dtype=np.uint64)).any()
    assert (bytes(again.part) == bytes(first.part)) == (bound is None)
    assert (salt(again) == salt(first)) == (bound is None)


async def replaced_session(network: Network, setup: ClientSetup, *others: Client) -> MemoryStore:
    """Give ada a session, and then another one; what its store was while it had the first."""
    async with Client(setup) as ada:
        for client in (ada, *others):
            await client.submit(UPDATE)
        await network.finish_round()
        assert (await ada.outcome()).counted
        copy = await copy_of(setup.store)
        ada.forget_session()
        for client in (ada, *others):
            await client.submit(UPDATE)
        await network.finish_round()
    return copy


@pytest.mark.parametrize("request_kind", ["retrieve", "submit"])
async def test_a_session_that_was_replaced_is_hinted_at_no_more(request_kind, autojump_clock):
    """The servers hold the trees of a newer session: hints at the old ones would be no values, in silence."""
    task = msgspec.structs.replace(TASK, selection="fixed")
    async with simulate(task, model(), seed=1) as network:
        setup = replace(network.client("ada").setup, store=MemoryStore())
        async with network.client("ben") as ben, network.client("carol") as carol:
            copy = await replaced_session(network, setup, ben, carol)
            async with Client(replace(setup, store=copy)) as put_back:
                with pytest.raises(RequestDeniedError, match=r"no-session.*your next call begins a new session"):
                    await (
                        put_back.retrieve({"items": Basket("ada").rows[:1]})
                        if request_kind == "retrieve"
                        else put_back.submit(UPDATE)
                    )
            async with Client(replace(setup, store=copy)) as put_back:  # and another process knows that, too
                for client in (ben, carol):
                    await client.submit(UPDATE)
                if request_kind == "submit":
                    await network.finish_round()
                    assert not (await put_back.outcome()).counted
                    for client in (ben, carol):
                        await client.submit(UPDATE)
                await put_back.submit(UPDATE)
                outcome = await network.finish_round()
            np.testing.assert_array_equal(outcome.update["items"][Basket("ada").rows], 9.0)


async def test_a_session_that_the_servers_lack_is_forgotten_though_the_call_is_cancelled(autojump_clock):
    """The other server's failure cancels the request: memory and store forget the session, or neither does."""

    class Cancelling(MemoryStore):
        async def commit(self, *changes: Change) -> None:
            if changes == (Erase("session"),):
                scope.cancel()
                await trio.lowlevel.checkpoint()
            await super().commit(*changes)

    task = msgspec.structs.replace(TASK, selection="fixed")
    async with simulate(task, model(), seed=1) as network:
        setup = replace(network.client("ada").setup, store=MemoryStore())
        async with network.client("ben") as ben, network.client("carol") as carol:
            copy = await replaced_session(network, setup, ben, carol)
        store = Cancelling()
        await store.commit(*[Put(key, bytes(await copy.blob(key))) for key in await copy.keys("")])
        async with Client(replace(setup, store=store)) as put_back:
            with trio.CancelScope() as scope, suppress(RequestDeniedError):
                await put_back.retrieve({"items": Basket("ada").rows[:1]})
            assert scope.cancel_called
            assert "session" not in await store.keys("")
