"""Malformed trees: the servers' verdict is the truth about every submission, and what they reject leaves the sum.

The full number of trials is run by `python -m tests.system.security.trials`; here every kind is tried a few times.
"""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from fsl_async.derivation import seed_commitment, tag_keys
from fsl_async.digests import Domain, digest
from fsl_async.wire.public_part import ForestKey, Part
from tests.support.cases import in_turn
from tests.support.rounds import Round
from tests.support.shop import TASK as SHOP
from tests.support.shop import model

from .byzantine import flipped
from .forgeries import TASKS, Judges, Malformation, Workshop, round_of
from .malformations import MALFORMATIONS
from .trials import try_honest, try_malformed

TRIALS = 24


def named(malformation: Malformation) -> str:
    return malformation.name


@pytest.mark.parametrize("malformation", MALFORMATIONS, ids=named)
def test_every_malformed_submission_is_rejected(malformation: Malformation, seed: int) -> None:
    *_, tally = try_malformed(malformation, TRIALS, seed)
    assert (tally.trials, tally.rejected) == (TRIALS, TRIALS)
    assert tally.inconsistent == (TRIALS if malformation.trees else 0)


@pytest.mark.parametrize("malformation", MALFORMATIONS, ids=named)
def test_the_verdict_is_the_truth_also_where_an_attempt_spoils_nothing(malformation: Malformation, seed: int) -> None:
    workshop = Workshop(TASKS[0], seed + 1)
    for forgery in itertools.islice(workshop.attempts(malformation), 12):
        assert workshop.judges.accept(forgery) == forgery.sound(), malformation.name


@in_turn("rows", [25, 60, 200])  # of two, three and ten leaves, which a spoilt word often leaves sound
def test_the_verdict_is_the_truth_in_bins_of_few_rows(rows: int, seed: int) -> None:
    blocks = (Sparse("items", rows=rows, width=2, select=4),)
    workshop = Workshop(Task(name="small", blocks=blocks, ring=Ring(64), min_clients=2, max_clients=4), seed)
    sound = []
    for malformation in MALFORMATIONS[:6]:
        for forgery in itertools.islice(workshop.attempts(malformation), 12):
            sound.append(forgery.sound())
            assert workshop.judges.accept(forgery) == sound[-1], malformation.name
    assert not all(sound)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_honest_trees_differ_at_one_leaf_each_those_of_dummies_too(task: Task, seed: int) -> None:
    workshop = Workshop(task, seed)
    submission = workshop.submission(workshop.config)
    for key in submission.forests:
        found = submission.disagreement(key)
        assert found.is_point.all()
        assert (found.differs.sum(axis=1) == 1).all()


def test_a_flipped_bit_of_a_hint_changes_a_value_and_is_not_the_proof_s_concern(seed: int) -> None:
    """The proof says that one row at most is touched per bin; not by how much."""
    for task in TASKS:
        workshop = Workshop(task, seed)
        submission = workshop.submission(workshop.config)
        piece = next(piece for piece in submission.layout.pieces if piece.kind == "hint")
        assert workshop.judges.accept(replace(submission, part=flipped(submission.part, piece.start)))


def test_without_verification_a_cheat_spoils_the_sum(seed: int) -> None:
    """What semi-honest means: nothing is proved, and nothing is noticed."""
    task = msgspec.structs.replace(SHOP, security="semi-honest")
    play = Round(task, model(), seed)
    pair = play.submissions("mallory", play.plant({"items": [3]}), {})
    piece = next(piece for piece in pair[0].part.layout.pieces if piece.kind == "tree")
    part = Part(pair[0].part.layout, memoryview(flipped(bytes(pair[0].part.data), piece.start)))
    first, second = play.add(tuple(replace(each, part=part, trees=part) for each in pair))  # type: ignore[arg-type]
    assert first == second
    assert any(array.any() for array in play.total().values())


def test_some_attempts_do_spoil_nothing(seed: int) -> None:
    """What lies beyond a bin's last position is never evaluated: a last word that is wrong there spoils nothing."""
    workshop = Workshop(TASKS[0], seed)
    assert workshop.submission(workshop.config).forests[ForestKey(0, 0)].leaves == 11
    attempts = [next(workshop.attempts(MALFORMATIONS[0])) for _ in range(250)]
    assert 0 < sum(forgery.sound() for forgery in attempts) < len(attempts)


def test_honest_submissions_are_accepted_also_of_dummies_alone(seed: int) -> None:
    *_, (submissions, judged, accepted) = try_honest(1500, seed)
    assert submissions > 16
    assert accepted == judged >= 1500


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_rejected_submission_leaves_no_trace_in_the_sum(task, seed: int) -> None:
    workshop = Workshop(task, seed)
    good, bad = workshop.submission(workshop.config), next(workshop.spoil(MALFORMATIONS[4]))
    alone, both = Judges(workshop.config), Judges(workshop.config)
    assert alone.accept(good)
    assert both.accept(good)
    assert not both.accept(bad)
    for server, aggregate in enumerate(both.servers):
        aggregate.negate()
        both.proof(server, bad)
        aggregate.negate()
        assert aggregate.share() == alone.servers[server].share()


def test_proofs_depend_on_the_key_that_clients_never_learn(seed: int) -> None:
    workshop = Workshop(TASKS[0], seed)
    submission = workshop.submission(workshop.config)
    other = Judges(workshop.config, b"another toss")
    assert other.accept(submission)
    assert other.proof(0, submission) != workshop.judges.proof(0, submission)


def test_the_tag_key_is_bound_to_round_client_trees_and_both_seeds() -> None:
    config, tree = round_of(TASKS[0], 2), digest(Domain.TREE, b"trees")
    commitments = [seed_commitment(bytes(16), config.round_id(), "alice", server) for server in (0, 1)]
    other = seed_commitment(b"\x01" * 16, config.round_id(), "alice", 0)
    variants = [
        tag_keys(config, "alice", tree, commitments),
        tag_keys(round_of(TASKS[0], 3, session=2), "alice", tree, commitments),
        tag_keys(config, "bob", tree, commitments),
        tag_keys(config, "alice", digest(Domain.TREE, b"others"), commitments),
        tag_keys(config, "alice", tree, [other, commitments[1]]),
        tag_keys(config, "alice", tree, [commitments[0], other]),
    ]
    keys = [key for pair in variants for key in pair]
    assert len(set(keys)) == len(keys)


def test_seed_commitments_are_bound_to_seed_round_client_and_server() -> None:
    base = (bytes(16), b"round", "alice", 0)
    changes = [(b"\x01" * 16, *base[1:]), (base[0], b"other", *base[2:]), (*base[:2], "bob", 0), (*base[:3], 1)]
    assert len({seed_commitment(*arguments) for arguments in (base, *changes)}) == 5


def test_a_forger_satisfies_the_servers_at_the_leaf_it_chooses(seed: int) -> None:
    """The forgeries are as good as they claim: with one leaf left over, the proof made anew is accepted."""
    workshop = Workshop(TASKS[1], seed)
    forgery = workshop.submission(workshop.config)
    for grown in forgery.grown.values():
        grown.corrections = np.zeros_like(grown.corrections)
    assert not workshop.judges.accept(forgery)
    assert workshop.judges.accept(forgery.prove(workshop.rng))
