"""Rounds of real servers with a bound: clients that cheat are left out, servers that lie leave out nobody unseen."""

import re
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import fsl_async.client.bound as library
import parties.client.arguments as arguments
from fsl_async import BoundExceededError, Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import BoundTerms, private_part, verifier_bytes
from fsl_async.bounds.field import signed
from fsl_async.digests import DIGEST_BYTES, Buffer
from fsl_async.protocols.ssa import transitions
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements
from fsl_async.wire.messages import Hint, Proofs, Submit
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from parties import RequestDeniedError, SumRefusedError, simulate
from parties.client.submission import Draft
from tests.support.bounded import with_weight_lies
from tests.support.cases import one_in, sides

from .byzantine import CLIENTS, MODEL, TASK, VICTIM, Byzantine, flipped
from .meeting import meet
from .peer_attacks import adding, with_bulk, with_proof

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


# ---- clients that cheat


def proves_nothing(terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness) -> bytes:
    """An honest proof, of zeros; what else can be proved is tried in `tests/fsl_async/bounds/test_attacks.py`."""
    return private_part(terms, np.zeros_like(elements), msk, bind, randomness)


def change_the_library(monkeypatch: pytest.MonkeyPatch, forge: Forge = proves_nothing) -> None:
    """Whoever's update is too large takes the changed library; all others the true one."""

    def either(terms: BoundTerms, elements: Elements, msk_other: bytes, bind: bytes, randomness: Randomness) -> bytes:
        squares = sum(number * number for number in signed(elements, terms.ring_bits))
        made = private_part if squares <= terms.norm**2 else forge
        return made(terms, elements, msk_other, bind, randomness)

    monkeypatch.setattr(library, "private_part", either)


