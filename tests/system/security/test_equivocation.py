"""Clients that tell the two servers different things, or the same thing twice: left out, refused, and remembered.

Every test ends with an honest round: whatever the client did, both servers go on and count everybody else exactly.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.bin_count import planned
from fsl_async.client import upload
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, seed_commitment
from fsl_async.digests import DIGEST_BYTES
from fsl_async.protocols import epochs
from fsl_async.wire.messages import Hint, Message, Receipt, Refused
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees
from parties import simulate
from parties.server.evidence import Evidence, EvidenceBook
from parties.server.replies import ContradictionError, RequestRefusedError
from parties.server.sessions import Sessions
from parties.simulation.network import Network
from parties.storage.store import MemoryStore
from tests.support.hand_made import Request, ask, connected, name_of, planted, retrieval, submission
from tests.support.shop import TASK, honest_round, model

from .byzantine import flipped

MALLORY = "mallory"


async def present(network: Network) -> RoundConfig:
    return (await network.servers[0].next_round(0)).config


@asynccontextmanager
async def begun(seed: int) -> AsyncIterator[tuple[Network, RoundConfig, int, Request]]:
    """Servers in an open round; its configuration, Mallory's carrier, and what Mallory would honestly submit."""
    async with simulate(TASK, model(), seed) as network:
        config = await present(network)
        yield network, config, config.carrier(MALLORY), submission(config, MALLORY)


async def send(network: Network, request: Request, name: str = MALLORY, servers=(0, 1)) -> list[Message]:
    """Send a request to both servers at once, over that client's channels; their replies."""
    replies: dict[int, Message] = {}

    async def one(server: int) -> None:
        async with connected(network.client(name), server) as channel:
            replies[server] = await ask(channel, request, server)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(one, server)
    return [replies[server] for server in servers]


def told(request: Request, server: int, **changes) -> Request:
    """The same request, but for what one server is told."""
    messages = list(request.messages)
    messages[server] = msgspec.structs.replace(messages[server], **changes)
    return replace(request, messages=(messages[0], messages[1]))


def carrying(request: Request, bulk: bytes) -> Request:
    """The same request with other content for the carrier."""
    return replace(request, bulk=(bulk, b"") if request.bulk[0] else (b"", bulk))


def excluded(network: Network) -> list[dict[str, str]]:
    """Whom each server says it has left out of the last round."""
    return [server.rounds.past[-1].report.excluded for server in network.servers]


async def evidence(network: Network, server: int, kind: str) -> list[Evidence]:
    return [entry for entry in await network.servers[server].evidence.entries() if entry.kind == kind]


def reason(reply: Message) -> str:
    assert isinstance(reply, Refused), reply
    return reply.reason


@pytest.mark.parametrize("make", [submission, retrieval])
async def test_a_part_other_than_the_announced_one_is_refused_where_it_would_mislead(make, seed, autojump_clock):
    async with begun(seed) as (network, config, carrier, _):
        honest = make(config, MALLORY)
        lie = told(honest, 1 - carrier, public_digest=flipped(honest.messages[carrier].public_digest))
        replies = await send(network, lie)
        assert not isinstance(replies[carrier], Refused)
        assert reason(replies[1 - carrier]) == "malformed"
        (entry,) = await evidence(network, 1 - carrier, "two-parts")
        assert (entry.number, entry.about) == (1, f"{MALLORY} or S{carrier}")
        assert f"one of them has lied, 'mallory' or S{carrier}" in entry.explanation
        assert entry.first == flipped(entry.second)
        await honest_round(network)
        if make is submission:
            assert excluded(network) == [{MALLORY: f"only_s{carrier}"}] * 2


async def test_a_mismatch_sent_again_stops_no_server(seed, autojump_clock):
    """The carrier forwards what it has again; the other server knows it already and takes it for no violation."""
    async with begun(seed) as (network, _, carrier, honest):
        lie = told(honest, 1 - carrier, public_digest=bytes(32))
        for _ in range(3):
            await send(network, lie)
        assert len(await evidence(network, 1 - carrier, "two-parts")) == 1
        await honest_round(network)


