"""A client whose earlier submission was counted in place of the one that it knows is told so, and repeats nothing.

A process that has lost its state, or shares its keys with another, submits to a round that has a submission of this
client already. "Counted" would then be said of other values than its own, and "not counted" would have it send values
again that may be in the sum.
"""

from dataclasses import replace

import msgspec
import pytest

from parties import Client, Network, OtherCountedError, RequestDeniedError, simulate
from parties.commands.report import ExitCode, exit_code
from parties.storage.store import MemoryStore
from tests.support.shop import TASK, Basket, model, take_part


async def counted_before(network: Network) -> bytes:
    """Anna and carol are in; carol's state is lost. The digest of what she has submitted."""
    async with network.client("anna") as anna:
        await take_part(anna)
    async with network.client("carol") as carol:
        return (await carol.submit(Basket("carol").update)).digest


async def submits_anew(network: Network, store: MemoryStore) -> None:
    """Carol, who remembers nothing, submits other values to the same round."""
    async with Client(replace(network.client("carol").setup, store=store)) as carol:
        with pytest.raises(RequestDeniedError, match="conflict") as caught:
            await carol.submit(Basket("someone else").update)
        assert caught.value.in_doubt == carol.pending == 1


def assert_tells_of(error: OtherCountedError, counted: bytes) -> None:
    assert (error.outcome.digest, error.in_doubt, exit_code(error)) == (counted, 1, ExitCode.SENT)
    assert "counted another submission of this client" in str(error)


@pytest.mark.parametrize("call", ["outcome", "submit", "resume"])
async def test_other_values_that_were_counted_are_told_apart(call: str) -> None:
    async with simulate(TASK, model(), seed=1) as network:
        counted, store = await counted_before(network), MemoryStore()
        await submits_anew(network, store)
        assert (await network.finish_round()).clients == ("anna", "carol")
        async with Client(replace(network.client("carol").setup, store=store)) as carol:
            update = Basket("carol, later").update
            with pytest.raises(OtherCountedError) as caught:
                await {"outcome": carol.outcome, "resume": carol.resume, "submit": lambda: carol.submit(update)}[call]()
            assert_tells_of(caught.value, counted)
            await carol.submit(update)
            assert (carol.pending, carol.round_number) == (0, 2)


async def test_what_was_counted_is_named_as_its_receipt_is() -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        async with network.client("anna") as anna:
            await take_part(anna)
        receipt = await carol.submit(Basket("carol").update)
        await network.finish_round()
        assert (await carol.outcome()).digest == receipt.digest


async def test_trees_of_which_the_servers_have_others_are_no_session() -> None:
    """The client's own trees were not counted, so it begins a session with the next round."""
    async with simulate(msgspec.structs.replace(TASK, selection="fixed"), model(), seed=1) as network:
        counted, store = await counted_before(network), MemoryStore()
        await submits_anew(network, store)
        await network.finish_round()
        async with Client(replace(network.client("carol").setup, store=store)) as carol:
            with pytest.raises(OtherCountedError) as caught:
                await carol.outcome()
            assert_tells_of(caught.value, counted)
            async with network.client("anna") as anna:
                await take_part(anna)
            await take_part(carol)
            assert (await network.finish_round()).clients == ("anna", "carol")
