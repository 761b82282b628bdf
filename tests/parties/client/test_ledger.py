"""A client's own ledger: charged before the first byte leaves, given back by both servers' word, never exceeded."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, Privacy, Ring, Task
from parties import BudgetSpentError, Client, ClientOutcome, MemoryStore, Network, RoundClosedError, simulate
from parties.client.outcomes import check_budget, is_given_back, privacy_spent
from tests.support.shop import interrupt_submissions

PRIVACY = Privacy(noise=4.0, delta=1e-6, budget=1.7)
UPDATE = {"head": np.full(5, 1.0)}


def task(**changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "noisy",
        "blocks": (Dense("head", size=5),),
        "ring": Ring(64, fraction_bits=10),
        "min_clients": 2,
        "max_clients": 5,
        "bound": 16.0,
        "privacy": PRIVACY,
    }
    return Task(**(fields | changes))


MODEL = {"head": np.zeros(5)}


def keeping(network: Network, store: MemoryStore, **changes: Any) -> Client:
    return Client(replace(network.client("ada").setup, store=store, **changes))


async def round_of(net: Network, store: MemoryStore) -> Any:
    """One round with ada, whose state is in this store, and bob; her receipt."""
    async with keeping(net, store) as ada, net.client("bob") as bob:
        receipt = await ada.submit(UPDATE)
        await bob.submit(UPDATE)
        await net.finish_round()
        await ada.outcome()
        return receipt


async def test_a_client_counts_its_rounds_and_stops_before_the_budget_is_exceeded() -> None:
    made, store = task(), MemoryStore()
    assert PRIVACY.rounds == 2
    async with simulate(made, MODEL, seed=1) as net:
        for rounds in (1, 2):
            receipt = await round_of(net, store)
            assert receipt.privacy == privacy_spent(made, frozenset(bytes([n]) for n in range(rounds)))
            assert receipt.privacy.epsilon == PRIVACY.epsilon(rounds)
            assert f"ε={PRIVACY.epsilon(rounds):.3g} of 1.7" in repr(receipt)
        async with keeping(net, store) as ada:
            before = len(net.transcript)
            assert ada.privacy_spent.next_epsilon == PRIVACY.epsilon(3)
            with pytest.raises(
                BudgetSpentError, match=r"2 submissions have spent ε = 1\.\d+ of its privacy budget of 1.7"
            ):
                await ada.submit(UPDATE)
            assert [note for note in net.transcript[before:] if note.sender == "ada"] == []


async def test_servers_that_begin_anew_do_not_reset_a_clients_ledger() -> None:
    store = MemoryStore()
    async with simulate(task(), MODEL, seed=1) as net:
        await round_of(net, store)
        async with keeping(net, store) as ada:
            await ada.forget_rounds()
            assert ada.privacy_spent.rounds == 1
        async with keeping(net, store) as ada:
            assert ada.privacy_spent.rounds == 1


async def test_a_round_is_charged_before_its_first_byte_leaves(autojump_clock: Any) -> None:
    store = MemoryStore()
    async with simulate(task(), MODEL, seed=1) as net:
        async with keeping(net, store, watch=interrupt_submissions) as ada:
            with pytest.raises(KeyboardInterrupt):
                await ada.submit(UPDATE)
        async with keeping(net, store) as ada:
            assert (ada.pending, ada.privacy_spent.rounds) == (1, 1)
            await ada.resume()
            assert ada.privacy_spent.rounds == 1, "the same round, charged once"


async def test_what_both_servers_sign_not_to_count_is_given_back() -> None:
    store = MemoryStore()
    async with simulate(task(), MODEL, seed=1) as net:
        async with keeping(net, store) as ada:
            await ada.submit(UPDATE)
            run = await net.servers[0].next_round(0)
            await net.servers[0].abort_round(run.config.number, "too few")
            assert not (await ada.outcome()).counted
            assert ada.privacy_spent.rounds == 0
        async with keeping(net, store) as ada:
            assert ada.privacy_spent.rounds == 0


@pytest.mark.parametrize(
    ("counted", "opened", "participants", "contributors", "given_back"),
    [
        (True, False, 5, None, False),
        (False, True, 5, None, False),
        (False, False, 5, None, True),
        (False, False, 0, None, True),
        (False, False, 5, 2, True),
        (False, False, 0, 2, False),
    ],
)
def test_where_anything_may_have_been_opened_nothing_is_given_back(
    counted: bool, opened: bool, participants: int, contributors: int | None, given_back: bool
) -> None:
    """A round that counts contributors may be aborted after the counts were opened."""
    outcome = ClientOutcome(number=1, counted=counted, reason="", participants=participants, opened=opened)
    made = task() if contributors is None else SimpleNamespace(min_contributors=contributors)
    assert is_given_back(made, outcome) is given_back


def test_a_task_without_noise_has_no_ledger() -> None:
    made = task(privacy=None)
    assert privacy_spent(made, frozenset()) is None
    check_budget(made, frozenset({b"1", b"2", b"3"}))


def test_the_refusal_is_a_misuse() -> None:
    with pytest.raises(MisuseError) as caught:
        check_budget(task(), frozenset({b"1", b"2"}))
    assert isinstance(caught.value, BudgetSpentError)
    assert not isinstance(caught.value, RoundClosedError)
    assert caught.value.spent.rounds == 2