async def test_a_part_other_than_announced_to_its_carrier_is_not_forwarded(seed, autojump_clock):
    async with begun(seed) as (network, _, carrier, honest):
        (reply,) = await send(network, carrying(honest, flipped(honest.bulk[carrier])), servers=(carrier,))
        assert reason(reply) == "malformed"
        assert "S0" not in reply.explanation
        assert "S1" not in reply.explanation
        (entry,) = await evidence(network, carrier, "false-digest")
        assert (entry.about, entry.first) == (MALLORY, honest.messages[carrier].public_digest)
        assert "S0" not in entry.explanation
        assert "S1" not in entry.explanation
        assert not any(type(note.message).__name__ == "Forward" for note in network.transcript)
        await honest_round(network)


def other_commitment(request: Request, server: int) -> Request:
    """The same request, but for the commitment to the other server's seed that one server is told."""
    commitments = list(request.messages[server].commitments)
    commitments[1 - server] = flipped(commitments[1 - server])
    return told(request, server, commitments=tuple(commitments))


async def test_different_submissions_at_the_two_servers_leave_the_roster(seed, autojump_clock):
    async with begun(seed) as (network, _, carrier, honest):
        replies = await send(network, other_commitment(honest, 1 - carrier))
        receipts = [reply.digest for reply in replies if isinstance(reply, Receipt)]
        assert len(set(receipts)) == 2
        await honest_round(network)
        assert excluded(network) == [{MALLORY: "mismatch"}] * 2
        (first,), (second,) = [await evidence(network, server, "two-digests") for server in (0, 1)]
        assert [first.about, second.about] == [f"{MALLORY} or S1", f"{MALLORY} or S0"]
        assert (first.first, first.second) == (second.second, second.first) == tuple(receipts)


async def test_a_dense_share_that_is_not_the_one_of_the_public_part_is_refused(seed, autojump_clock):
    """Both servers are told the digest of a part in which another dense share's digest stands."""
    async with begun(seed) as (network, _, carrier, honest):
        layout = Layout.submission(planned(TASK), Trees.OWN)
        lie = carrying(honest, flipped(honest.bulk[carrier], layout.size - 1))
        announced = name_of(layout, lie.bulk[carrier][: layout.size])
        lie = told(told(lie, 0, public_digest=announced), 1, public_digest=announced)
        (reply,) = await send(network, lie, servers=(carrier,))
        assert reason(reply) == "malformed"
        assert "dense share" in reply.explanation
        assert not any(type(note.message).__name__ == "Forward" for note in network.transcript)
        await honest_round(network)


async def test_clients_that_all_use_one_salt_are_counted_as_any_other(seed, autojump_clock, monkeypatch):
    """It is their own values that they hide badly: nobody else's sum is another."""
    monkeypatch.setattr(upload, "_salt", lambda *of: bytes(SALT_BYTES))
    async with simulate(TASK, model(), seed) as network:
        for _ in range(2):
            await honest_round(network)


async def test_the_same_part_with_other_words_is_a_conflict(seed, autojump_clock):
    async with begun(seed) as (network, _, carrier, honest):
        first = await send(network, honest)
        (reply,) = await send(network, other_commitment(honest, 1 - carrier), servers=(1 - carrier,))
        assert reason(reply) == "conflict"
        (entry,) = await evidence(network, 1 - carrier, "two-contents")
        assert entry.first == first[1 - carrier].digest
        outcome = await network.servers[0].next_round(0)
        assert outcome.state.entries == {MALLORY: entry.first}


