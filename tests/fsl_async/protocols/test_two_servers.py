"""Two servers' rounds driven against each other in plain Python: any order of events, crashes and lost messages.

Each server keeps its state (that is durable) and loses everything else when it crashes: early messages, work under way,
and whatever is on its way between the two. When they meet again each performs the effects of its state.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async.digests import Domain, digest
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event, accepted_later
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Abort, Commitment, Conclusion, FromPeer, Proofs, RosterList, RowCounts, Share
from fsl_async.wire.peer_lists import unpack_digests
from tests.support.cases import often, one_in
from tests.support.machine_scenes import key

CLIENTS = ("alice", "bob", "carol", "dave")
BEFORE_COMMITTING = (ssa.Open, ssa.Closed, ssa.Closing, ssa.Rostered, ssa.Proved, ssa.Verified, ssa.Tallied, ssa.Chosen)


@dataclass
class Server:
    """One server: a durable state, and volatile work and messages."""

    terms: ssa.Terms
    state: ssa.Round = field(default_factory=ssa.Open)
    passed: list[type[ssa.Round]] = field(default_factory=lambda: [ssa.Open])  # type: ignore[valid-type]
    early: list[Event] = field(default_factory=list)
    work: list[Event] = field(default_factory=list)
    outgoing: deque[bytes] = field(default_factory=deque)
    liars: frozenset[str] = frozenset()
    chosen: set[tuple[bytes, ...]] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """What an actor does with an event."""
        if type(event) not in ssa.ACCEPTS[type(self.state)] and accepted_later(ssa.ACCEPTS, self.state, event):
            self.early.append(event)
            return
        before, self.state = self.state, ssa.step(self.state, event, self.terms)
        if before == self.state:
            return
        self.passed.append(type(self.state))
        if isinstance(self.state, ssa.Chosen):
            self.chosen.add(self.state.counts)
        done = ssa.effects(before, self.terms)
        for effect in ssa.effects(self.state, self.terms):
            if effect not in done:
                self.perform(effect)
        early, self.early = self.early, []
        for waiting in early:
            self.take(waiting)

    def perform(self, effect: ssa.Effect) -> None:
        match effect:
            case ssa.Send(message=message, bulk=ssa.Stored(name=bulk) | bulk):
                self.outgoing.append(b"".join(encode(message, bulk)))
            case ssa.AwaitGrace():
                self.work.append(ssa.GraceOver())
            case ssa.Evaluate(roster=roster):
                proofs = {client: self.proof(client) for client in roster} if self.terms.verified else {}
                self.work.append(ssa.Evaluated(proofs))
            case ssa.CountRows(counted=counted):
                noise = bytes([len(self.passed)])  # another one whenever it counts again
                counts = digest(Domain.COUNTS, bytes([self.terms.server]), noise, *sorted(counted.values()))
                self.work.append(ssa.RowsCounted(counts))
            case ssa.Sum(counted=counted, counts=counts):
                share = digest(Domain.SHARE, bytes([self.terms.server]), *sorted(counted.values()), *counts)
                nonce = digest(Domain.SHARE, b"nonce", bytes([self.terms.server, len(self.passed)]))
                self.work.append(ssa.Summed(share, nonce))
            case ssa.Apply(counted=counted, share=share, peer_share=peer_share):
                shares = sorted([share, peer_share])
                shares += [bytes([self.terms.server])] if self.terms.own_rule else []  # an own rule that always differs
                self.work.append(ssa.Applied(digest(Domain.OUTCOME, *shares, *sorted(counted.values()))))

    def proof(self, client: str) -> bytes:
        lie = bytes([self.terms.server]) if client in self.liars else b""
        return digest(Domain.PROOF, client.encode(), lie)

    def crash(self) -> None:
        """Forget all but the state, and do again what it asks for."""
        self.early, self.work = [], []
        for effect in ssa.effects(self.state, self.terms):
            self.perform(effect)

    def resend(self) -> None:
        for effect in ssa.effects(self.state, self.terms):
            if isinstance(effect, ssa.Send):
                self.perform(effect)

    def hear(self, data: bytes) -> None:
        message, bulk = decode(data, FromPeer, self.terms.peer)
        match message:
            case RosterList():
                self.take(ssa.PeerRoster(unpack_digests(bulk, len(CLIENTS), self.terms.peer)))
            case Proofs():
                self.take(ssa.PeerProofs(unpack_digests(bulk, len(CLIENTS), self.terms.peer)))
            case RowCounts():
                self.take(ssa.PeerCounts(bytes(bulk)))
            case Commitment(commitment=commitment):
                self.take(ssa.PeerCommitment(commitment))
            case Share(nonce=nonce):
                self.take(ssa.PeerShare(bytes(bulk), nonce))
            case Conclusion(outcome=outcome):
                self.take(ssa.PeerConclusion(outcome))
            case Abort(explanation=explanation):
                self.take(ssa.PeerAbort(explanation))

    def admits(self, client: str) -> bool:
        match self.state:
            case ssa.Open():
                return True
            case ssa.Closing(theirs=theirs):
                return client in theirs
        return False

    def settled(self) -> bool:
        return isinstance(self.state, ssa.Done | ssa.Differed | ssa.Aborted)


@dataclass
class World:
    """Both servers and what happens to them."""

    servers: tuple[Server, Server]

    def act(self, action: Action) -> None:
        kind, number, choice = action
        server, peer = self.servers[number], self.servers[1 - number]
        match kind:
            case "submit":
                client = CLIENTS[choice % len(CLIENTS)]
                content = key(choice % len(CLIENTS) if choice < 96 else 100 + number)  # a few differ on purpose
                known = server.state.entries if isinstance(server.state, ssa.Open | ssa.Closing) else {}
                if server.admits(client) and known.get(client, content) == content:
                    server.take(ssa.Submitted(client, content))
            case "close" if isinstance(server.state, ssa.Open):
                server.take(ssa.CloseRound())
            case "deliver" if peer.outgoing:
                server.hear(peer.outgoing.popleft())
            case "work" if server.work:
                server.take(server.work.pop(choice % len(server.work)))
            case "give up" if isinstance(server.state, BEFORE_COMMITTING):
                server.take(ssa.GaveUp("an operator's whim"))
            case "crash":
                self.lose_the_link()
                server.crash()
                peer.resend()
            case "cut":
                self.lose_the_link()
                server.resend()
                peer.resend()
        self.check()

    def lose_the_link(self) -> None:
        for server in self.servers:
            server.outgoing.clear()

    def check(self) -> None:
        """What must hold at every moment."""
        for server, peer in (self.servers, self.servers[::-1]):
            if isinstance(server.state, ssa.Revealed | ssa.Combined | ssa.Concluded | ssa.Done | ssa.Differed):
                assert not isinstance(peer.state, (*BEFORE_COMMITTING, ssa.Aborted)), "a share is out, and it is free"
            if isinstance(
                server.state, ssa.Rostered | ssa.Proved | ssa.Verified | ssa.Tallied | ssa.Chosen | ssa.Committed
            ):
                assert (
                    len(getattr(server.state, "roster", getattr(server.state, "counted", {}))) >= server.terms.minimum
                )

    def finish(self) -> None:
        """Nothing more goes wrong: both close, everything is delivered, all work is done."""
        for number in (0, 1):
            self.act(("close", number, 0))
        for _ in range(200):
            for number in (0, 1):
                self.act(("deliver", number, 0))
                self.act(("work", number, 0))
            if all(server.settled() for server in self.servers) and not any(s.outgoing for s in self.servers):
                return
        raise AssertionError(f"stuck in {[type(server.state).__name__ for server in self.servers]}")


def world(
    *,
    verified: bool,
    minimum: int,
    liars: frozenset[str] = frozenset(),
    own_rule: bool = False,
    contributors: bool = False,
) -> World:
    terms = (ssa.Terms(key(0), number, minimum, verified, own_rule, contributors) for number in (0, 1))
    first, second = (Server(each, liars=liars) for each in terms)
    return World((first, second))


Action = tuple[str, int, int]

SMOOTH = ("deliver", "deliver", "deliver", "work", "work", "submit")
ROUGH = (*SMOOTH, "close", "crash", "cut")
SCRIPTS_PER_SEED = 150


def scripts(seed: int, *whims: str) -> Iterator[tuple[World, list[Action]]]:
    """Rounds, and what happens in each; some have all their clients before the first accident, as real ones do."""
    chance, beside, counting = random.Random(seed), random.Random(f"{seed}/own rules"), random.Random(f"{seed}/counts")
    for _ in range(SCRIPTS_PER_SEED):
        liars = frozenset(client for client in CLIENTS if chance.random() < 0.1)
        verified, minimum = chance.random() < 0.5, chance.choice((2, 2, 3, 4))
        own_rule, contributors = beside.random() < 0.2, verified and counting.random() < 0.5
        scene = world(verified=verified, minimum=minimum, liars=liars, own_rule=own_rule, contributors=contributors)
        missing = chance.random() < 0.5
        script = [
            ("submit", server, client)
            for client in range(len(CLIENTS))
            for server in (0, 1)
            if not missing or chance.random() < 0.8
        ]
        chance.shuffle(script)
        kinds = ROUGH if chance.random() < 0.8 else SMOOTH
        script.append(("close", chance.randrange(2), 0))
        script += [
            (chance.choice(kinds), chance.randrange(2), chance.randrange(100)) for _ in range(chance.randrange(50))
        ]
        for whim in whims:
            script.insert(chance.randrange(len(script)), (whim, chance.randrange(2), 0))
        yield scene, script


def play(scene: World, script: list[Action]) -> None:
    try:
        for action in script:
            scene.act(action)
        scene.finish()
    except BaseException:
        print(f"the script was {script}")
        raise


def both_say_the_same(servers: tuple[Server, Server]) -> None:
    first, second = servers
    assert type(first.state) is type(second.state)
    if isinstance(first.state, ssa.Done) and isinstance(second.state, ssa.Done):
        assert first.state.outcome == second.state.outcome
    if isinstance(first.state, ssa.Differed) and isinstance(second.state, ssa.Differed):
        assert (first.state.outcome, first.state.theirs) == (second.state.theirs, second.state.outcome)
        assert first.state.outcome != second.state.outcome
    assert isinstance(first.state, ssa.Done) <= (not first.terms.own_rule)
    if isinstance(first.state, ssa.Aborted) and isinstance(second.state, ssa.Aborted):
        assert first.state.explanation == second.state.explanation


@pytest.mark.parametrize("seed", often(4, range(12)))
def test_whatever_happens_both_end_in_the_same_outcome(seed: int) -> None:
    ends: Counter[type[Any]] = Counter()
    for scene, script in scripts(seed):
        play(scene, script)
        both_say_the_same(scene.servers)
        ends[type(scene.servers[0].state)] += 1
    assert ends[ssa.Done] > SCRIPTS_PER_SEED // 5
    assert ends[ssa.Differed] > SCRIPTS_PER_SEED // 50
    assert ends[ssa.Aborted] > SCRIPTS_PER_SEED // 20


@pytest.mark.parametrize(("whims", "seed"), one_in(4, [1, 2], range(100, 112)))
def test_when_somebody_gives_up_both_do_or_neither(seed: int, whims: int) -> None:
    """Their reasons may differ: each may find one of its own before it hears of the other's."""
    for scene, script in scripts(seed, *["give up"] * whims):
        play(scene, script)
        assert type(scene.servers[0].state) is type(scene.servers[1].state)


