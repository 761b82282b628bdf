"""What tests of protocol machines share: terms, keys, a round that goes well, and a small configuration."""

from typing import Any

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import bins_of_round
from fsl_async.config import BlockModel, RoundConfig, ServerKeys
from fsl_async.protocols import sampling, ssa, toss
from fsl_async.protocols.machine import Event
from fsl_async.protocols.psr import client as psr_client


def key(number: int) -> bytes:
    """Something of 32 bytes."""
    return bytes([number]) * 32


# ---- toss


def toss_halves() -> tuple[toss.Committing, toss.Committing]:
    """Both servers' beginnings of round 3."""
    ours, theirs = toss.Half(0, 3, key(9), key(1), key(2)), toss.Half(1, 3, key(9), key(3), key(4))
    return toss.Committing(ours), toss.Committing(theirs)


# ---- sampling


def sampling_terms(server: int = 0, **changes: Any) -> sampling.DrawTerms:
    """A sample of two, both of whom are needed."""
    fields: dict[str, Any] = {"number": 3, "server": server, "sample": 2, "minimum": 2, "most": 9, "secret": key(1)}
    return sampling.DrawTerms(**(fields | changes))


# ---- round

ALICE, BOB, CAROL = key(10), key(11), key(12)
TERMS = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True)
COUNTING = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=True, contributors=True)
SEMI_HONEST = ssa.Terms(round_id=key(0), server=0, minimum=2, verified=False)
ENTRIES = {"alice": ALICE, "bob": BOB}
PROOFS = {"alice": key(20), "bob": key(21)}
SHARE, NONCE, PEER_SHARE, PEER_NONCE, OUTCOME = (key(number) for number in range(30, 35))
COUNTS, PEER_COUNTS = key(40), key(41)
PEER_COMMITMENT = ssa.share_commitment(TERMS, 1, ENTRIES, PEER_SHARE, PEER_NONCE)

HAPPY_PATH: tuple[Event, ...] = (
    ssa.Submitted("alice", ALICE),
    ssa.Submitted("bob", BOB),
    ssa.CloseRound(),
    ssa.PeerRoster(ENTRIES),
    ssa.Evaluated(PROOFS),
    ssa.PeerProofs(PROOFS),
    ssa.Summed(SHARE, NONCE),
    ssa.PeerCommitment(PEER_COMMITMENT),
    ssa.PeerShare(PEER_SHARE, PEER_NONCE),
    ssa.Applied(OUTCOME),
    ssa.PeerConclusion(OUTCOME),
)


# ---- client


def config_of(number: int = 4, **changes: Any) -> RoundConfig:
    """A small round."""
    fields: dict[str, Any] = {
        "task": Task(
            name="t", blocks=(Sparse("a", rows=8, select=2), Dense("d", size=3)), ring=Ring(64), alignment="union"
        ),
        "number": number,
        "session": number,
        "hash_seed": key(1),
        "toss": (key(2), key(3)),
        "servers": (ServerKeys(key(4), key(5)), ServerKeys(key(6), key(7))),
        "model": (BlockModel("a", "f4", key(8)), BlockModel("d", "f8", key(9))),
    }
    fields |= changes
    if "bins" not in fields:
        fields["bins"] = bins_of_round(fields["task"], fields.get("union", ()), fields["model"])
    return RoundConfig(**fields)


ALLOWED = psr_client.ClientTerms(number=4, retrievals=8)