async def test_trees_of_another_seed_fail_verification_on_both_servers(seed, autojump_clock):
    async with begun(seed) as (network, config, _, honest):
        lie = to_carrier(bound_anew(honest, config, MALLORY, seed_0=bytes(16)), config, MALLORY)
        replies = await send(network, lie)
        assert [type(reply) for reply in replies] == [Receipt, Receipt]
        await honest_round(network)
        assert excluded(network) == [{MALLORY: "proof"}] * 2
        (first,), (second,) = [await evidence(network, server, "proof") for server in (0, 1)]
        assert (first.first, first.second) == (second.second, second.first)


@pytest.mark.parametrize("lie", ["the retrieval's trees", "no retrieval", "a hint"])
async def test_other_trees_at_the_server_that_is_not_the_carrier_are_no_submission(lie, seed, autojump_clock):
    """Its head says of the same public part that it brings trees, or takes those of a retrieval, or of a session."""
    async with simulate(TASK, model(), seed) as network:
        config, trees = await present(network), planted(await present(network))
        carrier, honest = config.carrier(MALLORY), submission(config, MALLORY, trees=trees)
        if lie != "no retrieval":
            answers = await send(network, retrieval(config, MALLORY, trees=trees))
            assert not any(isinstance(answer, Refused) for answer in answers)
        said = honest.messages[1 - carrier]
        head = msgspec.structs.replace(said, query=1)
        if lie == "a hint":
            head = Hint(said.round_id, said.commitments[1 - carrier], said.public_digest)
        messages = (honest.messages[0], head) if carrier == 0 else (head, honest.messages[1])
        replies = await send(network, replace(honest, messages=messages))
        assert isinstance(replies[carrier], Receipt)
        assert reason(replies[1 - carrier]) in ("malformed", "no-session")
        await honest_round(network)
        assert excluded(network) == [{MALLORY: f"only_s{carrier}"}] * 2
        assert await evidence(network, 1 - carrier, "two-parts") == []


@pytest.mark.parametrize("change", [{"query": 1}, {"query": 2}])
async def test_a_part_with_trees_is_not_taken_for_one_on_a_retrieval_s(change, seed, autojump_clock):
    async with simulate(TASK, model(), seed) as network:
        config, trees = await present(network), planted(await present(network))
        carrier = config.carrier(MALLORY)
        await send(network, retrieval(config, MALLORY, trees=trees))
        lie = told(submission(config, MALLORY, trees=trees), carrier, **change)
        (reply,) = await send(network, lie, servers=(carrier,))
        assert reason(reply) == "malformed"
        assert not any(getattr(note.message, "purpose", "") == "submit" for note in network.transcript)
        await honest_round(network)
        assert excluded(network) == [{}] * 2


def bound_anew(request: Request, config: RoundConfig, name: str, seed_0: bytes = b"") -> Request:
    """The same content in this round and under this name, with commitments that fit."""
    seeds = (seed_0 or request.messages[0].seed, request.messages[1].seed)
    commitments = tuple(seed_commitment(seeds[b], config.round_id(), name, b) for b in (0, 1))
    for server in (0, 1):
        request = told(request, server, round_id=config.round_id(), seed=seeds[server], commitments=commitments)
    return request


async def test_a_submission_of_an_earlier_round_is_refused_and_bound_anew_fails_verification(seed, autojump_clock):
    async with simulate(TASK, model(), seed) as network:
        old = submission(await present(network), MALLORY)
        await honest_round(network)
        config = await present(network)
        assert [reason(reply) for reply in await send(network, old)] == ["round-closed"] * 2
        renamed = told(told(old, 0, round_id=config.round_id()), 1, round_id=config.round_id())
        for server in (0, 1):
            (reply,) = await send(network, renamed, servers=(server,))
            assert "master seed" in reply.explanation
        await send(network, to_carrier(bound_anew(old, config, MALLORY), config, MALLORY))
        await honest_round(network)
        assert excluded(network) == [{MALLORY: "proof"}] * 2


