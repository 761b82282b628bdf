"""Which bounds a task may ask for, what their proofs weigh, and what a refusal advises."""

import re

import pytest

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import BoundTerms, terms_of
from fsl_async.bounds.of_task import Wanted
from fsl_async.bounds.terms import LIMITS
from fsl_async.wire.public_part import forests_of

BLOCKS = [Sparse("items", rows=4_000, select=100, width=8, stash=1), Dense("head", size=11)]


def task(ring: Ring, **fields: object) -> Task:
    return Task(name="bounded", blocks=BLOCKS, ring=ring, **({"bound": 1.0, "max_clients": 100} | fields))


def test_a_task_without_a_bound_has_no_terms():
    assert terms_of(task(Ring(64, fraction_bits=17), bound=None)) is None


def test_every_payload_and_every_dense_weight_is_proved():
    bounded = task(Ring(64, fraction_bits=17), bound=1.5)
    terms = terms_of(planned(bounded))
    assert terms is not None
    trees = sum(forest.trees for _, forest in forests_of(planned(bounded)))
    assert (terms.weights, terms.norm, terms.exact) == (8 * trees + 11, 3 * 2**16, True)
    assert terms.private_bytes == 4 * terms.mask_bytes + 32 * terms.wires.proof_elements
    assert terms.verifier_bytes == 32 * (terms.wires.count + 2)


def test_the_sizes_that_are_published():
    exact = [BoundTerms("exact", 64, 17, 2**17, weights) for weights in (12_150, 13_644, 136_614)]
    assert [terms.private_bytes for terms in exact] == [10_060, 10_668, 33_548]
    assert [terms.verifier_bytes for terms in exact] == [5_056, 5_344, 16_768]
    projected = [BoundTerms("projected", 64, 24, 2**24, 10**6, rows) for rows in LIMITS]
    assert [terms.private_bytes for terms in projected] == [4_884, 8_820, 16_308, 30_836]
    assert [terms.verifier_bytes for terms in projected] == [800, 1_088, 1_536, 2_112]
    assert [round(terms.slack, 2) for terms in projected] == [2.89, 2.01, 1.62, 1.40]


REFUSED = {
    "too many fraction bits": (
        Ring(64, fraction_bits=24),
        {},
        "it is 16,777,216 units of Ring(64, fraction_bits=24), and honest updates of 811 weights would not be counted "
        "with probability 2^-35.2, where 2^-40 is allowed; use Ring(64, fraction_bits=19), or Ring(128, "
        'fraction_bits=24), or bound_proof="projected", which guarantees 2.01 times the bound',
    ),
    "no room for the lift": (
        Ring(32, fraction_bits=10),
        {},
        "2^-17.2, where 2^-40 is allowed; use Ring(64, fraction_bits=10), or Ring(128, fraction_bits=10), or "
        'bound_proof="projected"',
    ),
    "below the smallest value": (
        Ring(64, fraction_bits=4),
        {"bound": 0.01},
        "it is below 0.0625, the smallest value of Ring(64, fraction_bits=4); use Ring(64, fraction_bits=7)",
    ),
    "beyond the lemma": (
        Ring(32, fraction_bits=21),
        {"bound_proof": "projected"},
        "what projections guarantee (2.01 times as much) exceeds 1/1024 of what Ring(32, fraction_bits=21) holds; use "
        "Ring(32, fraction_bits=20), or Ring(64, fraction_bits=21)",
    ),
    "the field": (
        Ring(64, fraction_bits=48),
        {"bound_proof": "projected"},
        "its proof could wrap in the field; use Ring(64, fraction_bits=44), or Ring(128, fraction_bits=48)",
    ),
    "the sum": (
        Ring(32, fraction_bits=20),
        {"bound_proof": "projected", "max_clients": 900},
        "the sum of 900 updates of that size could wrap in Ring(32, fraction_bits=20); use Ring(32, fraction_bits=19)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_would_do(name: str):
    ring, fields, says = REFUSED[name]
    with pytest.raises(MisuseError, match=re.escape(says)):
        task(ring, **fields)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_refusal_advises_is_taken(name: str):
    ring, fields, says = REFUSED[name]
    advised = re.findall(r"Ring\((\d+), fraction_bits=(\d+)\)", says.partition("; use ")[2])
    assert advised
    for bits, fraction_bits in advised:
        assert terms_of(planned(task(Ring(int(bits), fraction_bits=int(fraction_bits)), **fields)))
    if "projected" in says.partition("; use ")[2]:
        assert terms_of(planned(task(ring, **fields, bound_proof="projected")))


def test_a_bound_that_nothing_helps():
    wanted = Wanted("exact", 2.0**90, 128, 0, 10, 10, 3, 10)
    with pytest.raises(MisuseError, match="use a smaller bound"):
        wanted.terms()
    with pytest.raises(MisuseError, match="use a larger bound"):
        Wanted("exact", 2.0**-200, 128, 0, 10, 10, 3, 10).terms()


def test_not_even_one_unit_is_lifted_from_32_bits():
    with pytest.raises(MisuseError, match=r"2\^-32\.0, where"):
        Wanted("exact", 1.0, 32, 0, 10, 1, 3, 2).terms()


@pytest.mark.parametrize("bits", [64, 128])
def test_the_error_allowed_is_2_to_the_minus_40_and_no_more(bits: int):
    """√nnz·b = 2^(l-40) is taken, one more unit is not; with Ring(128) the field ends first."""
    if bits == 64:
        assert Wanted("exact", 2.0**20, 64, 0, 500, 256, 3, 2).terms().norm == 2**20
        with pytest.raises(MisuseError, match=r"2\^-40\.0, where 2\^-40 is allowed"):
            Wanted("exact", 2.0**20 + 1, 64, 0, 500, 256, 3, 2).terms()
    else:
        assert Wanted("exact", 2.0**84, 128, 0, 500, 1, 3, 2).terms()
        with pytest.raises(MisuseError, match="could wrap in the field"):
            Wanted("exact", 2.0**86, 128, 0, 500, 1, 3, 2).terms()
