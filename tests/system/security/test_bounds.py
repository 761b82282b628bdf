"""Rounds of real servers with a bound: clients that cheat are left out, servers that lie leave out nobody unseen."""

import re
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import fsl_async.client.bound as library
import parties.client.arguments as arguments
from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.bounds import BoundTerms, private_part
from fsl_async.bounds.client import packed
from fsl_async.bounds.field import field_of, signed
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import prove
from fsl_async.digests import DIGEST_BYTES, Buffer
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.protocols.ssa import transitions
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements
from fsl_async.wire.messages import Message, Proofs
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from parties import RequestDeniedError, SumRefusedError, simulate
from tests.support.bounded import WEIGHT_LIES, with_weight_lies
from tests.support.cases import one_in, sides

from .byzantine import CLIENTS, MODEL, TASK, VICTIM, Byzantine, Said, flipped, with_error
from .meeting import meet
from .peer_attacks import Ending, Mutation

BLOCKS = (Sparse("items", rows=64, select=4, width=2), Dense("head", size=3))
METHODS = {
    "exact": {"ring": Ring(64, fraction_bits=10), "bound_proof": "exact"},
    "exact 128": {"ring": Ring(128, fraction_bits=40), "bound_proof": "exact"},
    "projected": {"ring": Ring(32, fraction_bits=10), "bound_proof": "projected"},
}
ROUND = {"items": np.zeros((64, 2)), "head": np.zeros(3)}

Forge = Callable[[BoundTerms, Elements, bytes, bytes, Randomness], bytes]


def bounded(method: str) -> Task:
    return Task(
        name="bounded", blocks=BLOCKS, updates="any", min_clients=2, max_clients=6, bound=1.0, **METHODS[method]
    )


def update(size: float) -> dict[str, object]:
    """Of norm 3 × size, a third of it in the dense block."""
    return {"items": ([1, 7], np.full((2, 2), size * 2**0.5)), "head": np.array([size, 0, 0])}


# ---- what a changed library can send of an update that is too large


def proves_another(terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness) -> bytes:
    """An honest proof, of nothing at all."""
    return private_part(terms, np.zeros_like(elements), msk, bind, randomness)


