"""More lies about the size of an update, beside those in `test_bounds`: made of an honest draft or an honest answer."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from fsl_async import BoundExceededError, FslError, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import private_digest, terms_of
from fsl_async.client.bound import bound_part
from fsl_async.digests import DIGEST_BYTES
from fsl_async.learning import clipped
from fsl_async.wire.messages import Message, Proofs
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from parties import simulate
from parties.client.submission import Draft
from tests.support.cases import one_in

from .byzantine import MODEL, TASK, VICTIM, Byzantine, Said, flipped
from .meeting import Account, meet
from .peer_attacks import Ending, Mutation

EXACT = msgspec.structs.replace(TASK, bound=100.0)
PROJECTED = msgspec.structs.replace(EXACT, bound_proof="projected")
BOTH = pytest.mark.parametrize("task", [EXACT, PROJECTED], ids=["exact", "projected"])
EITHER = pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
LARGE = {"items": ([7, 9], np.full((2, 2), 60)), "head": np.zeros(3, np.int64)}
"""Its norm is 120."""

Cheat = Callable[..., tuple[bytes, bytes]]
"""Makes a private part, and its digest."""


def small_of(update: dict[str, Any]) -> dict[str, Any]:
    return {name: np.zeros_like(elements) for name, elements in update.items()}


def proof_of_less(config, update, msk, carrier, bind, randomness) -> tuple[bytes, bytes]:
    """A sound proof, of zeros instead of the update."""
    return bound_part(config, small_of(update), msk, carrier, bind, randomness)


def changed(change: Callable[[bytearray], bytes | bytearray]) -> Cheat:
    """A sound proof of less, changed by the client, with the digest of what is sent."""

    def cheat(config, update, msk, carrier, bind, randomness) -> tuple[bytes, bytes]:
        made, _ = proof_of_less(config, update, msk, carrier, bind, randomness)
        private = bytes(change(bytearray(made)))
        return private, private_digest(private, msk[carrier])

    return cheat


def an_integer_is_larger(private: bytearray) -> bytearray:
    private[5] ^= 1
    return private


def an_element_is_another(private: bytearray) -> bytearray:
    private[-40] ^= 1
    return private


def of_another_binding(config, update, msk, carrier, bind, randomness) -> tuple[bytes, bytes]:
    """As in another round, for another client, or with hints changed later: all of them are in the binding."""
    return bound_part(config, small_of(update), msk, carrier, flipped(bind), randomness)


def of_the_other_carrier(config, update, msk, carrier, bind, randomness) -> tuple[bytes, bytes]:
    private, _ = bound_part(config, small_of(update), msk, 1 - carrier, bind, randomness)
    return private, private_digest(private, msk[carrier])


CHEATS: dict[str, Cheat] = {
    "a proof of a smaller update": proof_of_less,
    "an integer is larger": changed(an_integer_is_larger),
    "an element is another": changed(an_element_is_another),
    "of another binding": of_another_binding,
    "for the other carrier": of_the_other_carrier,
}

MALFORMED: dict[str, tuple[Cheat, str]] = {
    "too long": (changed(lambda private: private + b"\0"), "the task implies"),
    "nothing": (lambda *_: (b"", b""), "a digest of 32 bytes expected of the bound's proof"),
    "another digest": (lambda *of: (proof_of_less(*of)[0], bytes(DIGEST_BYTES)), "does not match its digest"),
}


def honest(number: int) -> dict[str, Any]:
    return {"items": ([0, number], np.full((2, 2), number)), "head": np.full(3, number)}


# ---- clients


@BOTH
@pytest.mark.parametrize("name", CHEATS)
async def test_who_lies_about_its_size_is_out_and_nobody_else(name, task, seed, autojump_clock, monkeypatch):
    async with simulate(task, MODEL, seed) as network:
        for number, client in enumerate(("anna", "ben"), 1):
            async with network.client(client) as one:
                await one.submit(honest(number))
        async with network.client("mallory") as mallory:
            with pytest.raises(BoundExceededError, match=r"norm over all blocks is 120 .*'items' alone 120"):
                await mallory.submit(LARGE)
            monkeypatch.setattr("parties.client.submission.bound_part", CHEATS[name])
            await mallory.submit(LARGE)
            outcome = await network.finish_round()
            told = await mallory.outcome()
        assert (told.counted, told.reason.split(":")[0]) == (False, "bound")
        assert "fsl_async.learning.clipped" in told.reason
        assert (outcome.clients, dict(outcome.excluded)) == (("anna", "ben"), {"mallory": "bound"})
        assert outcome.update["items"][[0, 1, 2, 7, 9], 0].tolist() == [3, 1, 2, 0, 0]
        assert outcome.update["head"].tolist() == [3, 3, 3]
        for index, server in enumerate(network.servers):
            (entry,) = await server.evidence.entries()
            assert (entry.kind, entry.about) == ("bound", f"mallory or S{1 - index}")


@BOTH
@pytest.mark.parametrize("name", MALFORMED)
async def test_what_has_not_the_form_of_a_proof_is_refused_before_the_receipt(
    name, task, seed, autojump_clock, monkeypatch
):
    cheat, says = MALFORMED[name]
    async with simulate(task, MODEL, seed) as network:
        for number, client in enumerate(("anna", "ben"), 1):
            async with network.client(client) as one:
                await one.submit(honest(number))
        monkeypatch.setattr("parties.client.submission.bound_part", cheat)
        with pytest.raises((FslError, ExceptionGroup)) as refused:
            async with network.client("mallory") as mallory:
                await mallory.submit(LARGE)
        assert re.search(says, repr(refused.value)) or re.search(says, str(refused.value)), refused.value
        outcome = await network.finish_round()
        assert outcome.clients == ("anna", "ben")


async def test_a_clipped_update_is_within_the_bound(seed, autojump_clock):
    task = msgspec.structs.replace(EXACT, ring=msgspec.structs.replace(TASK.ring, fraction_bits=8), bound=1.5)
    model = {name: array.astype(np.float64) for name, array in MODEL.items()}
    async with simulate(task, model, seed) as network:
        for client in ("anna", "ben"):
            async with network.client(client) as one:
                await one.submit(clipped({**LARGE, "head": np.arange(3)}, 1.5, unit=2**-8))
        assert (await network.finish_round()).clients == ("anna", "ben")


@BOTH
async def test_the_proof_is_part_of_what_the_servers_agree_on(task, seed, autojump_clock, monkeypatch):
    """Two digests of it are two submissions, of which neither server's is counted."""
    honest_message = Draft.message

    def message(draft: Draft, server: int) -> Any:
        said = honest_message(draft, server)
        carried = draft.config.carrier("mallory") == server
        return said if carried else msgspec.structs.replace(said, bound_digest=flipped(said.bound_digest))

    async with simulate(task, MODEL, seed) as network:
        for number, client in enumerate(("anna", "ben"), 1):
            async with network.client(client) as one:
                await one.submit(honest(number))
        monkeypatch.setattr(Draft, "message", message)
        with pytest.raises((FslError, ExceptionGroup)):
            async with network.client("mallory") as mallory:
                await mallory.submit(honest(7))
        outcome = await network.finish_round()
    assert (outcome.clients, dict(outcome.excluded)) == (("anna", "ben"), {"mallory": "mismatch"})


