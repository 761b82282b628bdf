"""Chance has no say: of very many updates, those within the bound are accepted, and of the others none."""

from dataclasses import replace

import pytest

from tests.support.bounded import EXACT, PROJECTED, Scene, of_norm
from tests.support.cases import MANY


@pytest.mark.slow
def test_of_many_updates_beyond_the_bound_none_is_accepted_and_of_as_many_within_it_all():
    terms = replace(EXACT, weights=5)
    for seed in range(2_000 * MANY):
        within = Scene(terms, of_norm(terms.norm, 5, 1 + seed % 5, seed), seed % 2, seed)
        assert within.accepted(within.honest())
        beyond = Scene(terms, [2 * weight for weight in within.weights], seed % 2, seed)
        if sum(weight * weight for weight in beyond.weights) > terms.limit:
            squares = beyond.squares(terms.limit)
            values = beyond.lifted() if seed % 3 else [0] * 5
            assert not beyond.accepted(beyond.pack(squares, beyond.proof([*values, *squares])))


@pytest.mark.slow
def test_of_150_projected_updates_those_within_the_bound_are_accepted():
    """Half of all updates of 1.24 times the bound are short enough by chance; beyond 2.02 times it none is."""
    short = 0
    for seed in range(150):
        within = Scene(PROJECTED, of_norm(PROJECTED.norm, 40, 1 + seed % 40, seed), seed % 2, seed)
        assert within.accepted(within.honest())
        between = Scene(PROJECTED, [weight * 124 // 100 for weight in within.weights], seed % 2, seed)
        beyond = Scene(PROJECTED, [weight * 203 // 100 for weight in within.weights], seed % 2, seed)
        for scene in (between, beyond):
            projected = scene.projected()
            missing = PROJECTED.limit - sum(value * value for value in projected)
            masked = [*projected, *scene.squares(max(0, missing))]
            if max(map(abs, projected)) < PROJECTED.offset:
                assert scene.accepted(scene.pack(masked, scene.proof(masked))) == (missing >= 0)
            short += scene is between and missing >= 0
            assert scene is between or missing < 0
    assert 30 < short < 120