def test_the_scripts_pass_through_every_state() -> None:
    passed = {
        state
        for seed in range(4)
        for scene, script in scripts(seed)
        if play(scene, script) is None
        for server in scene.servers
        for state in server.passed
    }
    assert passed == set(ssa.ACCEPTS)


KINDS = (*ROUGH, "submit")
actions = st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 99))


@given(st.booleans(), st.integers(2, 4), st.lists(actions, max_size=60))
def test_any_script_at_all(verified: bool, minimum: int, script: list[Action]) -> None:
    scene = world(verified=verified, minimum=minimum, contributors=verified and bool(len(script) % 2))
    play(scene, script)
    both_say_the_same(scene.servers)


@given(st.lists(actions.filter(lambda action: action[0] != "submit"), max_size=40), st.booleans())
def test_a_round_without_clients_is_aborted(script: list[Action], verified: bool) -> None:
    scene = world(verified=verified, minimum=2)
    play(scene, script)
    assert all(isinstance(server.state, ssa.Aborted) for server in scene.servers)


@given(st.permutations([(client, server) for client in range(3) for server in (0, 1)]), st.booleans(), st.data())
def test_with_everybody_in_the_round_is_done(order: list[tuple[int, int]], verified: bool, data: st.DataObject) -> None:
    """Every client reaches both servers, in any order, and nothing is lost: all are counted, whoever closes first."""
    scene = world(verified=verified, minimum=3)
    for client, server in order:
        scene.act(("submit", server, client))
    scene.act(("close", data.draw(st.integers(0, 1)), 0))
    for number in data.draw(st.lists(st.integers(0, 3), max_size=30)):
        scene.act(("deliver" if number < 2 else "work", number % 2, 0))
    scene.finish()
    assert all(isinstance(server.state, ssa.Done) for server in scene.servers)
    both_say_the_same(scene.servers)
    for server in scene.servers:
        assert not any(server.passed.count(state) > 1 for state in server.passed if state is not ssa.Open)


@pytest.mark.parametrize("seed", range(4))
def test_both_choose_rows_by_the_same_counts(seed: int) -> None:
    """A server that counts again after a crash sends other counts only if none were sent before."""
    chosen = 0
    for scene, script in scripts(seed):
        play(scene, script)
        first, second = (server.chosen for server in scene.servers)
        assert len(first | second) <= 1
        chosen += bool(first and second)
    assert chosen > 5


def test_liars_are_left_out_and_the_rest_is_summed() -> None:
    scene = world(verified=True, minimum=3, liars=frozenset({"bob"}))
    for client in range(4):
        for server in (0, 1):
            scene.act(("submit", server, client))
    scene.finish()
    expected = {CLIENTS[number]: key(number) for number in (0, 2, 3)}
    for server in scene.servers:
        assert isinstance(server.state, ssa.Done)
    shares = sorted(digest(Domain.SHARE, bytes([number]), *sorted(expected.values())) for number in (0, 1))
    assert scene.servers[0].state.outcome == digest(Domain.OUTCOME, *shares, *sorted(expected.values()))  # type: ignore[union-attr]