# ---- servers


class ChangesAShare(Byzantine):
    """Changes what it says of one client's bound."""

    def entry(self, task: Task, entry: bytes) -> bytes:
        return flipped(entry, len(entry) - 20)

    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Proofs):
            terms = terms_of(planned(self.setup.task))
            assert terms is not None
            entries = unpack_digests(bulk, 10, "the test", DIGEST_BYTES + terms.verifier_bytes)
            bulk = pack_digests(entries | {VICTIM: self.entry(self.setup.task, entries[VICTIM])})
        yield message, bulk


class SendsTheNegative(ChangesAShare):
    def entry(self, task: Task, entry: bytes) -> bytes:
        terms = terms_of(planned(task))
        assert terms is not None
        split = DIGEST_BYTES + (0 if terms.exact else DIGEST_BYTES)
        elements = [-element % terms.field.prime for element in terms.field.unpack(entry[split:])]
        return entry[:split] + terms.field.pack(elements)


class AsksAgain(ChangesAShare):
    """Sends its answers, then others, as if it had been asked at another point."""

    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, Proofs):
            yield from super().say(message, bulk)


async def account_of(mutant: type[Byzantine], index: int, seed: int, task: Task) -> Account:
    account = await meet(Mutation("", mutant, Ending.WAITS, ""), index, seed, task)
    assert account.mutant.fired, "the mutated step was never reached"
    return account


@pytest.mark.parametrize(
    ("mutant", "task", "index"), one_in(2, [ChangesAShare, SendsTheNegative], [EXACT, PROJECTED], [0, 1])
)
async def test_a_false_answer_costs_its_server_the_client_and_nobody_else(mutant, task, index, seed, autojump_clock):
    """What a server can do anyway, by leaving the client out; then both go on with different rosters, and halt."""
    account = await account_of(mutant, index, seed, task)
    assert not account.sums
    (entry,) = [entry for entry in account.evidence if entry.kind == "bound"]
    assert entry.about == f"{VICTIM} or S{index}"


@EITHER
@BOTH
async def test_an_answer_that_no_honest_server_gives_is_named(task, index, seed, autojump_clock):
    account = await account_of(AsksAgain, index, seed, task)
    (error,) = account.halts[1 - index]
    assert "sent two different proof lists" in str(error), error
    assert [entry.about for entry in account.evidence] == [f"S{index}"]
    assert not account.sums
