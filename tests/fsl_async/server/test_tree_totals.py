"""What a server knows of one client's update: its share of every weight, which both servers' proofs are about."""

from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bounds import BoundTerms
from fsl_async.errors import MisuseError
from fsl_async.ring import Elements
from fsl_async.server import aggregation
from fsl_async.server.aggregation import Claim, Submission
from fsl_async.server.batch import TreeTotals
from fsl_async.wire.public_part import Trees, forests_of
from tests.support.rounds import Draw, Round, add

BLOCKS = (
    Sparse("a", rows=60, select=4, width=3, stash=2),
    Dense("d", size=5),
    Sparse("b", rows=700, select=9, width=1),
)
TERMS = BoundTerms(method="exact", ring_bits=64, fraction_bits=0, norm=1, weights=1)
PAYLOAD = {"a": (np.array([0, 3, 11, 59]), np.arange(-6, 6).reshape(4, 3)), "d": np.arange(-2, 3)}
PAYLOAD["b"] = (np.array([699]), np.array([[-7]]))


class Seen:
    """What the proof of a bound was asked about, in place of the proof."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vectors: dict[int, Elements] = {}
        monkeypatch.setattr(aggregation, "terms_of", lambda shape: TERMS)
        monkeypatch.setattr(aggregation, "verifier_share", self._share)

    def _share(self, terms: BoundTerms, server: int, elements: Elements, *rest: object) -> bytes:
        self.vectors[server] = elements
        return b"share of the proof"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def claiming(pair: tuple[Submission, Submission]) -> list[Submission]:
    fields: list[dict[str, Any]] = [submission.__dict__ | {"claim": Claim(None, b"", b"")} for submission in pair]
    return [Submission(**changed) for changed in fields]


def round_of(bits: int, **changes: Any) -> Round:
    task = Task(name="t", blocks=BLOCKS, ring=Ring(bits), **{"security": "verified"} | changes)
    return Round(task, Draw(1, bits, "verified").model(task), seed=3)


def update_of(play: Round, seen: Seen) -> list[int]:
    """The whole update, which is the difference of both servers' vectors."""
    return play.task.ring.to_integers(play.task.ring.subtract(seen.vectors[0], seen.vectors[1])).tolist()


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("trees", [Trees.OWN, Trees.RETRIEVAL])
def test_both_vectors_are_shares_of_the_update(bits: int, trees: Trees, seen: Seen) -> None:
    play = round_of(bits)
    client_trees = play.plant({name: PAYLOAD[name][0] for name in ("a", "b")})
    pair = play.submissions("alice", client_trees, PAYLOAD, trees)
    for server, submission in enumerate(claiming(pair)):
        entry = add(play.aggregates[server], submission)
        assert (len(entry), entry[32:]) == (32 + 18, b"share of the proof")
    whole = update_of(play, seen)
    sizes = [forest.trees * forest.width for _, forest in forests_of(play.config.shape)]
    assert len(whole) == sum(sizes) + 5
    assert whole[-5:] == [-2, -1, 0, 1, 2]
    first, second = whole[: sum(sizes[:3])], whole[sum(sizes[:3]) : -5]
    rows = [tuple(first[at : at + 3]) for at in range(0, len(first), 3)]
    placed = sorted(row for row in rows if any(row))
    assert placed == [(-6, -5, -4), (-3, -2, -1), (0, 1, 2), (3, 4, 5)]
    assert sorted(value for value in second if value) == [-7]


def test_the_next_epoch_has_its_own_vector(seen: Seen) -> None:
    play = round_of(64)
    client_trees = play.plant({name: PAYLOAD[name][0] for name in ("a", "b")})
    for factor in (1, 2):
        update = {"d": np.full(5, factor), "b": (PAYLOAD["b"][0], np.full((1, 1), factor))}
        for server, submission in enumerate(claiming(play.submissions("alice", client_trees, update))):
            add(play.aggregates[server], submission)
        assert sorted(value for value in update_of(play, seen) if value) == [factor] * 6
        play.next_epoch()


def test_a_submission_without_a_claim_is_not_counted(seen: Seen) -> None:
    play = round_of(64)
    pair = play.submissions("alice", play.plant({}), {})
    with pytest.raises(MisuseError, match="alice does not claim"):
        play.add(pair)


def test_totals_are_not_made_where_nothing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TreeTotals, "__init__", lambda *_: pytest.fail("nobody asked for totals"))
    play = round_of(64)
    first, second = play.add(play.submissions("alice", play.plant({}), {}))
    assert first == second
    assert len(first) == 32