def proves_a_shrunk_one(
    terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    """An honest proof of an eighth of the update."""
    ring = Ring(terms.ring_bits)
    small = [number // 8 for number in signed(elements, terms.ring_bits)]
    data = b"".join((n % 2**terms.ring_bits).to_bytes(terms.ring_bits // 8, "little") for n in small)
    return private_part(terms, ring.from_bytes(data, len(small)), msk, bind, randomness)


def proves_what_there_is(
    terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    """The true values, squares as if nothing were missing, and their true polynomial."""
    weights = signed(elements, terms.ring_bits)
    masked = [0, 0, 0, 0]
    if not terms.exact:
        half = 2 ** (terms.ring_bits - 1)
        projected = project(bind, terms.projections, elements, terms.ring_bits)
        masked = [(number + half) % (2 * half) - half for number in projected] + masked
        masked = [max(value, -terms.offset) for value in masked]
    return _forged(terms, weights, masked, msk, bind, randomness)


def proves_with_all_bits(
    terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    """Integers as large as they may be."""
    masked = [2 ** (8 * terms.mask_bytes - 1) - 1 - terms.offset] * terms.masked
    return _forged(terms, signed(elements, terms.ring_bits), masked, msk, bind, randomness)


def proves_for_another_round(
    terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    """An honest proof of another update in another round, whose binding is another."""
    return private_part(terms, np.zeros_like(elements), msk, bytes(32), randomness)


def _forged(
    terms: BoundTerms, weights: list[int], masked: list[int], msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    field = field_of(terms.ring_bits)
    seeds = field.reduce(randomness(field.drawn_bytes * terms.wires.count))
    values = [*weights, *masked] if terms.exact else masked
    return packed(terms, masked, prove(terms.wires, values, seeds), msk, bind)


FORGERIES: tuple[Forge, ...] = (
    proves_another,
    proves_a_shrunk_one,
    proves_what_there_is,
    proves_with_all_bits,
    proves_for_another_round,
)


def change_the_library(monkeypatch: pytest.MonkeyPatch, forge: Forge) -> None:
    """Whoever's update is too large takes the changed library; all others the true one."""

    def either(terms: BoundTerms, elements: Elements, msk_other: bytes, bind: bytes, randomness: Randomness) -> bytes:
        squares = sum(number * number for number in signed(elements, terms.ring_bits))
        made = private_part if squares <= terms.norm**2 else forge
        return made(terms, elements, msk_other, bind, randomness)

    monkeypatch.setattr(library, "private_part", either)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
async def test_a_client_that_cheats_is_left_out_and_nobody_else(
    method: str, forge: Forge, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    change_the_library(monkeypatch, forge)
    async with simulate(bounded(method), ROUND, seed=seed) as network:
        for name, size in (("alice", 0.25), ("mallory", 1.0), ("bob", 0.125)):
            async with network.client(name) as client:
                await client.submit(update(size))
        outcome = await network.finish_round()
        assert outcome.clients == ("alice", "bob")
        assert outcome.excluded == {"mallory": "bound"}
        np.testing.assert_allclose(outcome.update["head"], [0.375, 0, 0], atol=0.01)
        np.testing.assert_allclose(outcome.update["items"][[1, 7]], 0.375 * 2**0.5, atol=0.01)
        for server in network.servers:
            (evidence,) = await server.evidence.entries()
            assert evidence.kind == "bound"
            assert "mallory" in evidence.about


# ---- weights


def weighed(method: str) -> Task:
    blocks = (Sparse("items", rows=64, select=4, width=2), Dense("examples", size=1), Dense("head", size=3))
    return msgspec.structs.replace(
        bounded(method), blocks=blocks, apply="weighted-mean", weights="examples", largest_weight=0.5
    )


def of_weight(weight: float, change: float) -> dict[str, object]:
    return {"items": ([1, 7], np.full((2, 2), change)), "examples": np.array([weight]), "head": np.zeros(3)}


@pytest.mark.parametrize(("weight", "lie", "method"), one_in(2, [-0.1875, 0.5625], WEIGHT_LIES, METHODS))
async def test_a_client_whose_weight_is_none_is_left_out_and_named(
    method: str, lie: Forge, weight: float, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    """Two clients of a tenth and one that takes nearly all of it away: the mean would be as long as it likes."""
    monkeypatch.setattr(arguments, "_check_weight", lambda task, name, weight: None)
    with with_weight_lies(lie):
        async with simulate(weighed(method), ROUND, seed=seed) as network:
            for name, weighs in (("alice", 0.125), ("mallory", weight), ("bob", 0.125)):
                async with network.client(name) as client:
                    await client.submit(of_weight(weighs, 0.125))
            outcome = await network.finish_round()
            assert outcome.clients == ("alice", "bob")
            assert outcome.excluded == {"mallory": "bound"}
            for server in network.servers:
                np.testing.assert_allclose(server.model["items"][[1, 7]], 0.25 / 0.5, atol=0.01)
                (evidence,) = await server.evidence.entries()
                assert (evidence.kind, "mallory" in evidence.about) == ("bound", True)


async def test_a_client_s_own_library_says_which_weight_is_too_large(seed: int, autojump_clock) -> None:
    async with simulate(weighed("exact"), ROUND, seed=seed) as network, network.client("alice") as alice:
        with pytest.raises(
            MisuseError, match=r"'examples': a weight of at most the task's largest, 0\.5, .* got 0\.75"
        ):
            await alice.submit(of_weight(0.75, 0.0))
        await alice.submit(of_weight(0.5, 0.125))


async def test_a_client_that_weighs_next_to_nothing_moves_the_mean_by_its_bound_over_the_largest_weight(
    seed: int, autojump_clock
) -> None:
    """The others have abstained: what they submit is zeros, and their weight with it."""
    async with simulate(weighed("exact"), ROUND, seed=seed) as network:
        for name, weight, change in (("alice", 0.0, 0.0), ("mallory", 2**-10, 0.49), ("bob", 0.0, 0.0)):
            async with network.client(name) as client:
                await client.submit(of_weight(weight, change))
        await network.finish_round()
        moved = np.linalg.norm(network.model["items"])
    assert 1.9 < moved <= 1.0 / 0.5


# ---- parts that cannot be read, or come twice


def too_short(private: bytes, terms: BoundTerms) -> bytes:
    return private[:-1]


def beyond_the_prime(private: bytes, terms: BoundTerms) -> bytes:
    size = terms.field.element_bytes
    return private[:-size] + b"\xff" * size


@pytest.mark.parametrize(("spoil", "says"), [(too_short, "bytes"), (beyond_the_prime, "is not below the prime")])
async def test_a_part_that_cannot_be_read_is_refused_by_name_and_nobody_else_hurt(
    spoil: Callable[[bytes, BoundTerms], bytes], says: str, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    change_the_library(monkeypatch, lambda terms, *others: spoil(proves_another(terms, *others), terms))
    async with simulate(bounded("exact"), ROUND, seed=seed) as network:
        for name in ("alice", "bob"):
            async with network.client(name) as client:
                await client.submit(update(0.25))
        async with network.client("mallory") as client:
            with pytest.raises(RequestDeniedError, match=says):
                await client.submit(update(1.0))
        outcome = await network.finish_round()
        assert outcome.clients == ("alice", "bob")


async def test_a_part_that_was_not_committed_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    monkeypatch.setattr(library, "private_digest", lambda private, msk: bytes(DIGEST_BYTES))
    async with simulate(bounded("exact"), ROUND, seed=seed) as network, network.client("mallory") as client:
        with pytest.raises(RequestDeniedError, match="does not match its digest"):
            await client.submit(update(0.25))


# ---- servers that lie

WHOLE = Task(**{name: getattr(TASK, name) for name in TASK.__struct_fields__} | {"bound": 20.0})
"""What the other attacks of servers are tried on, with a bound that its five clients keep."""


class AnswersWrongly(Byzantine):
    """Says something else of the victim's bound, and abides by it."""

    def spoilt(self, answer: bytes) -> bytes:
        """What it says in place of an answer."""
        return flipped(answer)

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, ssa.Evaluated):
            own = event.proofs[VICTIM]
            wrong = own[:DIGEST_BYTES] + self.spoilt(own[DIGEST_BYTES:])
            event = ssa.Evaluated(event.proofs | {VICTIM: wrong})
        return (event,)


class AnswersNothing(AnswersWrongly):
    def spoilt(self, answer: bytes) -> bytes:
        return bytes(len(answer))


class AnswersTooLittle(Byzantine):
    """Tells the other server what cannot be an answer."""

    def spoilt(self, answer: bytes) -> bytes:
        """What it says in place of an answer."""
        return answer[:-1]

    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Proofs):
            entries = unpack_digests(bulk, 10, "the test", self.running.driver.terms.proof_bytes)
            own = entries[VICTIM]
            bulk = pack_digests(entries | {VICTIM: own[:DIGEST_BYTES] + self.spoilt(own[DIGEST_BYTES:])})
        yield message, bulk


class AnswersBeyondThePrime(AnswersTooLittle):
    def spoilt(self, answer: bytes) -> bytes:
        return b"\xff" * len(answer)


@pytest.mark.parametrize(("mutant", "index"), sides([AnswersWrongly, AnswersNothing]))
async def test_a_server_can_leave_a_client_out_but_not_unseen(
    mutant: type[Byzantine], index: int, seed: int, autojump_clock
) -> None:
    account = await meet(Mutation("answers wrongly", mutant, Ending.GOES_ON, "bound"), index, seed, WHOLE)
    assert account.mutant.fired
    assert account.report[0].excluded == {VICTIM: "bound"}
    assert tuple(account.report[0].clients) == tuple(name for name in CLIENTS if name != VICTIM)
    (evidence,) = account.evidence
    assert evidence.kind == "bound"
    assert VICTIM in evidence.about
    assert f"S{index}" in evidence.about


@pytest.mark.parametrize(("mutant", "index"), sides([AnswersTooLittle, AnswersBeyondThePrime]))
async def test_a_malformed_answer_halts_the_honest_server(
    mutant: type[Byzantine], index: int, seed: int, autojump_clock
) -> None:
    account = await meet(Mutation("answers nonsense", mutant, Ending.HALTS, ""), index, seed, WHOLE)
    (error,) = account.halts[1 - index]
    assert isinstance(error, PeerViolationError)
    assert error.peer == f"S{index}"
    assert re.search("not in canonical form|is not below the prime", str(error))
    assert not account.sums


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
async def test_with_a_bound_and_without_a_lie_all_are_counted(index: int, seed: int, autojump_clock) -> None:
    account = await meet(Mutation("none", Byzantine, Ending.GOES_ON, ""), index, seed, WHOLE)
    assert tuple(account.report[0].clients) == CLIENTS
    assert not account.halts
    assert account.evidence == []
    assert MODEL["items"].shape == (64, 2)


class AddsWhatNoClientCan(Byzantine):
    """Adds an error to one weight of its share: less than a client may submit for it, more than any has proved."""

    error = 1_000

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, ssa.Summed):
            event = with_error(self, event, slice(10, 11), self.error)
        return (event,)


class AddsWhatNobodyMay(AddsWhatNoClientCan):
    """Adds more than all clients together may submit for a weight, bound or no bound."""

    error = 2**63


@pytest.mark.parametrize(("mutant", "index"), sides([AddsWhatNoClientCan, AddsWhatNobodyMay]))
async def test_a_sum_longer_than_what_its_clients_have_proved_is_refused_and_the_server_named(
    mutant: type[Byzantine], index: int, seed: int, autojump_clock
) -> None:
    account = await meet(Mutation("adds", mutant, Ending.GOES_ON, ""), index, seed, WHOLE)
    assert account.mutant.fired
    (report,) = account.report
    assert (report.ended, tuple(report.clients), report.counted) == ("refused", CLIENTS, ())
    assert all(isinstance(told, SumRefusedError) for told in account.clients.values())
    (entry,) = account.evidence
    assert (entry.kind, entry.about) == ("excess", f"S{index}")
    for server in (account.honest, account.mutant):
        assert not server.model["items"].any()


async def test_no_proof_is_judged_more_than_twice(monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock) -> None:
    """Once for the verdict, once for evidence: the server answers nobody meanwhile."""
    judged: list[bytes] = []
    judge = transitions.accepts

    def counting(terms: BoundTerms, ours: Buffer, theirs: Buffer) -> bool:
        judged.append(bytes(ours))
        return judge(terms, ours, theirs)

    monkeypatch.setattr(transitions, "accepts", counting)
    async with simulate(bounded("exact"), ROUND, seed=seed) as network:
        for name in ("alice", "bob"):
            async with network.client(name) as client:
                await client.submit(update(0.25))
        await network.finish_round()
    assert len(set(judged)) == 4
    assert len(judged) <= 2 * len(set(judged))


# ---- sessions


async def test_every_epoch_of_a_session_is_proved_anew(
    monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    change_the_library(monkeypatch, proves_a_shrunk_one)
    task = msgspec.structs.replace(bounded("exact"), selection="fixed")
    async with (
        simulate(task, ROUND, seed=seed) as network,
        network.client("alice") as alice,
        network.client("mallory") as mallory,
        network.client("bob") as bob,
    ):
        for size, counted in ((0.25, True), (0.7, False), (0.125, True)):
            for client in (alice, bob):
                await client.submit(update(0.25))
            await mallory.submit(update(size))
            outcome = await network.finish_round()
            assert ("mallory" in outcome.clients) is counted
            assert outcome.excluded == ({} if counted else {"mallory": "bound"})
            assert (await mallory.outcome()).counted is counted


@pytest.mark.parametrize("method", ["exact", "projected"])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_what_is_added_on_a_union_is_what_is_bounded(
    selection: str, method: str, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    change_the_library(monkeypatch, proves_what_there_is)
    task = msgspec.structs.replace(bounded(method), alignment="union", selection=selection)
    async with (
        simulate(task, ROUND, seed=seed) as network,
        network.client("alice") as alice,
        network.client("mallory") as mallory,
        network.client("bob") as bob,
    ):
        for client in (alice, mallory, bob):
            await client.unite({"items": [1, 7]})
        await network.finish_union()
        for client, size in ((alice, 0.25), (mallory, 0.7), (bob, 0.125)):
            await client.submit(update(size))
        outcome = await network.finish_round()
    assert outcome.clients == ("alice", "bob")
    assert outcome.excluded == {"mallory": "bound"}
    np.testing.assert_allclose(outcome.update["head"], [0.375, 0, 0], atol=0.01)