@pytest.mark.parametrize("method", METHODS)
async def test_a_client_that_cheats_is_left_out_and_nobody_else(
    method: str, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    async with simulate(bounded(method), ROUND, seed=seed) as network, network.client("mallory") as mallory:
        for name, size in (("alice", 0.25), ("bob", 0.125)):
            async with network.client(name) as client:
                await client.submit(update(size))
        with pytest.raises(BoundExceededError, match=r"norm over all blocks is [23].*'items' alone 2\.8"):
            await mallory.submit(update(1.0))
        change_the_library(monkeypatch)
        await mallory.submit(update(1.0))
        outcome = await network.finish_round()
        told = await mallory.outcome()
        assert outcome.clients == ("alice", "bob")
        assert outcome.excluded == {"mallory": "bound"}
        assert not told.counted
        assert re.match(r"bound: .*fsl_async\.learning\.clipped", told.reason)
        np.testing.assert_allclose(outcome.update["head"], [0.375, 0, 0], atol=0.01)
        np.testing.assert_allclose(outcome.update["items"][[1, 7]], 0.375 * 2**0.5, atol=0.01)
        for index, server in enumerate(network.servers):
            (evidence,) = await server.evidence.entries()
            assert (evidence.kind, evidence.about) == ("bound", f"mallory or S{1 - index}")


# ---- weights


def weighed(method: str) -> Task:
    blocks = (Sparse("items", rows=64, select=4, width=2), Dense("examples", size=1), Dense("head", size=3))
    return msgspec.structs.replace(
        bounded(method), blocks=blocks, apply="weighted-mean", weights="examples", largest_weight=0.5
    )


def of_weight(weight: float, change: float) -> dict[str, object]:
    return {"items": ([1, 7], np.full((2, 2), change)), "examples": np.array([weight]), "head": np.zeros(3)}


@pytest.mark.parametrize(("weight", "method"), one_in(2, [-0.1875, 0.5625], METHODS))
async def test_a_client_whose_weight_is_none_is_left_out_and_named(
    method: str, weight: float, monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    """Two clients of a tenth and one that takes nearly all of it away: the mean would be as long as it likes."""
    monkeypatch.setattr(arguments, "_check_weight", lambda task, name, weight: None)
    with with_weight_lies():
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
    change_the_library(monkeypatch, lambda terms, *others: spoil(proves_nothing(terms, *others), terms))
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


async def test_two_digests_of_the_proof_are_two_submissions_and_neither_counts(
    monkeypatch: pytest.MonkeyPatch, seed: int, autojump_clock
) -> None:
    honest = Draft.message

    def message(draft: Draft, server: int) -> Submit | Hint:
        said = honest(draft, server)
        lies = draft.client == "mallory" and draft.config.carrier("mallory") != server
        return msgspec.structs.replace(said, bound_digest=flipped(said.bound_digest)) if lies else said

    monkeypatch.setattr(Draft, "message", message)
    async with simulate(bounded("projected"), ROUND, seed=seed) as network:
        for name in ("alice", "bob"):
            async with network.client(name) as client:
                await client.submit(update(0.25))
        async with network.client("mallory") as mallory:
            with pytest.raises(PeerViolationError, match="acknowledged another submission"):
                await mallory.submit(update(0.25))
        outcome = await network.finish_round()
    assert (outcome.clients, outcome.excluded) == (("alice", "bob"), {"mallory": "mismatch"})


# ---- servers that lie

WHOLE = Task(**{name: getattr(TASK, name) for name in TASK.__struct_fields__} | {"bound": 20.0})
"""What the other attacks of servers are tried on, with a bound that its five clients keep."""


def of_answer(spoil: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The change of an entry in a list of proofs that changes what is said of the bound."""
    return lambda entry: entry[:DIGEST_BYTES] + spoil(entry[DIGEST_BYTES:])


def telling(spoil: Callable[[bytes], bytes]) -> type[Byzantine]:
    """A server that tells the other one what cannot be an answer, and does not abide by it."""

    def told(bulk: bytes) -> bytes:
        entries = unpack_digests(bulk, 10, "the test", DIGEST_BYTES + verifier_bytes(planned(WHOLE)))
        return pack_digests({**entries, VICTIM: of_answer(spoil)(entries[VICTIM])})

    return with_bulk(Proofs, told)


FALSE = {"another": with_proof(of_answer(flipped)), "zeros": with_proof(of_answer(lambda answer: bytes(len(answer))))}
NO_ANSWERS = {
    "too short": telling(lambda said: said[:-1]),
    "beyond the prime": telling(lambda said: b"\xff" * len(said)),
}


@pytest.mark.parametrize(("name", "index"), sides(FALSE))
async def test_a_server_can_leave_a_client_out_but_not_unseen(name: str, index: int, seed: int, autojump_clock) -> None:
    account = await meet(FALSE[name], index, seed, WHOLE)
    assert account.mutant.fired
    assert account.report[0].excluded == {VICTIM: "bound"}
    assert tuple(account.report[0].clients) == tuple(name for name in CLIENTS if name != VICTIM)
    (evidence,) = account.evidence
    assert (evidence.kind, evidence.about) == ("bound", f"{VICTIM} or S{index}")


@pytest.mark.parametrize(("name", "index"), sides(NO_ANSWERS))
async def test_a_malformed_answer_halts_the_honest_server(name: str, index: int, seed: int, autojump_clock) -> None:
    account = await meet(NO_ANSWERS[name], index, seed, WHOLE)
    (error,) = account.halts[1 - index]
    assert isinstance(error, PeerViolationError)
    assert error.peer == f"S{index}"
    assert re.search("not in canonical form|is not below the prime", str(error))
    assert not account.sums


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
async def test_with_a_bound_and_without_a_lie_all_are_counted(index: int, seed: int, autojump_clock) -> None:
    account = await meet(Byzantine, index, seed, WHOLE)
    assert tuple(account.report[0].clients) == CLIENTS
    assert not account.halts
    assert account.evidence == []
    assert MODEL["items"].shape == (64, 2)


@pytest.mark.parametrize(("error", "index"), sides([1_000, 2**63]))
async def test_a_sum_longer_than_what_its_clients_have_proved_is_refused_and_the_server_named(
    error: int, index: int, seed: int, autojump_clock
) -> None:
    """With more in one weight than any client has proved, and than all may submit together, bound or no bound."""
    account = await meet(adding(error, slice(10, 11)), index, seed, WHOLE)
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
    change_the_library(monkeypatch)
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
    change_the_library(monkeypatch)
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