def to_carrier(request: Request, config: RoundConfig, name: str) -> Request:
    """The content for this client's carrier in this round, with a dense digest that fits."""
    bulk, carrier = request.bulk[0] or request.bulk[1], config.carrier(name)
    layout = Layout.submission(planned(TASK), Trees.OWN)
    public, dense = bulk[: layout.size - DIGEST_BYTES], bulk[layout.size :]
    public += dense_digest(dense, request.messages[carrier].seed)
    request = replace(request, bulk=(public + dense, b"") if carrier == 0 else (b"", public + dense))
    announced = name_of(layout, public)
    return told(told(request, 0, public_digest=announced), 1, public_digest=announced)


async def test_another_clients_submission_counts_for_nobody_but_that_client(seed, autojump_clock):
    async with begun(seed) as (network, config, _, _):
        names = [name for name in ("mallory", "mal", "mara") if config.carrier(name) == config.carrier("carol")]
        theirs = submission(config, "carol")
        carrier = config.carrier("carol")
        (reply,) = await send(network, theirs, names[0], servers=(carrier,))
        assert reason(reply) == "malformed"
        assert "master seed" in reply.explanation
        replies = await send(network, bound_anew(theirs, config, names[0]), names[0])
        assert [type(reply) for reply in replies] == [Receipt, Receipt]
        await honest_round(network)
        assert excluded(network) == [{names[0]: "proof"}] * 2


def test_a_second_hint_for_an_epoch_is_refused_with_both_digests():
    sessions = Sessions(TASK, MemoryStore())
    with pytest.raises(RequestRefusedError, match="Hinted in state Absent"):
        sessions.take(MALLORY, epochs.Hinted(2, bytes(32)))
    sessions.take(MALLORY, epochs.Brought(3, bytes(32)))
    sessions.take(MALLORY, epochs.Brought(3, bytes(32)))
    for event in (epochs.Brought(3, b"\x01" * 32), epochs.Brought(2, b"\x01" * 32)):
        with pytest.raises(ContradictionError) as caught:
            sessions.take(MALLORY, event)
        assert (caught.value.kind, caught.value.first, caught.value.second) == ("two-hints", bytes(32), b"\x01" * 32)


async def test_evidence_is_kept_once_per_round_party_and_kind_and_survives_its_book():
    store = MemoryStore()
    book = EvidenceBook(store)
    entries = [
        Evidence(number=number, about=about, kind=kind, first=b"\x01", second=b"\x02", explanation="seen")
        for number in (1, 2)
        for about in ("alice", "S1")
        for kind in ("two-contents", "proof")
    ]
    for entry in np.repeat(np.array(entries, dtype=object), 3):
        await book.keep(entry)
    assert await EvidenceBook(store).entries() == entries


class FullStore(MemoryStore):
    """A store in which nothing is kept before there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = trio.Event()

    async def commit(self, *changes):
        await self.room.wait()
        await super().commit(*changes)


async def test_no_call_returns_before_the_evidence_is_stored(autojump_clock):
    store = FullStore()
    book = EvidenceBook(store)
    entry = Evidence(number=1, about=MALLORY, kind="two-contents", explanation="seen")
    for _ in range(2):  # connections that are lost while they wait
        with trio.move_on_after(1) as lost:
            await book.keep(entry)
        assert lost.cancelled_caught
    store.room.set()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(book.keep, entry)
    assert await EvidenceBook(store).entries() == [entry]


async def test_evidence_has_no_secrets(seed, autojump_clock):
    async with begun(seed) as (network, config, carrier, _):
        first, second = submission(config, MALLORY, 1), submission(config, MALLORY, 2)
        await send(network, other_commitment(first, 1 - carrier))
        await send(network, second, servers=(carrier,))
        await honest_round(network)
        secrets = [message.seed for request in (first, second) for message in request.messages]
        secrets += [request.bulk[carrier][place:][:16] for request in (first, second) for place in (0, -16)]
        for server in network.servers:
            kept = b"".join(await server.setup.store.entries("evidence"))
            assert kept
            assert not any(secret in kept for secret in secrets)
