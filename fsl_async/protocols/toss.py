"""Opening a round: the two servers toss the seed of its permutations, commit first, then reveal.

Neither server can steer the seed, because each fixes its half before it sees the other's. No client sees the seed
before it is fixed. Servers that hold different models find out here, before any client is let in.

Source: design §9.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias, assert_never

from fsl_async.digests import Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.protocols.machine import Event, Machine, PeerEvent, State, recall
from fsl_async.secrecy import Discreet
from fsl_async.wire.messages import TossCommitment, TossReveal


class Half(Discreet, frozen=True, forbid_unknown_fields=True):
    """This server's half of the seed and what it says of its model."""

    hidden: ClassVar[frozenset[str]] = frozenset({"seed", "nonce"})
    server: int
    number: int
    model: bytes
    seed: bytes
    nonce: bytes

    def commitment(self) -> bytes:
        """What is sent before the peer's half is known."""
        return _commit(self.server, self.number, self.seed, self.nonce)


class Committing(State, frozen=True, tag="Committing"):
    """Our commitment is out, the peer's is awaited."""

    half: Half


class Revealing(State, frozen=True, tag="Revealing"):
    """Both commitments are known, the peer's half is awaited."""

    half: Half
    peer_commitment: bytes
    heard: dict[str, bytes]


class Tossed(State, frozen=True, tag="Tossed"):
    """Both halves are known."""

    hidden: ClassVar[frozenset[str]] = frozenset({"proof_key"})
    half: Half
    commitments: tuple[bytes, bytes]
    hash_seed: bytes
    proof_key: bytes
    heard: dict[str, bytes]


Toss: TypeAlias = Committing | Revealing | Tossed


class PeerTossCommitment(PeerEvent, frozen=True, tag="PeerTossCommitment"):
    """The peer's commitment to its half, and the digest of the model it holds."""

    said: ClassVar[str] = "toss commitment"
    commitment: bytes
    model: bytes

    def content(self) -> bytes:
        """The commitment and the model digest."""
        return digest(Domain.TOSS_COMMITMENT, self.commitment, self.model)


class PeerTossReveal(PeerEvent, frozen=True, tag="PeerTossReveal"):
    """The peer's half."""

    said: ClassVar[str] = "toss reveal"
    hidden: ClassVar[frozenset[str]] = frozenset({"seed", "nonce"})
    seed: bytes
    nonce: bytes

    def content(self) -> bytes:
        """The half and its nonce."""
        return digest(Domain.TOSS_COMMITMENT, self.seed, self.nonce)


TossEvent: TypeAlias = PeerTossCommitment | PeerTossReveal

MACHINE: Machine[Toss] = Machine(Toss, TossEvent, initial=(Committing,), final=(Tossed,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Toss, event: Event, peer: str) -> Toss:
    """Take one event.

    Raises:
        PeerViolationError: the peer holds another model, or reveals what it had not committed to.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event, peer)


@MACHINE.transition
def _take_commitment(state: Committing, event: PeerTossCommitment, peer: str) -> Revealing:
    half = state.half
    if event.model != half.model:
        raise PeerViolationError(
            peer,
            f"holds another model: {event.model.hex()[:16]} there, {half.model.hex()[:16]} here; "
            "start both servers from the same one",
        )
    return Revealing(half, event.commitment, {event.said: event.content()})


@MACHINE.transition
def _take_half(state: Revealing, event: PeerTossReveal, peer: str) -> Tossed:
    half, expected = state.half, state.peer_commitment
    if not same(expected, _commit(1 - half.server, half.number, event.seed, event.nonce)):
        raise PeerViolationError(peer, "revealed a seed that it had not committed to")
    return _tossed(half, expected, event.seed, state.heard | {event.said: event.content()})


@MACHINE.repetition
def _said_before(state: Revealing | Tossed, event: PeerTossCommitment | PeerTossReveal, peer: str) -> bool:
    return recall(state.heard, event, peer)


def heard_in(state: Toss) -> dict[str, bytes]:
    """By what it was, the digest of what the peer has said."""
    return {} if isinstance(state, Committing) else state.heard


def effects(state: Toss) -> tuple[TossCommitment | TossReveal, ...]:
    """What to send, and after a restart to send again."""
    half = state.half
    commitment = TossCommitment(number=half.number, commitment=half.commitment(), model=half.model)
    reveal = TossReveal(number=half.number, seed=half.seed, nonce=half.nonce)
    match state:
        case Committing():
            return (commitment,)
        case Revealing():
            return (commitment, reveal)
        case Tossed():
            return (reveal,)
        case _:
            assert_never(state)


def _tossed(half: Half, peer_commitment: bytes, peer_seed: bytes, heard: dict[str, bytes]) -> Tossed:
    halves = (half.seed, peer_seed) if half.server == 0 else (peer_seed, half.seed)
    commitments = (half.commitment(), peer_commitment) if half.server == 0 else (peer_commitment, half.commitment())
    return Tossed(
        half=half,
        commitments=commitments,
        hash_seed=digest(Domain.HASH_SEED, *halves),
        proof_key=digest(Domain.PROOF_KEY, *halves),
        heard=heard,
    )


def _commit(server: int, number: int, seed: bytes, nonce: bytes) -> bytes:
    return digest(Domain.TOSS_COMMITMENT, bytes([server]), number.to_bytes(8, "little"), seed, nonce)


MACHINE.complete()
