"""The proof of a sum of squares over tiny fields, where every point and every seed can be tried."""

import itertools
import random
from collections import Counter

import pytest

from fsl_async.bounds.field import Field
from fsl_async.bounds.masking import query_point
from fsl_async.bounds.sum_of_squares import Query, Wires, holds, prove
from fsl_async.bounds.terms import BoundTerms
from tests.support.reference_bounds import interpolate

TINY, SMALL = Field(11), Field(251)


def answer(wires: Wires, values: list[int], proof: list[int], t: int) -> list[int]:
    query = Query(wires, t)
    return query.answer(query.of_integers(values, 0), proof)


def points(wires: Wires) -> range:
    return range(2 * wires.calls + 1, wires.field.prime)


def test_geometry():
    for values in range(1, 400):
        wires = Wires(SMALL, values)
        assert 2 * (wires.calls - 1) ** 2 < values <= 2 * wires.calls**2
        assert (wires.count - 1) * wires.calls < values <= wires.count * wires.calls


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 12, 30])
def test_a_proof_is_what_its_definition_says(size: int):
    rng, wires = random.Random(size), Wires(Field(2**31 - 1), size)
    prime = wires.field.prime
    values = [rng.randrange(-100, 100) for _ in range(size)]
    seeds = [rng.randrange(prime) for _ in range(wires.count)]
    padded = values + [0] * (wires.count * wires.calls - size)
    polynomials = [dict(enumerate([seed, *padded[wire :: wires.count]])) for wire, seed in enumerate(seeds)]
    sums = [sum(interpolate(a, t, prime) ** 2 for a in polynomials) % prime for t in range(2 * wires.calls + 1)]
    assert prove(wires, values, seeds) == seeds + sums


def test_an_honest_proof_passes_at_every_point():
    rng, wires = random.Random(1), Wires(SMALL, 12)
    values = [rng.randrange(-9, 10) for _ in range(12)]
    proof = prove(wires, values, [rng.randrange(251) for _ in range(wires.count)])
    assert all(holds(wires, answer(wires, values, proof, t), sum(v * v for v in values)) for t in points(wires))


def test_the_best_false_proof_passes_at_2g_points_and_no_more():
    rng, wires, most = random.Random(2), Wires(SMALL, 12), 0
    calls, prime = wires.calls, SMALL.prime
    for _ in range(60):
        values = [rng.randrange(-9, 10) for _ in range(12)]
        true = sum(v * v for v in values)
        claimed = true + rng.randrange(1, prime)
        proof = prove(wires, values, [rng.randrange(prime) for _ in range(wires.count)])
        # Q′ = Q + c·z where z has 2G zeros among the points, and T′ is the claimed sum.
        zeros = rng.sample(points(wires), 2 * calls)
        bent = [1] * (2 * calls + 1)
        for t in range(2 * calls + 1):
            for zero in zeros:
                bent[t] = bent[t] * (t - zero) % prime
        over_calls = sum(bent[1 : calls + 1]) % prime
        if not over_calls:
            continue
        c = (claimed - true) * pow(over_calls, -1, prime)
        forged = proof[: wires.count] + [(q + c * b) % prime for q, b in zip(proof[wires.count :], bent, strict=True)]
        passed = [t for t in points(wires) if holds(wires, answer(wires, values, forged, t), claimed)]
        assert sorted(zeros) == passed
        most = max(most, len(passed))
    assert most == 2 * calls


def test_no_proof_whatever_of_a_false_sum_passes_at_more_than_2g_points():
    """One wire of one call, and every Q over a field of seven elements, of which four are points."""
    wires = Wires(Field(7), 1)
    for value, seed, off in itertools.product((0, 1, 3), (0, 2), (1, 3)):
        passing = [
            sum(holds(wires, answer(wires, [value], [seed, *q], t), value * value + off) for t in points(wires))
            for q in itertools.product(range(7), repeat=3)
        ]
        assert max(passing) == 2 * wires.calls


def views(wires: Wires, values: list[int], t: int) -> Counter[tuple[int, ...]]:
    """What is opened at t, over all seeds."""
    every = itertools.product(range(wires.field.prime), repeat=wires.count)
    return Counter(tuple(answer(wires, values, prove(wires, values, list(seeds)), t)) for seeds in every)


def test_what_is_opened_is_the_same_for_two_updates_of_one_norm():
    wires = Wires(TINY, 4)
    one, other = [1, 2, 3, 0], [3, 0, 1, 2]
    for t in points(wires):
        assert views(wires, one, t) == views(wires, other, t)


@pytest.mark.parametrize("spoilt", range(4))
@pytest.mark.parametrize("by", [1, 5])
def test_a_server_that_spoils_its_answer_learns_nothing_from_the_verdict(spoilt: int, by: int):
    """The verdict is a function of what is opened, whatever a server adds to T, to Q(t) or to a wire."""
    wires = Wires(TINY, 4)
    for t in points(wires):
        seen = []
        for values in ([1, 2, 3, 0], [3, 0, 1, 2]):
            every = itertools.product(range(11), repeat=wires.count)
            opened = [answer(wires, values, prove(wires, values, list(seeds)), t) for seeds in every]
            wrong = [[(e + by * (i == spoilt)) % 11 for i, e in enumerate(elements)] for elements in opened]
            seen.append(Counter((*right, holds(wires, sent, 14)) for right, sent in zip(opened, wrong, strict=True)))
        assert seen[0] == seen[1]


def test_a_point_among_the_calls_would_show_values():
    """At t = c the wires' polynomials are the values of call c: that is why such points are refused."""
    wires = Wires(Field(101), 4)
    values, seeds = [1, 2, 3, 0], [55, 77]
    polynomials = [dict(enumerate([seed, *values[wire :: wires.count]])) for wire, seed in enumerate(seeds)]
    for call in (1, 2):
        opened = [interpolate(polynomial, call, 101) for polynomial in polynomials]
        assert opened == values[(call - 1) * wires.count :][: wires.count]


def test_points_up_to_2g_are_refused_and_the_counter_goes_on(monkeypatch: pytest.MonkeyPatch):
    asked: list[bytes] = []
    drawn = iter([0, 3, 4, 5])

    def fake(domain: object, query: bytes, submission: bytes, which: bytes) -> bytes:
        asked.append(which)
        return (next(drawn) if which[1] == 0 else 0).to_bytes(32, "little")

    monkeypatch.setattr("fsl_async.bounds.masking.digest", fake)
    terms = BoundTerms("exact", 64, 0, 100, 4)
    assert terms.wires.calls == 2
    assert query_point(terms, b"q", b"D") == 5
    assert asked == [bytes([counter, half]) for counter in range(4) for half in (0, 1)]
